"""What an experiment on leases measures: the proposal's metrics of both kinds, and one for both together.

Slowdowns divide by the time on a machine of one's own without virtual machines. Shares of time are of all
nodes, over the days of the log's piece; what happens later, until the last job has ended, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from outrider.sim.leases.users import LeaseStory
from outrider.sim.results.metrics import bounded_slowdown
from outrider.sim.workload.trace import TraceSubmission
from outrider.sim.world import FinishedRun, SimulationResult


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseMeasures:
    """One run of one site. Times are in hours, shares and the rate of acceptance in per cent.

    `served` is the metric for both kinds: the mean, weighed by asked node-seconds, of what each got. A job
    gets one over its bounded slowdown; who wanted a reservation the same, counted from when he wanted it,
    thus 1 for one that was kept; who got nothing, 0. `booked` is what accepted reservations had booked, in
    per cent of the machine, and `queue` how many jobs wait on average; `worth` is the one less the other at
    the site's price: what adaptive admission steers to. `longest_…` is of the tenth of jobs that run longest;
    `longest_wait_h` counts the time for which they were suspended, too.
    """

    jobs: int
    all_best_effort_h: float
    wait_h: float
    slowdown: float
    slowdown_p95: float
    longest_slowdown: float
    longest_slowdown_p95: float
    longest_wait_h: float
    asked: int
    accepted: int
    rejected: int
    chose_best_effort: int
    acceptance: float
    served: float
    idle: float
    leased: float
    best_effort: float
    suspending: float
    resuming: float
    lost: float
    transferring: float
    booked: float
    queue: float
    worth: float
    overbooked: int
    broken: int


METRICS = tuple(name for name in LeaseMeasures.__slots__ if name != "jobs")


def measure_leases(
    outcome: SimulationResult,
    jobs: tuple[TraceSubmission, ...],
    stories: Mapping[str, LeaseStory],
    *,
    length_s: int,
    lost: Sequence[tuple[int, int, int]] = (),
    rate_bytes_per_s: int,
    waiting_price: int = 10,
) -> LeaseMeasures:
    """`lost` is work that was killed: nodes, from when, until when. `waiting_price` is what an hour of a
    waiting job costs, in hours of a node in a lease."""
    done = {run.workspace: run for run in outcome.done}
    ran = _ran(done, jobs)
    slowdowns = [_slowdown(run.end_s, job.at_s, job.run_s) for job, run in ran]
    by_length = sorted(zip(ran, slowdowns, strict=True), key=lambda each: -each[0][0].run_s)
    longest_jobs = by_length[: -(-len(ran) // 10)]
    longest = [slow for _, slow in longest_jobs]
    got = [(_work(job), 1 / slow) for (job, _), slow in zip(ran, slowdowns, strict=True)]
    got += [(story.instances * story.duration_s, _got(name, story, done)) for name, story in stories.items()]
    weights = sum(weight for weight, _ in got)
    asked = [story for story in stories.values() if story.asked]
    accepted = sum(story.start_s is not None for story in asked)
    shares = _shares(outcome, lost, length_s)
    link_s = outcome.moved_bytes / rate_bytes_per_s
    node_s = len(outcome.nodes) * length_s
    booked = (
        100 * sum(each.instances * each.duration_s for each in asked if each.start_s is not None) / node_s
    )
    queue = sum(run.start_s - job.at_s for job, run in ran) / length_s
    return LeaseMeasures(
        jobs=len(ran),
        all_best_effort_h=max(run.end_s for _, run in ran) / 3600,
        wait_h=fmean(run.start_s - job.at_s for job, run in ran) / 3600,
        slowdown=fmean(slowdowns),
        slowdown_p95=_p95(slowdowns),
        longest_slowdown=fmean(longest),
        longest_slowdown_p95=_p95(longest),
        longest_wait_h=fmean(run.end_s - job.at_s - job.run_s for (job, run), _ in longest_jobs) / 3600,
        asked=len(asked),
        accepted=accepted,
        rejected=len(asked) - accepted,
        chose_best_effort=sum(story.chose_best_effort for story in stories.values()),
        acceptance=100 * accepted / len(asked) if asked else 0.0,
        served=100 * sum(weight * part for weight, part in got) / weights,
        transferring=100 * link_s / max(1, outcome.end_s),
        booked=booked,
        queue=queue,
        worth=booked - 100 * waiting_price * queue / len(outcome.nodes),
        overbooked=sum(story.was_overbooked for story in asked),
        broken=sum(story.was_broken for story in asked),
        **shares,
    )


def mean_slowdown(outcome: SimulationResult, jobs: Sequence[TraceSubmission]) -> float:
    """The mean bounded slowdown of the log's jobs."""
    ran = _ran({run.workspace: run for run in outcome.done}, jobs)
    return fmean(_slowdown(run.end_s, job.at_s, job.run_s) for job, run in ran)


def _ran(
    done: Mapping[str, FinishedRun], jobs: Sequence[TraceSubmission]
) -> list[tuple[TraceSubmission, FinishedRun]]:
    """The log's jobs that ran, as they ran."""
    ran = [(job, done[job.workspace.name]) for job in jobs if job.workspace.name in done]
    if not ran:
        raise ValueError("not one job of the log ran: nothing can be said of best effort")
    return ran


def _slowdown(end_s: int, from_s: int, run_s: int) -> float:
    return bounded_slowdown(max(0, end_s - from_s - run_s), run_s)


def _p95(values: Sequence[float]) -> float:
    """The least that 95 % do not exceed."""
    return sorted(values)[-(-95 * len(values) // 100) - 1]


def _work(job: TraceSubmission) -> int:
    return job.workspace.instances * job.run_s


def _got(name: str, story: LeaseStory, done: Mapping[str, FinishedRun]) -> float:
    """What one who wanted a reservation got, between 0 and 1."""
    if story.start_s is not None:
        return 1 / _slowdown(story.start_s + story.duration_s, story.wanted_s, story.duration_s)
    if name in done:
        return 1 / _slowdown(done[name].end_s, story.wanted_s, story.run_s)
    return 0.0


def _shares(
    outcome: SimulationResult, lost: Sequence[tuple[int, int, int]], length_s: int
) -> dict[str, float]:
    """For which share of the nodes' time they did what, in per cent."""
    spent = dict.fromkeys(("leased", "best_effort", "suspending", "resuming", "lost"), 0)
    for kept in outcome.kept:
        for start_s, end_s in kept.spans:
            spent["leased"] += kept.workspace.instances * _within(start_s, end_s, length_s)
    for run in outcome.done:
        for segment in run.segments:
            count = sum(share.instances for share in segment.shares)
            useful_s, written_s = segment.start_s + segment.resume_s, segment.end_s - segment.suspend_s
            spent["resuming"] += count * _within(segment.start_s, useful_s, length_s)
            spent["best_effort"] += count * _within(useful_s, written_s, length_s)
            spent["suspending"] += count * _within(written_s, segment.end_s, length_s)
    spent["lost"] = sum(count * _within(start_s, end_s, length_s) for count, start_s, end_s in lost)
    capacity = len(outcome.nodes) * length_s
    shares = {name: 100 * seconds / capacity for name, seconds in spent.items()}
    return {"idle": 100 - sum(shares.values()), **shares}


def _within(start_s: int, end_s: int, length_s: int) -> int:
    return max(0, min(end_s, length_s) - max(start_s, 0))
