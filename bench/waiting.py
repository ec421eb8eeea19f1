"""How long jobs wait on a real batch system whose jobs Outrider starts, beside what the simulator says of it.

Jobs, half of them preemptible, and reservations of all kinds are handed in over some minutes. Then the same
load, at the times at which it was handed in and with the work that was really done, runs in the simulator's
mode `schedule`. What the batch system and the looks at it take is measured beforehand on a site with room for
all, and given to the simulator: from a job's submission to its start while others come, since looks and
releases wait for one another, and from one job's end to the next one's start on the same nodes. Nothing is
fitted to the load. The bound is 10 % of the mean wait. Needs root and Slurm or Grid Engine.

Where a difference is from is told, too: how long those waited that found room, and what passed from an end to
the next start, live and as measured before; how far the simulation's own mean moves when jobs come half a
second earlier or later, since that decides which of them have their turn before a reservation; and what that
mean is with what both took in the load itself.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import mean, median, stdev

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking
from bench.slurm_records import CLOCK, load
from outrider.core.besteffort.jobs.schedule import ScheduleRules
from outrider.core.model import Node, Resources, Workspace
from outrider.sim.batch.site import BatchSite, Delays
from outrider.sim.batch.turns import Starter
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import SimulationResult
from testbed import gridenginesite, slurm
from testbed.batchcluster import HEAD
from testbed.clustersite import ServedImage
from testbed.gridenginesite import GridEngineSite
from testbed.site import OutriderSite
from tests.daemons import mixed_load
from tests.daemons.gridengine.service import test_mixed_load as on_gridengine
from tests.daemons.mixed_load import JobWish, MixedBatch, Promise, Story, Strike
from tests.daemons.reservations import Site
from tests.daemons.slurm.service import test_mixed_load as on_slurm

TICKS = 10
"""A second of the simulation is a tenth of a real one."""
BOUND = 0.10
NODES, CPUS, MARGIN_S = 4, 4, 20
"""The sites of these tests, and their requeue_margin."""
OPEN_S = 1200
MOST_LATER_S = 300
PROBE = 10_000
MOST_PROBING_S, PROBING_PAUSE_S = 300, 0.3
PROBE_WORK_S, PROBE_EVERY_S = 2, 1.37
"""Not as often as the service looks: then all would come at one moment of its second."""
SHAKEN, SHAKEN_S = 20, 0.5
"""So many times the load is simulated with jobs handed in so much earlier or later at most."""
ROOM_S = 3.0
"""A job that waits for less has found room."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredSystem:
    """A batch system, and how it is asked for what differs between them."""

    lacks: Callable[[], str | None]
    site: Callable[[], AbstractContextManager[Site]]
    load: Callable[[Site], MixedBatch]
    on_all_nodes: Callable[[Site, str], str]
    """A job that takes all of them, from its script."""
    limit_s: int
    back_s: int
    """So long a job that was sent back waits at least."""
    lasts_s: tuple[int, ...]
    """How long reservations last: its jobs' limits have to fit."""


def slurm_load(site: Site) -> MixedBatch:
    assert isinstance(site, OutriderSite)
    return on_slurm.SlurmLoad(site)


def slurm_whole(site: Site, script: str) -> str:
    assert isinstance(site, OutriderSite)
    return site.submit(script, "-t1", f"-N{NODES}", "--exclusive", "--output=/dev/null")


def gridengine_load(site: Site) -> MixedBatch:
    assert isinstance(site, GridEngineSite)
    return on_gridengine.GridEngineLoad(site)


def gridengine_whole(site: Site, script: str) -> str:
    assert isinstance(site, GridEngineSite)
    slots = ("-pe", f"each{CPUS}", str(CPUS * NODES))
    return site.submit(script, "-l", f"h_rt={on_gridengine.LIMIT_S}", *slots, "-o", "/dev/null", "-j", "y")


SYSTEMS = {
    "slurm": MeasuredSystem(
        lacks=slurm.missing,
        site=lambda: on_slurm.turns_site(None),
        load=slurm_load,
        on_all_nodes=slurm_whole,
        # The shortest that Slurm has; and a second more than cred_expire, as Slurm has it.
        limit_s=60,
        back_s=11,
        lasts_s=(15, 20),
    ),
    "gridengine": MeasuredSystem(
        lacks=gridenginesite.missing,
        site=on_gridengine.turns_site,
        load=gridengine_load,
        on_all_nodes=gridengine_whole,
        limit_s=on_gridengine.LIMIT_S,
        # It is stopped for as long as its end might be under way, and then waits for two looks.
        back_s=8,
        lasts_s=on_gridengine.LASTS_S,
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """In seconds, means: of a stream of jobs that find room, and of full nodes. Along a queue they add up."""

    start_s: float
    turnover_s: float

    def delays(self, back_s: int) -> Delays:
        return Delays(
            start_s=round(self.start_s * TICKS),
            end_s=max(0, round((self.turnover_s - self.start_s) * TICKS)),
            margin_s=MARGIN_S * TICKS,
            back_s=back_s * TICKS,
        )


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--jobs", 200, 6)
    parser.add("--reservations", 50, 1)
    parser.add("--seconds", 600, 15, "over which they are handed in")
    parser.add("--probes", 8, 2, "of what Slurm takes for itself")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", choices=sorted(SYSTEMS), default="slurm")
    given = parser.given()
    system = SYSTEMS[given.on]
    if lacking(system.lacks()):
        return NOT_MEASURED
    with system.site() as site:
        image = mixed_load.install(site)
        latency = probed(system, site, image, given.probes)
        print(f"{NODES} nodes of {CPUS} processors, seed {given.seed}; {load()}")
        print(f"start {latency.start_s:.1f} s, end to next start {latency.turnover_s:.1f} s", flush=True)
        drawn = mixed_load.drawn(
            given.seed,
            jobs=given.jobs,
            leases=given.reservations,
            kinds=on_slurm.KINDS,
            span_s=given.seconds,
            lasts_s=system.lasts_s,
        )
        wishes = [wish for wish in drawn if not isinstance(wish, Strike)]
        zero_s = wall_zero_s(site)
        story = mixed_load.play(system.load(site), image, wishes)
        live, predicted = waits(system, site, story, wishes, zero_s, latency)
    ratio = mean(live.values()) / mean(predicted.values())
    print(f"jobs {len(live)}, reservations {len(story.promises)}; {load()}")
    print(
        f"mean wait live {mean(live.values()):.1f} s, predicted {mean(predicted.values()):.1f} s: {ratio:.3f}"
    )
    print(f"medians {median(live.values()):.1f} s and {median(predicted.values()):.1f} s")
    return judged(given, is_good=abs(ratio - 1) <= BOUND)


def wall_zero_s(site: Site) -> float:
    """The time of day at which the clock that nobody sets was at 0."""
    said = site.cluster.run(HEAD, ["date", "+%s.%N"]).stdout
    return float(said) - CLOCK.monotonic_s()


def probed(system: MeasuredSystem, site: Site, image: ServedImage, count: int) -> Latency:
    """A stream of small jobs, then jobs on all nodes one behind the other."""
    zero_s, batch, handed_s = wall_zero_s(site), system.load(site), dict[int, float]()

    def until_ended(number: int) -> None:
        awaited(lambda: number in mixed_load.ledger(site).ended)
        awaited(lambda: not batch.waiting())

    def wish(number: int) -> JobWish:
        return JobWish(at_s=0, number=number, cpus=1, work_s=PROBE_WORK_S, is_preemptible=False)

    for number in range(PROBE, PROBE + count):
        batch.submit(wish(number), image)
        handed_s[number] = CLOCK.monotonic_s() + zero_s
        CLOCK.sleep(PROBE_EVERY_S)
    for number in handed_s:
        until_ended(number)
    begun = mixed_load.ledger(site).begun
    starts = [begun[number][0] - at_s for number, at_s in handed_s.items()]
    first = PROBE + count
    for number in range(first, first + count):
        script = f"#!/bin/sh\n{mixed_load.job_script(wish(number), site.home())}"
        system.on_all_nodes(site, script)
    until_ended(first + count - 1)
    seen = mixed_load.ledger(site)
    gaps = [seen.begun[number + 1][0] - seen.ended[number][0] for number in range(first, first + count - 1)]
    return Latency(start_s=mean(starts), turnover_s=mean(gaps))


def waits(
    system: MeasuredSystem,
    site: Site,
    story: Story,
    wishes: Sequence[mixed_load.Wish],
    zero_s: float,
    latency: Latency,
) -> tuple[dict[int, float], dict[int, float]]:
    """By job, in seconds from its submission to its last start: live, and as the simulator has it."""
    seen = mixed_load.ledger(site)
    handed_s = {number: at_s + zero_s for number, at_s in story.handed_s.items()}
    first_s = min([*handed_s.values(), *(each.asked_s for each in story.promises)])

    def ticks(at_s: float) -> int:
        return round((at_s - first_s) * TICKS)

    given = [lease(each, ticks) for each in story.promises]
    for wish in wishes:
        if isinstance(wish, JobWish):
            work_s = seen.ended[wish.number][-1] - seen.begun[wish.number][-1]
            workspace = Workspace(
                name=str(wish.number),
                instances=1,
                resources=Resources.of(cpus=wish.cpus),
                duration_s=system.limit_s * TICKS,
                is_preemptible=wish.is_preemptible,
            )
            at_s = ticks(handed_s[wish.number])
            given.append(TraceSubmission(at_s=at_s, workspace=workspace, run_s=round(work_s * TICKS)))
    given.sort(key=lambda each: each.at_s)
    nodes = tuple(Node(name=name, capacity=Resources.of(cpus=CPUS)) for name in site.cluster.nodes)
    simulated, outcome, later = simulate(given, nodes, latency.delays(system.back_s))
    back = sum(map(len, seen.begun.values())) - len(seen.begun)
    moved = ", ".join(f"{name} by {ticks_later // TICKS} s" for name, ticks_later in later.items())
    print(f"reservations that begin later in the simulation: {moved or 'none'}")
    print(
        f"jobs were sent back {back} times live, {sum(simulated.requeued.values())} times in the simulation"
    )
    predicted = waited_s(outcome)
    live = {number: seen.begun[number][-1] - at_s for number, at_s in handed_s.items()}
    room = [wait_s for wait_s in live.values() if wait_s < ROOM_S]
    room_s = mean(room) if room else 0.0
    print(f"{len(room)} jobs that found room waited {room_s:.2f} s, the probes {latency.start_s:.2f} s")
    lasted_s = {number: seen.ended[number][-1] - seen.begun[number][-1] for number in live}
    between = gaps_s(handed_s, live, lasted_s), gaps_s(handed_s, predicted, lasted_s)
    print(f"from an end to the next start {between[0]:.2f} s live, {between[1]:.2f} s in the simulation")
    own = Latency(
        start_s=room_s if room else latency.start_s,
        turnover_s=latency.turnover_s + between[0] - between[1],
    )
    shaken = shaken_means_s(given, nodes, latency.delays(system.back_s))
    print(f"hand-ins moved by {SHAKEN_S} s at most: {mean(shaken):.1f} s, deviation {stdev(shaken):.1f} s")
    shaken = shaken_means_s(given, nodes, own.delays(system.back_s))
    print(f"so with what starts and turnovers took in the load itself: {mean(shaken):.1f} s")
    return live, predicted


def waited_s(outcome: SimulationResult) -> dict[int, float]:
    """By job, from its submission to its start."""
    return {int(done.workspace): (done.start_s - done.submit_s) / TICKS for done in outcome.done}


def awaited(is_so: Callable[[], bool]) -> None:
    """Raises AssertionError if that is never so."""
    by_s = CLOCK.monotonic_s() + MOST_PROBING_S
    while not is_so():
        assert CLOCK.monotonic_s() < by_s, "probes do not end"
        CLOCK.sleep(PROBING_PAUSE_S)


def gaps_s(handed_s: dict[int, float], waited_s: dict[int, float], work_s: dict[int, float]) -> float:
    """The mean time from the latest end of a job, or its own submission if that was later, to its start."""
    begun_s = {number: handed_s[number] + wait_s for number, wait_s in waited_s.items()}
    ends_s = sorted(begun_s[number] + work_s[number] for number in begun_s)
    found = []
    for number, at_s in begun_s.items():
        place = bisect_left(ends_s, at_s)
        before_s = ends_s[place - 1] if place else 0.0
        found.append(at_s - max(before_s, handed_s[number]))
    return mean(found)


def shaken_means_s(given: Sequence[TraceSubmission], nodes: tuple[Node, ...], delays: Delays) -> list[float]:
    """The mean wait in the simulation, each time with jobs handed in at slightly other times."""
    random, found, most = Random(1), [], round(SHAKEN_S * TICKS)
    for _ in range(SHAKEN):
        moved = [
            replace(each, at_s=max(0, each.at_s + random.randint(-most, most)))
            if each.workspace.is_best_effort
            else each
            for each in given
        ]
        moved.sort(key=lambda each: each.at_s)
        _, outcome, _ = simulate(moved, nodes, delays)
        found.append(mean(waited_s(outcome).values()))
    return found


def simulate(
    given: Sequence[TraceSubmission], nodes: tuple[Node, ...], delays: Delays
) -> tuple[BatchSite, SimulationResult, dict[str, int]]:
    """The load, with all of its reservations: one for which jobs that were started at other moments leave no
    room begins as much later as it must. Without it all jobs would wait less than beside it."""
    starter, later = Starter(rules=ScheduleRules(places=1)), dict[str, int]()
    while True:
        submissions = tuple(put_off(each, later.get(each.workspace.name, 0)) for each in given)
        trace = Trace(name="live", submissions=submissions)
        simulated = BatchSite(Setup(), nodes, trace, starter, delays)
        outcome = simulated.run()
        names = [each.workspace.name for each, _ in outcome.refused]
        if not names or max(later.values(), default=0) >= MOST_LATER_S * TICKS:
            return simulated, outcome, later
        for name in names:
            later[name] = later.get(name, 0) + TICKS


def put_off(each: TraceSubmission, by: int) -> TraceSubmission:
    """The same, but it begins so much later."""
    workspace = each.workspace
    if not by or workspace.start_s is None:
        return each
    deadline_s = workspace.finish_by_s
    return replace(
        each,
        workspace=replace(
            workspace,
            start_s=workspace.start_s + by,
            finish_by_s=None if deadline_s is None else deadline_s + by,
        ),
        open_until_s=None if each.open_until_s is None else each.open_until_s + by,
        trigger_s=None if each.trigger_s is None else each.trigger_s + by,
    )


def lease(promise: Promise, ticks: Callable[[float], int]) -> TraceSubmission:
    """As it was accepted."""
    asked_s, start_s = ticks(promise.asked_s), ticks(promise.start_s)
    lasts_s = promise.lasts_s * TICKS
    workspace = Workspace(
        name=promise.name,
        instances=promise.nodes,
        resources=Resources.of(cpus=CPUS),
        duration_s=lasts_s,
        start_s=max(asked_s, start_s),
        finish_by_s=max(asked_s, start_s) + mixed_load.FINISH_S * TICKS
        if promise.kind == "deadline"
        else None,
        may_yield=promise.kind == "preemptible",
    )
    plain = TraceSubmission(at_s=max(0, asked_s), workspace=workspace, run_s=lasts_s)
    if promise.kind != "open":
        return plain
    return replace(
        plain,
        open_until_s=asked_s + OPEN_S * TICKS,
        within_s=mixed_load.WITHIN_S * TICKS,
        trigger_s=None if promise.triggered_s is None else ticks(promise.triggered_s),
    )


if __name__ == "__main__":
    raise SystemExit(main())
