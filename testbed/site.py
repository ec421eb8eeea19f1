"""Outrider on a private Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Unpack

from outrider.cli.installing.common.shipped import shipped
from outrider.cli.installing.slurm.files import SHIPPED
from testbed.batchcluster import HostOptions
from testbed.clustersite import (
    CACHEMGR,
    CONFIGURATION,
    LIBRARY,
    NODE_DAEMON,
    POOL,
    PROGRAMS,
    SERVICE,
    ClusterSite,
    ServedImage,
)
from testbed.slurm import HEAD, SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CACHEMGR",
    "CONFIGURATION",
    "NODE_DAEMON",
    "POOL",
    "PROGRAMS",
    "SERVICE",
    "OutriderSite",
    "ServedImage",
    "site_cluster",
]
SLURM_LIBRARY = f"{LIBRARY}/slurm"

# What the installer prints for an administrator, and what a test may take away from.
SLURM_LINES = (
    "JobSubmitPlugins=lua",
    f"Prolog={SLURM_LIBRARY}/prolog",
    f"Epilog={SLURM_LIBRARY}/epilog",
    f"TaskProlog={SLURM_LIBRARY}/task-prolog",
    "PrologEpilogTimeout=60",
    "BatchStartTimeout=120",
)


class OutriderSite(ClusterSite[SlurmCluster]):
    """A Slurm with Outrider installed on it."""

    backend: ClassVar[Mapping[str, object]] = {"kind": "slurm"}
    # As whom slurmctld asks whether a job may start.
    administrators = ("slurm",)

    def submit(self, script: str, *options: str, user: str = "ada") -> str:
        """A user's `sbatch`, with the script on its standard input; the job's number."""
        argv = ["sbatch", "--parsable", *options]
        return self.cluster.run(HEAD, argv, user=user, given=script).stdout.strip()


def site_cluster(
    nodes: int,
    *,
    version: str | None = None,
    slurm_conf_lines: Sequence[str] = (),
    **options: Unpack[HostOptions],
) -> SlurmCluster:
    """A cluster on which Outrider can be installed: slurmctld does not start without filter and hooks."""
    files = {f"{SLURM_LIBRARY}/{name}": shipped(path).decode() for name, path in SHIPPED.items()}
    return SlurmCluster(
        nodes=nodes,
        version=version,
        slurm_conf_lines=[*SLURM_LINES, *slurm_conf_lines],
        files={**files, "/etc/slurm/job_submit.lua": shipped(SHIPPED["job_submit.lua"]).decode()},
        **options,
    )
