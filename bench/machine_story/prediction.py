"""The same story in the simulator: what it says that becomes of each machine, and when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.machine_story.systems import LINK_BYTES_PER_S, MARGIN_S, SAVING_BYTES_PER_S
from cachemgr.machines.qemu.command import OVERHEAD_BYTES
from cachemgr.machines.wish import MIB
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.service.desk.nodes.preemptible_jobs import SAVING_SPARE_S
from outrider.sim.setup import HONEST
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import Simulation

if TYPE_CHECKING:
    from bench.machine_story.live import StepCosts, Told
    from outrider.sim.world import FinishedRun, SimulationResult

LIMIT_S = 900
RESERVATION = "flock"


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictedJob:
    """A machine in the simulator. None: it is not suspended."""

    over_s: int
    stopped_s: int | None = None
    """Its last useful second, after which it is saved."""
    continued_s: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Everything that is compared; seconds since the first machine began."""

    jobs: dict[str, PredictedJob]
    """By node."""
    start_s: int
    end_s: int
    arrived_s: int


def origin_s(told: Told) -> float:
    """When the first machine began: the trace's second 0."""
    return min(each.times.began_s or 0.0 for each in told.jobs)


def predicted(told: Told) -> Prediction:
    """The trace of what was asked for, and when, as the simulator plays it."""
    zero_s, asked = origin_s(told), told.reservation
    asked_s, start_s = round(asked.asked_s - zero_s), round(asked.start_s - zero_s)
    # QEMU's own memory counts, too: the service knows what the job asks for, and not what of it is written.
    need = Resources.of(cpus=1, memory_mib=told.memory_mib + OVERHEAD_BYTES // MIB)
    nodes = tuple(Node(name=each.node, capacity=need) for each in told.jobs)
    jobs = [
        TraceSubmission(
            at_s=round((each.times.began_s or 0.0) - zero_s),
            run_s=work_s(told.costs, told.last),
            workspace=Workspace(name=each.node, instances=1, resources=need, duration_s=LIMIT_S),
        )
        for each in told.jobs
    ]
    flock = Workspace(
        name=RESERVATION, instances=len(nodes) - 1, resources=need, is_spread=True, start_s=start_s,
        duration_s=asked.end_s - asked.start_s, image=Image(uri=RESERVATION, size_bytes=asked.image_bytes),
    )  # fmt: skip
    wish = TraceSubmission(at_s=asked_s, run_s=flock.duration_s, workspace=flock)
    found = _played(told, nodes, [*jobs, wish])
    if not found.kept:
        raise SystemExit(f"the simulator refuses what was accepted: {found.refused}")
    return Prediction(
        jobs={run.workspace: _job(run) for run in found.done},
        start_s=found.kept[0].start_s,
        end_s=found.kept[0].end_s,
        arrived_s=max(found.arrived_s.values()),
    )


def work_s(costs: StepCosts, last: int) -> int:
    """What a machine needs that nobody suspends."""
    return round(costs.boot_s + (last - 1) * costs.count_s + costs.leave_s)


def _played(told: Told, nodes: tuple[Node, ...], submissions: list[TraceSubmission]) -> SimulationResult:
    """On a site with the settings of the real one. While it is told that it is to go, a machine works on."""
    rules = SuspensionRules(
        disk_bytes_per_s=SAVING_BYTES_PER_S,
        # A second of reading is the simulator's least; the rest of what was measured is beside it.
        read_bytes_per_s=1 << 40,
        saving_s=max(0, MARGIN_S + SAVING_SPARE_S - round(told.costs.order_s)),
        restart_s=max(0, round(told.costs.resuming_s) - 1),
        least_run_s=1,
    )
    setup = replace(
        HONEST, slowdown_percent=0, rate_bytes_per_s=LINK_BYTES_PER_S, push_back_s=None, suspension=rules
    )
    ordered = sorted(submissions, key=lambda each: each.at_s)
    return Simulation(setup, nodes, Trace(name="story", submissions=ordered)).run()


def _job(run: FinishedRun) -> PredictedJob:
    first, *more = run.segments
    if not more:
        return PredictedJob(over_s=run.end_s)
    then = more[0]
    return PredictedJob(
        over_s=run.end_s,
        stopped_s=first.end_s - first.suspend_s,
        continued_s=then.start_s + then.resume_s,
    )
