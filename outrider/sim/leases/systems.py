"""The sites that are compared: virtual machines that are suspended, and what there is without them.

| system | best effort is | beside a reservation |
| --- | --- | --- |
| `suspend` | virtual machines | suspended before it, resumed after it on the same nodes |
| `migrate` | virtual machines | the same, on other nodes where that is sooner |
| `late` | virtual machines | as `suspend`; its nodes are chosen anew shortly before it begins |
| `whole` | jobs | begun only where they end before it; who runs is not disturbed |
| `checkpoint` | jobs that save themselves | as `suspend`; what was not saved is done again |
| `requeue` | jobs of a batch system that Outrider orders | killed for it, and begun anew |
| `plain` | jobs of Slurm's own backfill | begun only where they end before it |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from re import fullmatch

from outrider.core.besteffort.board import BestEffortRun
from outrider.core.besteffort.jobs.schedule import ScheduleRules
from outrider.core.besteffort.protection.first_slice import SliceRules
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.leases.adaptive import SteeringRules
from outrider.core.leases.admission import AcceptNone, HourShare, PlannedLease, ProtectBestEffort, WithinIdle
from outrider.core.leases.overbooking import Overbooking
from outrider.core.model import Reservation
from outrider.core.scheduler import LeaseRules
from outrider.sim.batch.site import BatchSite, RunningJob
from outrider.sim.batch.turns import LEAD, Starter
from outrider.sim.leases.hindsight import AcceptNamed, gentlest_first, longest_front
from outrider.sim.leases.measures import mean_slowdown
from outrider.sim.leases.users import Experience, Lessees
from outrider.sim.setup import MEGABYTE, Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import EventOrder, Simulation, SimulationResult

SYSTEMS = ("suspend", "migrate", "late", "whole", "checkpoint", "requeue", "plain")
JOB_SYSTEMS = ("requeue", "plain")
VIRTUAL_SYSTEMS = ("suspend", "migrate", "late")
POLICIES = ("all", "none", "hour-share=N", "protect=N", "idle=N", "adaptive=N", "overbook=N", "oracle=N")
CHOSEN_S = 120
"""How long before it begins a reservation's nodes are chosen anew: what runs there has to be written."""
STANDBY_LATER_S = 600
"""How much later than it was wanted one on standby may begin: best effort has to leave first."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class LeasePolicy:
    """What a policy's name means."""

    rules: LeaseRules
    risk_percent: int | None = None
    """How likely it may be that the promise of a lease on standby is broken; None: there is no standby."""
    oracle_percent: int | None = None
    """By how much it lets the slowdown of jobs rise, of which it knows all; None: it does not know them."""

    @property
    def is_slicing(self) -> bool:
        return self.rules.slices is not None


def policy_of(name: str) -> LeasePolicy:
    """`hour-share=25` has leases on 25 % of each hour at most, `protect=20` keeps the predicted mean bounded
    slowdown of best effort at 20 or below, `idle=80` has leases and what best effort runs on and waits for
    on 80 % of the machine at most, `adaptive=10` moves the share of leases by what is worth more if
    an hour in which a job waits costs what ten hours of a node in a lease bring, `overbook=5` puts leases
    on standby whose promise is broken with a probability of 5 % at most, and `oracle=10` knows all jobs that
    will come, and accepts as many leases as raise their mean bounded slowdown by 10 % at most.
    With `+slice=120` behind it whom leases keep waiting has its first 120 s at once; with `+always=120`
    whoever waits, with leases or without."""
    admission, _, slices = name.partition("+")
    if slices:
        meant, (kind, _, value) = policy_of(admission), slices.partition("=")
        length_s = int(value) if value.isascii() and value.isdigit() else 0
        if kind in ("slice", "always") and 0 < length_s <= 86_400 and meant.oracle_percent is None:
            rules = SliceRules(length_s=length_s, is_always=kind == "always")
            return replace(meant, rules=replace(meant.rules, slices=rules))
        raise ValueError(f"policy {name!r}: one of +slice=S and +always=S may follow, but not on an oracle")
    kind, _, value = name.partition("=")
    if name == "all":
        return LeasePolicy(rules=LeaseRules(is_moving=True))
    if name == "none":
        return LeasePolicy(rules=LeaseRules(is_moving=True, admission=(AcceptNone(),)))
    number = int(value) if value.isascii() and value.isdigit() else 0
    if kind == "hour-share" and 0 < number <= 100:
        return LeasePolicy(rules=LeaseRules(is_moving=True, admission=(HourShare(number),)))
    if kind == "protect" and (most := hundredths_of(value)):
        return LeasePolicy(rules=LeaseRules(is_moving=True, admission=(ProtectBestEffort(most),)))
    if kind == "idle" and 0 < number <= 1_000:
        return LeasePolicy(rules=LeaseRules(is_moving=True, admission=(WithinIdle(number),)))
    if kind == "adaptive" and 0 < number <= 10_000:
        steering = SteeringRules(booked=1000, waiting=1000 * number)
        return LeasePolicy(rules=LeaseRules(is_moving=True, steering=steering))
    if kind == "oracle" and value.isascii() and value.isdigit() and number <= 10_000:
        return LeasePolicy(rules=LeaseRules(is_moving=True), oracle_percent=number)
    if kind == "overbook" and 2 <= number <= 50:
        return LeasePolicy(rules=LeaseRules(is_moving=True), risk_percent=number)
    raise ValueError(f"policy {name!r}: choose from {', '.join(POLICIES)}")


def hundredths_of(value: str) -> int:
    """Of 20 or 1.25; 0 for what is no such number."""
    found = fullmatch(r"([0-9]{1,6})(?:\.([0-9]{1,2}))?", value)
    return 100 * int(found[1]) + int((found[2] or "").ljust(2, "0")) if found else 0


def suspension(system: str, terms: SystemTerms) -> SuspensionRules:
    """What becomes of best effort before a reservation."""
    if system == "checkpoint":
        # Between two checkpoints, on average half of what was done since the last one is done again.
        return SuspensionRules(restart_s=terms.checkpoint_s // 2, least_run_s=terms.checkpoint_s)
    if system not in VIRTUAL_SYSTEMS:
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
    found = policy_of(policy)
    if system not in SYSTEMS:
        raise ValueError(f"system {system!r}: choose from {', '.join(SYSTEMS)}")
    if system in JOB_SYSTEMS and policy.startswith(("protect", "idle")):
        raise ValueError(
            f"policy {policy} looks at a queue that Outrider keeps; system {system} has a batch system's"
        )
    if found.is_slicing and system not in VIRTUAL_SYSTEMS:
        raise ValueError(
            f"policy {policy} suspends who runs for who waits: use system {', '.join(VIRTUAL_SYSTEMS)}"
        )
    if found.risk_percent is not None and system not in VIRTUAL_SYSTEMS:
        raise ValueError(
            f"policy {policy} needs best effort that leaves within minutes: use {', '.join(VIRTUAL_SYSTEMS)}"
        )


def site(
    system: str, policy: str, terms: SystemTerms, trace: Trace, users: Lessees
) -> LeaseSite | LeaseBatchSite:
    """A site of that kind, with its workload, ready to run."""
    check(system, policy)
    if system == "late" and terms.has_images:
        raise ValueError("system late chooses nodes when images would have to be there: leave out images")
    meant = policy_of(policy)
    if meant.oracle_percent is not None:
        names = _named_by_oracle(system, terms, trace, users, meant.oracle_percent)
        meant = replace(meant, rules=_accepting(names))
    return _built(system, meant, terms, trace, users)


def _named_by_oracle(
    system: str, terms: SystemTerms, trace: Trace, users: Lessees, most_percent: int
) -> frozenset[str]:
    """Who is accepted by one that has tried it on this very site with these very jobs and users."""
    jobs = tuple(each for each in trace.submissions if each.workspace.is_best_effort)

    def tried(names: frozenset[str], given: Trace) -> SimulationResult:
        same = replace(users, stories={}, experience=Experience())
        return _built(system, LeasePolicy(rules=_accepting(names)), terms, given, same).run()

    before = tried(frozenset(), replace(trace, submissions=jobs))
    most = mean_slowdown(before, jobs) * (100 + most_percent) / 100
    names = gentlest_first(before, trace.submissions)
    return longest_front(names, lambda chosen: mean_slowdown(tried(chosen, trace), jobs), most)


def _accepting(names: frozenset[str]) -> LeaseRules:
    return LeaseRules(is_moving=True, admission=(AcceptNamed(names),))


def _built(
    system: str, meant: LeasePolicy, terms: SystemTerms, trace: Trace, users: Lessees
) -> LeaseSite | LeaseBatchSite:
    setup = Setup(
        has_images=terms.has_images,
        slowdown_percent=terms.slowdown_percent if system in VIRTUAL_SYSTEMS else 0,
        suspension=suspension(system, terms),
        leases=meant.rules,
    )
    if system == "requeue":
        return LeaseBatchSite(setup, trace, users, Starter(rules=ScheduleRules(places=1)), keeps_jobs=False)
    if system == "plain":
        return LeaseBatchSite(setup, trace, users, LEAD["slurm"], keeps_jobs=True)
    overbooking = None if meant.risk_percent is None else Overbooking(meant.risk_percent)
    return LeaseSite(setup, trace, users, overbooking, is_late=system == "late")


class LeaseSite(Simulation):
    """A simulated site whose reservations are asked for by users who react to answers."""

    def __init__(
        self,
        setup: Setup,
        trace: Trace,
        users: Lessees,
        overbooking: Overbooking | None = None,
        *,
        is_late: bool = False,
    ) -> None:
        self.users, self.overbooking, self._is_late = users, overbooking, is_late
        self._standbys: dict[str, PlannedLease] = {}
        self.lost: list[tuple[int, int, int]] = []
        """First slices after which a job begins anew: nodes, from when, until when."""
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
        self.users.come(submission, outcome.done, outcome.refused, self._ask, self._comes_later)

    def _comes_later(self, submission: TraceSubmission) -> None:
        here = self._as_run_here(submission)
        self._submissions[here.workspace.name] = here
        self.outcome.workspaces[here.workspace.name] = here.workspace
        self._at(max(self.now_s, here.at_s), EventOrder.SUBMIT, self._submit, here)

    def _ask(self, submission: TraceSubmission) -> None:
        """A reservation, or where it has no place one on standby."""
        before = len(self.outcome.refused)
        super()._submit(submission)
        if self.overbooking is None or len(self.outcome.refused) == before:
            return
        view, name = self.scheduler.view, submission.workspace.name
        lease = view.wanted(submission.workspace)
        held = tuple(view.leases(lease.start_s, lease.spans[-1][1]))
        if self.overbooking.accepts(lease, held, self._standbys.values(), view.units, self.now_s):
            del self.outcome.refused[before:]
            self._standbys[name] = lease
            self._at(lease.start_s, EventOrder.SUBMIT, self._stands_by, submission)

    def _stands_by(self, submission: TraceSubmission) -> None:
        """The time of one on standby has come: it begins, now or some minutes later, or is broken."""
        assert self.overbooking is not None
        name, outcome = submission.workspace.name, self.outcome
        before = len(outcome.refused)
        for later_s in (0, STANDBY_LATER_S):
            del outcome.refused[before:]
            workspace = replace(submission.workspace, start_s=self.now_s + later_s)
            super()._submit(replace(submission, workspace=workspace))
            if len(outcome.refused) == before:
                break
        was_broken = len(outcome.refused) > before
        self.overbooking.note_standby(was_broken=was_broken)
        self.users.stories[name].stood_by(was_broken=was_broken)
        del self._standbys[name]

    def _expect(self, reservation: Reservation, submission: TraceSubmission) -> None:
        super()._expect(reservation, submission)
        if self._is_late and self.now_s < reservation.start_s - CHOSEN_S:
            at_s = reservation.start_s - CHOSEN_S
            self._at(at_s, EventOrder.SUBMIT, self._choose_anew, reservation)

    def _choose_anew(self, reservation: Reservation) -> None:
        if self._entry(reservation) is not None:
            name = reservation.workspace.name
            self._accepted(name, self.scheduler.choose_nodes_anew(name, self.now_s))

    def _slice_ends(self, run: BestEffortRun) -> None:
        self.lost.append((run.together, run.start_s, self.now_s))
        super()._slice_ends(run)

    def _reservation_ends(self, reservation: Reservation, start_s: int | None = None) -> None:
        if self.overbooking is not None and self._entry(reservation) is not None:
            run_s = self._submissions[reservation.workspace.name].run_s
            self.overbooking.show_ups.note(run_s > 0)
        super()._reservation_ends(reservation, start_s)


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
