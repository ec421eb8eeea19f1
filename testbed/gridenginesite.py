"""Outrider on a private Grid Engine."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from outrider.cli.installing.common.shipped import shipped
from outrider.cli.installing.gridengine.files import COMPILER, GUARD, GUARDED, SHIPPED
from testbed import gridengine
from testbed import gridengineconf as conf
from testbed.batchcluster import HEAD
from testbed.clustersite import LIBRARY, ClusterSite
from testbed.gridengine import PROGRAMS, GridEngineCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

HOOKS = f"{LIBRARY}/gridengine"
COMPILE_S = 60
JSV = "outrider_jsv.py"

# What the installer has to tell an administrator: of both queues, and of parallel environments.
PROLOG = f"root@{HOOKS}/prolog $job_id $ja_task_id $job_owner $host"
QUEUES = {
    "epilog": f"root@{HOOKS}/epilog $job_id $ja_task_id",
    "starter_method": f"{HOOKS}/starter",
}
SHEPHERD = f"{HOOKS}/shepherd"
PE_START = f"root@{HOOKS}/pe-start $pe_hostfile $host $job_id $ja_task_id $job_owner"


class GridEngineSite(ClusterSite[GridEngineCluster]):
    """A Grid Engine with Outrider installed on it."""

    backend: ClassVar[Mapping[str, object]] = {
        "kind": "gridengine",
        "gridengine": {
            "commands": PROGRAMS,
            "account": conf.ACCOUNT,
            "work_queue": conf.WORK_QUEUE,
            "reservation_queue": conf.RESERVATION_QUEUE,
            "environments": " ".join(f"{name}={slots}" for slots, name in conf.ENVIRONMENTS.items()),
            "checkpoint": conf.CHECKPOINT,
            "duration_offset": f"{conf.DURATION_OFFSET_S}s",
        },
    }

    def install(self) -> None:
        super().install()
        self.connect()

    def connect(self) -> None:
        """Let Grid Engine use filter and hooks, as an administrator does when all nodes have them."""
        self.cluster.set_global(jsv_url=f"script:{conf.ACCOUNT}@{HOOKS}/{JSV}", shepherd_cmd=SHEPHERD)
        for queue in conf.QUEUES:
            word = "" if queue == conf.WORK_QUEUE else " reserved"
            self.cluster.set_queue(queue, prolog=f"{PROLOG}{word}", **QUEUES)
        for name in conf.ENVIRONMENTS.values():
            self.cluster.run(HEAD, ["qconf", "-mattr", "pe", "start_proc_args", PE_START, name])

    def submit(self, script: str, *options: str, user: str = "ada") -> str:
        """A user's `qsub`, with the script on its standard input; the job's number."""
        return self.cluster.qsub(script, *options, user=user)


def site_cluster(
    nodes: int, *, rate_bits_per_s: int, scheduler: Mapping[str, str] | None = None
) -> GridEngineCluster:
    """A cluster on which Outrider can be installed: its hosts have filter and hooks, which nobody calls."""
    guard = compiled_guard()
    files = {f"{HOOKS}/{name}": shipped(path) for name, path in SHIPPED.items()}
    files |= {f"{HOOKS}/{name}": guard for name in GUARDED}
    return GridEngineCluster(nodes=nodes, rate_bits_per_s=rate_bits_per_s, files=files, scheduler=scheduler)


def compiled_guard() -> bytes:
    """The program in whose care root's hooks run."""
    with tempfile.TemporaryDirectory(prefix="outrider-guard-") as folder:
        made = Path(folder, "guard")
        source = Path(folder, "guard.c")
        source.write_bytes(shipped(GUARD))
        words = [*COMPILER, str(source), "-o", str(made)]
        subprocess.run(words, check=True, timeout=COMPILE_S)
        return made.read_bytes()


def missing() -> str | None:
    """What this machine lacks for such a site; None if it lacks nothing."""
    if shutil.which(COMPILER[0]) is None:
        return "the guard of Grid Engine's hooks needs a C compiler: apt install gcc libc6-dev"
    return gridengine.missing()
