"""Outrider for Spack, of a clone: spack dev-build --source-path CLONE outrider@main+service."""

from spack.package import depends_on, license, variant, version
from spack_repo.builtin.build_systems.python import PythonPackage


class Outrider(PythonPackage):
    """Advance reservations with their images on the nodes in time, for Slurm and Grid Engine."""

    license("Apache-2.0")

    # No archive of it is published, so that there is no other version with a checksum.
    version("main")

    variant("service", default=True, description="outriderd, the demo, files of workspaces and policies")
    variant("deploy", default=True, description="outrider nodes deploy")
    variant("sim", default=False, description="pictures and progress of the simulator")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@68:", type="build")

    depends_on("py-fastapi@0.115:", when="+service", type="run")
    depends_on("py-prometheus-client@0.20:", when="+service", type="run")
    depends_on("py-pydantic@2.10:", when="+service", type="run")
    depends_on("py-pyyaml@6:", when="+service", type="run")
    depends_on("py-uvicorn@0.30:", when="+service", type="run")
    depends_on("py-fabric@3:", when="+deploy", type="run")
    depends_on("py-matplotlib@3.8:", when="+sim", type="run")
    depends_on("py-rich@13:", when="+sim", type="run")
