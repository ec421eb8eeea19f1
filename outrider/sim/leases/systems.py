"""The sites that are compared: virtual machines that are suspended, and what there is without them.

| system | best effort is | beside a reservation |
| --- | --- | --- |
| `suspend` | virtual machines | suspended before it, resumed after it on the same nodes |
| `migrate` | virtual machines | the same, on other nodes where that is sooner |
| `whole` | jobs | begun only where they end before it; who runs is not disturbed |
| `checkpoint` | jobs that save themselves | as `suspend`; what was not saved is done again |
| `requeue` | jobs of a batch system that Outrider orders | killed for it, and begun anew |
| `plain` | jobs of Slurm's own backfill | begun only where they end before it |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from outrider.core.besteffort.jobs.schedule import ScheduleRules
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.leases.admission import (
    AcceptNone,
    AdmissionPolicy,
    HourShare,
    ProtectBestEffort,
)
from outrider.core.model import Reservation
from outrider.core.scheduler import LeaseRules
from outrider.sim.batch.site import BatchSite, RunningJob
from outrider.sim.batch.turns import LEAD, Starter
from outrider.sim.leases.users import Lessees
from outrider.sim.setup import MEGABYTE, Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import EventOrder, Simulation

SYSTEMS = ("suspend", "migrate", "whole", "checkpoint", "requeue", "plain")
JOB_SYSTEMS = ("requeue", "plain")
POLICIES = ("all", "none", "hour-share=N", "protect=N")


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemTerms:
    """What suspending and running in a virtual machine cost, and how often jobs save themselves."""

    write_mb_per_s: int = 50
    read_mb_per_s: int = 50
    write_s: int = 0
    """What each suspension takes beside writing."""
    read_s: int = 0
    """What each resumption takes beside reading."""
    is_shared: bool = False
    """Whether all nodes write to one file system at these rates, or each to a disk of its own."""
    slowdown_percent: int = 10
    checkpoint_s: int = 3_600
    has_images: bool = False

    def __post_init__(self) -> None:
        if min(self.write_mb_per_s, self.read_mb_per_s, self.checkpoint_s) < 1:
            raise ValueError("rates and the time between checkpoints are 1 or more")
        if min(self.slowdown_percent, self.write_s, self.read_s) < 0:
            raise ValueError("a slowdown, and what suspending and resuming take beside, are 0 or more")


def admission(policy: str) -> tuple[AdmissionPolicy, ...]:
    """A policy by its name: `hour-share=25` has leases on 25 % of each hour at most, `protect=20` keeps the
    predicted mean bounded slowdown of best effort at 20 or below."""
    name, _, value = policy.partition("=")
    if policy == "all":
        return ()
    if policy == "none":
        return (AcceptNone(),)
    number = int(value) if value.isascii() and value.isdigit() else 0
    if name == "hour-share" and 0 < number <= 100:
        return (HourShare(number),)
    if name == "protect" and number:
        return (ProtectBestEffort(100 * number),)
    raise ValueError(f"policy {policy!r}: choose from {', '.join(POLICIES)}")


def suspension(system: str, terms: SystemTerms) -> SuspensionRules:
    """What becomes of best effort before a reservation."""
    if system == "checkpoint":
        # Between two checkpoints, on average half of what was done since the last one is done again.
        return SuspensionRules(restart_s=terms.checkpoint_s // 2, least_run_s=terms.checkpoint_s)
    if system not in ("suspend", "migrate"):
        return SuspensionRules(is_allowed=False)
    return SuspensionRules(
        disk_bytes_per_s=terms.write_mb_per_s * MEGABYTE,
        read_bytes_per_s=terms.read_mb_per_s * MEGABYTE,
        saving_s=terms.write_s,
        restart_s=terms.read_s,
        is_shared=terms.is_shared,
        is_migrating=system == "migrate",
        least_run_s=60,
    )


def check(system: str, policy: str) -> None:
    """Refuse what there is not."""
    admission(policy)
    if system not in SYSTEMS:
        raise ValueError(f"system {system!r}: choose from {', '.join(SYSTEMS)}")
    if system in JOB_SYSTEMS and policy.startswith("protect"):
        raise ValueError(
            f"policy {policy} predicts a queue that Outrider keeps; system {system} has a batch system's"
        )


def site(system: str, policy: str, terms: SystemTerms, trace: Trace, users: Lessees) -> Simulation:
    """A site of that kind, with its workload, ready to run."""
    check(system, policy)
    setup = Setup(
        has_images=terms.has_images,
        slowdown_percent=terms.slowdown_percent if system in ("suspend", "migrate") else 0,
        suspension=suspension(system, terms),
        leases=LeaseRules(is_moving=True, admission=admission(policy)),
    )
    if system == "requeue":
        return LeaseBatchSite(setup, trace, users, Starter(rules=ScheduleRules(places=1)), keeps_jobs=False)
    if system == "plain":
        return LeaseBatchSite(setup, trace, users, LEAD["slurm"], keeps_jobs=True)
    return LeaseSite(setup, trace, users)


class LeaseSite(Simulation):
    """A simulated site whose reservations are asked for by users who react to answers."""

    def __init__(self, setup: Setup, trace: Trace, users: Lessees) -> None:
        self.users = users
        super().__init__(setup, trace.nodes, trace)

    def _as_run_here(self, submission: TraceSubmission) -> TraceSubmission:
        """A reservation is for a time by the clock: it is not stretched."""
        here, workspace = super()._as_run_here(submission), submission.workspace
        if workspace.is_best_effort:
            return here
        return replace(
            here,
            workspace=replace(here.workspace, duration_s=workspace.duration_s),
            run_s=submission.run_s,
        )

    def _submit(self, submission: TraceSubmission) -> None:
        if submission.workspace.is_best_effort:
            super()._submit(submission)
            return
        outcome = self.outcome
        self.users.come(submission, outcome.done, outcome.refused, super()._submit, self._comes_later)

    def _comes_later(self, submission: TraceSubmission) -> None:
        here = self._as_run_here(submission)
        self._submissions[here.workspace.name] = here
        self.outcome.workspaces[here.workspace.name] = here.workspace
        self._at(max(self.now_s, here.at_s), EventOrder.SUBMIT, self._submit, here)


class LeaseBatchSite(BatchSite):
    """The same beside a batch system's jobs. With `keeps_jobs` none of them is killed."""

    def __init__(
        self, setup: Setup, trace: Trace, users: Lessees, starter: Starter, *, keeps_jobs: bool
    ) -> None:
        self.users, self._keeps_jobs = users, keeps_jobs
        self.lost: list[tuple[int, int, int]] = []
        """Work that was killed: nodes, from when, until when."""
        super().__init__(setup, trace.nodes, trace, starter)

    def _as_run_here(self, submission: TraceSubmission) -> TraceSubmission:
        here = super()._as_run_here(submission)
        if not here.workspace.is_best_effort or not self._keeps_jobs:
            return here
        return replace(here, workspace=replace(here.workspace, is_preemptible=False))

    def _submit(self, submission: TraceSubmission) -> None:
        if submission.workspace.is_best_effort:
            super()._submit(submission)
            return
        outcome, ask = self.outcome, super()._submit
        self.users.come(submission, outcome.done, outcome.refused, ask, self._comes_later)

    def _comes_later(self, submission: TraceSubmission) -> None:
        here = self._as_run_here(submission)
        self._submissions[here.workspace.name] = here
        self.outcome.workspaces[here.workspace.name] = here.workspace
        self._at(max(self.now_s, here.at_s), EventOrder.SUBMIT, self._submit, here)

    def _make_way(self, run: RunningJob, reservation: Reservation) -> None:
        name = run.job.name
        before = self.requeued.get(name, 0)
        super()._make_way(run, reservation)
        if self.requeued.get(name, 0) > before:
            self.lost.append((len(run.nodes), run.start_s, self.now_s))
