"""Tools that write scripts themselves, as they come from PyPI, on a private cluster with Outrider."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from outrider.cli.main import main
from testbed.batchcluster import HEAD, BatchCluster
from testbed.clustersite import ClusterSite
from tests.needs import lacking
from tests.repository import ROOT

TOOLS = ROOT / "build/integrations"
"""Where `make integrations` puts them: an environment of their own, which needs none of Outrider's."""
PATIENCE_S = 180
MB = 1_000_000
AnyCluster = TypeVar("AnyCluster", bound=BatchCluster)


@pytest.fixture(scope="session")
def tools() -> Path:
    """The environment's programs; skipped where there is none, but not in CI."""
    found = TOOLS / "bin"
    if not (found / "python").exists():
        lacking("the tools are not installed: make integrations, which needs the package index")
    return found


SWEEP = f"""
logs: [{ROOT}/tests/data/datastar-excerpt.swf]
from_day: 101
days: 2
processors_per_node: 8
sizes: [small]
policies: [none, all]
users: [steadfast, choosing]
"""
_KILLED = """
python -m outrider.cli.main sim sweep sweep.yaml -o out --cluster {engine} --workers 2 &
while kill -0 $! && [ $(ls out/*.json | wc -l) -lt 3 ]; do sleep 0.2; done 2>/dev/null
{kill}
echo killed at $(ls out/*.json | wc -l)
wait $!
"""


def swept_although_killed(
    site: ClusterSite[AnyCluster], tools: Path, engine: str, kill: str, settings: Mapping[str, str]
) -> tuple[int, str]:
    """How many runs of a sweep were done when one of its two workers was killed, and its table."""
    cluster, folder = site.cluster, f"{site.home()}/sweep"
    cluster.run(HEAD, ["mkdir", "-p", folder], user="ada")
    cluster.write(HEAD, f"{folder}/sweep.yaml", SWEEP, mode=0o644)
    section = {"slurm": "SLURM", "gridengine": "SGE"}[engine]
    environment = {
        "PATH": f"{tools}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "HOME": folder,
        "PYTHONDONTWRITEBYTECODE": "1",
        **{f"DASK_JOBQUEUE__{section}__{name}": value for name, value in settings.items()},
    }
    script = f"cd {folder}\n" + _KILLED.format(engine=engine, kill=kill)
    done = cluster.run(
        HEAD, ["/bin/sh", "-c", script], user="ada", environment=environment, check=False, timeout_s=600
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{site.logs()}"
    return int(done.stdout.split("killed at ")[1].split()[0]), cluster.read(HEAD, f"{folder}/out/results.csv")


def swept_here(tmp_path: Path) -> tuple[int, str]:
    """How many runs the sweep has, and its table, by this machine alone."""
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    assert main(["sim", "sweep", str(tmp_path / "sweep.yaml"), "-o", str(tmp_path / "out")]) == 0
    return len(list((tmp_path / "out").glob("*.json"))), (tmp_path / "out" / "results.csv").read_text()


def ran(
    site: ClusterSite[AnyCluster], tools: Path, name: str, files: Mapping[str, str], *argv: str
) -> tuple[str, list[str]]:
    """What a user's command prints where an image of that name is wanted, and the nodes that have the image.

    It runs in a folder of ada's with these files.
    """
    cluster, folder = site.cluster, f"{site.home()}/{name}"
    image = site.image(f"{name}.qcow2", 8 * MB)
    cluster.run(HEAD, ["mkdir", "-p", folder], user="ada")
    for file, text in files.items():
        cluster.write(HEAD, f"{folder}/{file}", text, mode=0o644)
    environment = {
        "OUTRIDER_IMAGE_WANTED": f"image={image.uri};digest={image.digest}",
        "PATH": f"{tools}:/usr/bin:/bin",
        "HOME": folder,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    words = ["/bin/sh", "-c", f'cd {folder} && exec "$@"', "sh", *argv]
    done = cluster.run(HEAD, words, user="ada", environment=environment, check=False, timeout_s=PATIENCE_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{site.logs()}"
    return done.stdout, list(site.arrived_s(image))
