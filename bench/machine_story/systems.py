"""The batch systems on which the story is told: how jobs are handed in, and what is written down of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from outrider.metadata.notation.durations import format_duration
from testbed import accounting, gridenginesite
from testbed.clustersite import ClusterSite, ServedImage
from testbed.gridenginesite import GridEngineSite
from testbed.site import SLURM_LINES, OutriderSite, site_cluster
from testbed.slurm import HEAD, missing
from tests.daemons.gridengine.service.jobs import advances

NODES = 4
RATE_BITS_PER_S = 200_000_000
LINK_BYTES_PER_S = 22_000_000
MARGIN_S = 20
SAVING_BYTES_PER_S = 200_000_000
AGAIN_S = 12
"""A job of Slurm's that was sent back waits so long: `cred_expire` below, and a second."""
JOBS = {
    "preemptible": True,
    "most_grace": "1m",
    "requeue_margin": format_duration(MARGIN_S),
    "machines": True,
    "saving_rate": SAVING_BYTES_PER_S,
}
TIMINGS = {"look": "1s", "progress": "1s", "call": "10s", "away": "10s", "reconcile": "6s", "note": "2s"}
SLURM_CONF = (*SLURM_LINES, "AuthInfo=cred_expire=10", "DebugFlags=NO_CONF_HASH")
INSIDE = "date +%s.%N\n"
LIMIT_S = 900
STARTED = "%a %b %d %H:%M:%S %Y"


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountedRun:
    """One run of a job as the batch system has accounted it."""

    state: str
    start_s: int
    end_s: int


class StorySystem(Protocol):
    """What the story needs of a batch system."""

    came_back: tuple[str, str]
    """What its accounting says of a run that was suspended, and of the last one."""

    @property
    def site(self) -> ClusterSite[Any]: ...

    def submit(self, image: ServedImage, work: str, node: str, folder: str, memory_mib: int) -> str:
        """A machine on that node that may be suspended."""

    def output(self, job: str, folder: str) -> str:
        """Where a job's words are, as the head calls it."""

    def has(self, name: str) -> bool:
        """Whether the batch system knows the reservation."""

    def submit_inside(self, name: str, nodes: int) -> str:
        """A job on all nodes of a reservation, which says when it begins."""

    def wait_over(self, job: str, timeout_s: float) -> None: ...

    def is_free(self, node: str) -> bool:
        """Whether the batch system has nothing on it any more."""

    def runs(self, job: str) -> list[AccountedRun]: ...


class SlurmStory:
    """On Slurm, with its own accounting."""

    came_back = ("REQUEUED", "COMPLETED")

    def __init__(self, site: OutriderSite) -> None:
        self._site = site

    @property
    def site(self) -> OutriderSite:
        return self._site

    def submit(self, image: ServedImage, work: str, node: str, folder: str, memory_mib: int) -> str:
        lines = f"{image.lines}#OUTRIDER run: vm\n#OUTRIDER boot: debian\n#OUTRIDER preemptible: suspend\n"
        limit = f"-t{LIMIT_S // 60}"
        options = (limit, f"--mem={memory_mib}", "-c1", f"-w{node}", f"--chdir={folder}")
        return self.site.submit(f"#!/bin/sh\n{lines}\n{work}", *options)

    def output(self, job: str, folder: str) -> str:
        return f"{folder}/slurm-{job}.out"

    def has(self, name: str) -> bool:
        return name in self.site.cluster.run(HEAD, ["scontrol", "-o", "show", "reservation"]).stdout

    def submit_inside(self, name: str, nodes: int) -> str:
        options = ("-t1", f"-N{nodes}", f"--reservation={name}")
        return self.site.submit(f"#!/bin/sh\n{INSIDE}", *options, f"--chdir={self.site.home()}")

    def wait_over(self, job: str, timeout_s: float) -> None:
        self.site.cluster.wait_job(job, "COMPLETED", timeout_s)

    def is_free(self, node: str) -> bool:
        states = self.site.cluster.node_states()
        return states.get(node, "").rstrip("$") in ("idle", "reserved", "maint", "planned")

    def runs(self, job: str) -> list[AccountedRun]:
        argv = ["sacct", "-P", "-n", "-D", "-X", "-j", job, "-o", "State,Start,End"]
        done = self.site.cluster.run(HEAD, argv, environment={"SLURM_TIME_FORMAT": "%s"})
        rows = [line.split("|") for line in done.stdout.splitlines()]
        found = [AccountedRun(state=row[0], start_s=_whole(row[1]), end_s=_whole(row[2])) for row in rows]
        return sorted(found, key=lambda each: each.start_s)


class GridEngineStory:
    """On Grid Engine."""

    came_back = ("24", "0")

    def __init__(self, site: GridEngineSite) -> None:
        self._site = site

    @property
    def site(self) -> GridEngineSite:
        return self._site

    def submit(self, image: ServedImage, work: str, node: str, folder: str, memory_mib: int) -> str:
        said = f"OUTRIDER=image={image.uri};digest={image.digest};run=vm;boot=debian;preemptible=suspend"
        place = ("-q", f"all.q@{node}", "-wd", folder, "-o", self.output("$JOB_ID", folder), "-j", "y")
        asked = f"h_rt={LIMIT_S},mem_free={memory_mib}M"
        return self.site.submit(f"#!/bin/sh\n{work}", "-ac", said, "-l", asked, *place)

    def output(self, job: str, folder: str) -> str:
        return f"{folder}/out-{job}"

    def has(self, name: str) -> bool:
        return name in advances(self.site)

    def submit_inside(self, name: str, nodes: int) -> str:
        whole = ("-pe", "each4", str(4 * nodes), "-l", "outrider_reservation=TRUE,h_rt=10")
        place = ("-o", self.output("$JOB_ID", self.site.home()), "-j", "y")
        return self.site.submit(f"#!/bin/sh\n{INSIDE}", "-ar", advances(self.site)[name], *whole, *place)

    def wait_over(self, job: str, timeout_s: float) -> None:
        self.site.cluster.wait_job(job, "finished", timeout_s)

    def is_free(self, node: str) -> bool:
        return not self.site.cluster.jobs_on()[node]

    def runs(self, job: str) -> list[AccountedRun]:
        return [
            AccountedRun(
                state=each["failed"].split()[0],
                start_s=_accounted(each["start_time"]),
                end_s=_accounted(each["end_time"]),
            )
            for each in self.site.cluster.accounts(job)
        ]


def lack(kind: str) -> str | None:
    """What this machine lacks for the story there; None if it lacks nothing."""
    if kind == "gridengine":
        return gridenginesite.missing()
    return missing() or accounting.missing()


@contextmanager
def begun(kind: str) -> Iterator[StorySystem]:
    """A site of four nodes whose batch system accounts."""
    settings = {"timings": TIMINGS, "jobs": JOBS}
    given: dict[str, Any] = {
        "link_bytes_per_s": LINK_BYTES_PER_S, "pool": "200MiB", "settings": settings
    }  # fmt: skip
    if kind == "gridengine":
        with gridenginesite.site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S) as grid:
            on_grid = GridEngineSite(grid, **given)
            on_grid.install()
            yield GridEngineStory(on_grid)
        return
    with site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S, slurm_conf_lines=SLURM_CONF) as cluster:
        accounting.begin(cluster, SLURM_CONF)
        on_slurm = OutriderSite(cluster, **given)
        on_slurm.install()
        yield SlurmStory(on_slurm)


def outside(system: StorySystem, host: str, path: str) -> Path:
    """A host's file, as this process reads it."""
    return Path(system.site.cluster.from_outside(host, path))


def _whole(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _accounted(text: str) -> int:
    """What qacct calls a time; the hosts of a testbed are in UTC."""
    try:
        return int(datetime.strptime(text, STARTED).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return 0
