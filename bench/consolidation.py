"""Virtual jobs in turns on four nodes of a real Slurm: where they start they stay, or they are moved.

Eight jobs of two small machines each, whose users have submitted them in one go. The first four compute on a
processor for each machine, one of the two for long; the others need a whole node for each machine. Where
machines stay, the ones that compute for long keep a processor of every node, and nobody else starts. The same
jobs run once more with `jobs.consolidate`, which moves those together. Told are the time in all and how long
nodes had a machine, measured and as the simulator has it (`outrider.sim.switch.turns`), which is given what
a start, alone and in a crowd, an end and a move take: that is measured beforehand. The bound is 15 %.
A machine is a Slurm job by itself here: those of a job of two nodes would all be there until its script
ends, and none would leave its processor to others before. Needs root, Slurm and QEMU.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking
from cachemgr.base.clock import SystemClock
from cachemgr.machines.keeper import PROGRAM
from outrider.sim.switch.turns import TurnsJob, TurnsPace, TurnsRun, run_turns
from testbed.site import OutriderSite, ServedImage, site_cluster
from testbed.slurm import HEAD, missing
from tests.daemons.slurm.service.conftest import JOBS, LINES, TIMINGS
from tests.daemons.slurm.service.in_machines import COUNTING, MB, said, submit, with_kernels
from tests.daemons.slurm.service.jobs import ended, seen

CLOCK = SystemClock()
NODES, CPUS, MEMORY_MIB = 4, 2, 4000
NEED_MIB = 352
"""Of a machine: its guest's memory, and what QEMU takes beside it."""
EVERY_S = 5
RATE_BITS_PER_S, LINK_BYTES_PER_S = 1_000_000_000, 500_000_000
"""Of hosts, and as the site has it: machines are carried with a tenth of that."""
BOUND = 0.15
LONG_S = 3600
WORK = "echo began\nsleep {work_s}\necho over\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayedTurns:
    """In seconds."""

    total_s: float
    busy_s: float
    moves: int


@contextmanager
def site_with(*, consolidates: bool) -> Iterator[OutriderSite]:
    jobs = {**JOBS, "consolidate": {"enabled": consolidates, "every": f"{EVERY_S}s"}}
    nodes = f"NodeName=n[1-{NODES}] CPUs={CPUS} RealMemory={MEMORY_MIB} State=UNKNOWN"
    with site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S, slurm_conf_lines=(*LINES, nodes)) as cluster:
        site = OutriderSite(
            cluster,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={"timings": TIMINGS, "jobs": jobs},
        )
        site.install()
        yield with_kernels(site)


def now_s() -> float:
    return CLOCK.monotonic_s()


def wait(site: OutriderSite, what: str, condition: object) -> float:
    """When it was so."""
    site.cluster.wait_for(what, condition, LONG_S, site.logs)  # type: ignore[arg-type]
    return now_s()


def probed(site: OutriderSite, image: ServedImage) -> TurnsPace:
    """On a site that has nothing else to do: as many machines as have room, and then one."""
    begun_s = now_s()
    many = [submit(site, image, WORK.format(work_s=1)) for _ in range(NODES * CPUS)]
    all_s = wait(site, "all starts", lambda: all("began" in said(site, each).split() for each in many))
    crowd_s = all_s - begun_s
    for each in many:
        ended(site, each, LONG_S)
    begun_s = now_s()
    job = submit(site, image, WORK.format(work_s=5))
    began_s = wait(site, "a start", lambda: "began" in said(site, job).split())
    over_s = wait(site, "an end", lambda: "over" in said(site, job).split())
    free_s = wait(site, "room", lambda: not busy_nodes(site))
    ended(site, job, LONG_S)
    job = submit(site, image, COUNTING.format(last=100_000))
    wait(site, "a count", lambda: len(counted(site, job)) >= 3)
    node, asked_s = seen(site, job).nodes, now_s()
    site.outrider("migrate", job, user="root")
    left_s = wait(site, "a node to be left", lambda: node not in busy_nodes(site))
    before = len(counted(site, job))
    back_s = wait(site, "it to go on", lambda: len(counted(site, job)) > before)
    site.cluster.run(HEAD, ["scancel", job], user="ada")
    ended(site, job, LONG_S)
    return TurnsPace(
        start_s=round(began_s - begun_s),
        end_s=round(free_s - over_s),
        leave_s=round(left_s - asked_s),
        move_s=round(back_s - asked_s),
        every_s=EVERY_S,
        crowd_s=max(0, round((crowd_s - began_s + begun_s) / (len(many) - 1))),
    )


def counted(site: OutriderSite, job: str) -> list[str]:
    """The guest's own lines, without what Slurm says of a job that is sent back."""
    return [line for line in said(site, job).splitlines() if line.isdecimal()]


def busy_nodes(site: OutriderSite) -> set[str]:
    """The nodes that have a job now."""
    shown = site.cluster.run(HEAD, ["squeue", "-h", "-tR,CG", "-o%N"]).stdout
    return set(shown.split())


def fields_of(site: OutriderSite, job: str) -> dict[str, str]:
    """What Slurm shows of a job."""
    shown = site.cluster.run(HEAD, ["scontrol", "show", "job", job]).stdout
    return dict(word.split("=", 1) for word in shown.split() if "=" in word)


def seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def played(site: OutriderSite, image: ServedImage, jobs: Sequence[TurnsJob], svg: str | None) -> PlayedTurns:
    """All jobs submitted at once, until the last one is over; the last switch is drawn."""
    begun_s, keys = now_s(), list[str]()
    for job in jobs:
        for work_s in job.works_s:
            options = [f"-c{job.demand[1]}", f"-J{job.name}"]
            keys.append(submit(site, image, WORK.format(work_s=work_s), *options))
    busy_s, at_s, before = 0.0, begun_s, set[str]()

    def is_over() -> bool:
        nonlocal busy_s, at_s, before
        nodes, looked_s = busy_nodes(site), now_s()
        busy_s += (len(nodes) + len(before)) / 2 * (looked_s - at_s)
        at_s, before = looked_s, nodes
        left = site.cluster.run(HEAD, ["squeue", "-h", "-o%A"]).stdout.split()
        return not left

    end_s = wait(site, "the end of all jobs", is_over)
    for key in keys:
        assert "over" in said(site, key).split(), f"job {key}: {said(site, key)}"
    shown = json.loads(site.told("switch", "show", "--json"))
    names_of = [job.name for job in jobs for _ in job.works_s]
    found = [fields_of(site, key) for key in keys]
    # Slurm takes one that was sent back for submitted then.
    first_s = min(seconds(each["SubmitTime"]) for each in found)
    for name_of, each in zip(names_of, found, strict=True):
        started_s, ended_s = (round(seconds(each[name]) - first_s) for name in ("StartTime", "EndTime"))
        print(f"  {name_of} {each['NodeList']}: {started_s} s to {ended_s} s, {each['Restarts']} moves")
    moves = sum(each["Restarts"] != "0" for each in found)
    print(f"  switches {shown['number']}, machines that moved {moves}", flush=True)
    if svg is not None and shown["number"]:
        site.told("switch", "show", "--svg", svg)
    return PlayedTurns(total_s=end_s - begun_s, busy_s=busy_s, moves=moves)


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--jobs", 8, 2, "virtual jobs, half of them small")
    parser.add("--short", 60, 5, "seconds of work of most machines")
    parser.add("--long", 300, 20, "seconds of work of one machine of every small job")
    parser.add_argument("--svg", metavar="FILE", help="draw the last switch")
    given = parser.given()
    lacks = missing() or (None if os.path.exists(PROGRAM) else f"needs {PROGRAM}: make tools")
    if lacking(lacks):
        return NOT_MEASURED
    half = given.jobs // 2
    small = [
        TurnsJob(name=f"small{number}", demand=(NEED_MIB, 1), works_s=(given.short, given.long))
        for number in range(1, half + 1)
    ]
    large = [
        TurnsJob(name=f"large{number}", demand=(NEED_MIB, CPUS), works_s=(given.short, given.short))
        for number in range(1, given.jobs - half + 1)
    ]
    jobs, found = [*small, *large], dict[str, tuple[PlayedTurns, TurnsRun]]()
    for name, consolidates in (("static", False), ("consolidated", True)):
        with site_with(consolidates=consolidates) as site:
            image = site.image("turns.qcow2", 4 * MB)
            pace = probed(site, image)
            print(f"{name}: {pace}; load {os.getloadavg()[0]:.1f}", flush=True)
            predicted = run_turns([(MEMORY_MIB, CPUS)] * NODES, jobs, pace, consolidates=consolidates)
            measured = played(site, image, jobs, given.svg)
        found[name] = measured, predicted
        print(
            f"{name}: {measured.total_s:.0f} s in all, predicted {predicted.total_s} "
            f"({measured.total_s / predicted.total_s:.2f}); node-hours {measured.busy_s / 3600:.3f}, "
            f"predicted {predicted.busy_s / 3600:.3f} ({measured.busy_s / predicted.busy_s:.2f}); "
            f"moves {measured.moves}, predicted {predicted.moves}; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    (static, static_run), (moved, moved_run) = found["static"], found["consolidated"]
    print(
        f"consolidated to static: time {moved.total_s / static.total_s:.3f}, predicted "
        f"{moved_run.total_s / static_run.total_s:.3f}; node-hours {moved.busy_s / static.busy_s:.3f}, "
        f"predicted {moved_run.busy_s / static_run.busy_s:.3f}"
    )
    is_near = all(abs(each.total_s / run.total_s - 1) <= BOUND for each, run in found.values())
    return judged(given, is_good=is_near and moved.total_s < static.total_s)


if __name__ == "__main__":
    sys.exit(main())
