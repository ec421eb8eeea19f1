"""The virtual world: a heap of events, and the production scheduler that decides about them.

Events at one instant happen in a fixed order: what ends, what breaks, what is handed in,
then the queue is looked at, then what begins. Ties go by the order in which events were
made, so a run depends on its inputs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from outrider.core.besteffort.board import BestEffortRun
from outrider.core.besteffort.suspension import Segment, instant_of
from outrider.core.images.pools import Stay
from outrider.core.model import LeasePiece, Node, Reservation, Transfer, Workspace
from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import BookEntry, ReservationPlan
from outrider.core.scheduler import Decided
from outrider.sim.faults import Fault, LinkFault, NodeFault
from outrider.sim.setup import Setup
from outrider.sim.workload.options.submissions import options_here, reserve
from outrider.sim.workload.trace import Trace, TraceSubmission, best_effort_of

if TYPE_CHECKING:
    from outrider.core.reservations.preempting import YieldedLease


class EventOrder(IntEnum):
    """What comes first among events at the same instant."""

    END = 0
    FAULT = 1
    SUBMIT = 2
    SCHEDULE = 3
    BEGIN = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    """A best-effort run as it really was."""

    workspace: str
    index: int
    submit_s: int
    placed_s: int
    ready_s: int
    segments: tuple[Segment, ...]

    @property
    def start_s(self) -> int:
        return self.segments[0].start_s

    @property
    def end_s(self) -> int:
        return self.segments[-1].end_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """What a reservation cost, or would have cost: None without prices, or without a place for it."""

    workspace: str
    price: int | None
    is_accepted: bool
    is_too_dear: bool = False


@dataclass(slots=True)
class SimulationResult:
    """Everything a simulation found out."""

    nodes: tuple[Node, ...]
    workspaces: dict[str, Workspace] = field(default_factory=dict)
    """What was handed in, as this site ran it."""
    done: list[FinishedRun] = field(default_factory=list)
    kept: list[Reservation] = field(default_factory=list)
    refused: list[tuple[TraceSubmission, Rejected]] = field(default_factory=list)
    impossible: list[TraceSubmission] = field(default_factory=list)
    late: list[Reservation] = field(default_factory=list)
    """Kept, but their images were not all there when they began."""
    broken: list[Reservation] = field(default_factory=list)
    """Lost with a node, and nothing else could take their place."""
    cancelled: list[TraceSubmission] = field(default_factory=list)
    """Taken back before they were over; a reservation that had begun is `kept` until then, too."""
    offers: list[Offer] = field(default_factory=list)
    """What was answered to each reservation that was asked for, in that order."""
    yielded: list[Reservation] = field(default_factory=list)
    """Reservations that gave up their nodes for others; what was left of them was best effort."""
    moved_leases: int = 0
    """How often a deadline lease was given another place for another request."""
    event_delays_s: dict[str, int] = field(default_factory=dict)
    """Of open leases whose event came: after how long they began. The others are `without_event`."""
    without_event: list[str] = field(default_factory=list)
    lost_runs: int = 0
    """Best-effort runs that had to begin again because a node failed."""
    stays: list[Stay] = field(default_factory=list)
    moved_bytes: int = 0
    transfers: int = 0
    begun_s: dict[int, int] = field(default_factory=dict)
    arrived_s: dict[int, int] = field(default_factory=dict)
    """When each transfer for a reservation began, and when each was over, by its number."""
    end_s: int = 0


class Simulation:
    """One run of a trace on a site."""

    def __init__(
        self, setup: Setup, nodes: tuple[Node, ...], trace: Trace, faults: Sequence[Fault] = ()
    ) -> None:
        self.setup = setup
        self.scheduler = setup.scheduler(nodes)
        self.outcome = SimulationResult(nodes)
        self.now_s = 0
        self._heap: list[tuple[int, int, int, Callable[..., None], tuple[object, ...]]] = []
        self._sequence = 0
        self._scheduled_at_s: int | None = None
        self._submissions: dict[str, TraceSubmission] = {}
        self._links_at_s: int | None = None
        for whole in trace.submissions:
            parts = tuple(self._as_run_here(part) for part in whole.parts())
            for submission in parts:
                name = submission.workspace.name
                if name in self._submissions:
                    raise ValueError(f"trace {trace.name}: two workspaces are named {name}")
                self._submissions[name] = submission
                self.outcome.workspaces[name] = submission.workspace
                if submission.cancel_s is not None:
                    self._at(submission.cancel_s, EventOrder.SUBMIT, self._cancel, submission)
            if len(parts) > 1:
                self._at(whole.at_s, EventOrder.SUBMIT, self._submit_bundle, parts, bool(whole.roles))
            elif whole.open_until_s is not None:
                self._at(whole.at_s, EventOrder.SUBMIT, self._submit_open, parts[0])
            else:
                self._at(whole.at_s, EventOrder.SUBMIT, self._submit, parts[0])
        self._slow = [fault for fault in faults if isinstance(fault, LinkFault)]
        self._away: dict[str, list[NodeFault]] = {}
        for fault in faults:
            if isinstance(fault, NodeFault):
                self._away.setdefault(fault.node, []).append(fault)
                self._at(fault.at_s, EventOrder.FAULT, self._node_fails, fault.node)
                self._at(fault.until_s, EventOrder.FAULT, self._node_returns, fault.node)

    def run(self) -> SimulationResult:
        """Until nothing more happens."""
        while self._heap:
            self.now_s, _, _, happen, arguments = heappop(self._heap)
            happen(*arguments)
        outcome = self.outcome
        outcome.stays = self.scheduler.book.pools.close() + self.scheduler.board.private
        outcome.end_s = self.now_s
        return outcome

    def _as_run_here(self, submission: TraceSubmission) -> TraceSubmission:
        """The submission with what this site makes of it: stretched, and without its image."""
        setup, workspace = self.setup, submission.workspace
        if not setup.has_images:
            workspace = replace(workspace, image=None)
        if submission.options:
            submission = replace(submission, options=options_here(submission.options, setup))
        if submission.user and not workspace.owner.user:
            workspace = replace(workspace, owner=replace(workspace.owner, user=submission.user))
        if setup.slowdown_percent:
            workspace = replace(workspace, duration_s=setup.stretched_s(workspace.duration_s))
            run_s = min(workspace.duration_s, setup.stretched_s(submission.run_s))
            return replace(submission, workspace=workspace, run_s=run_s)
        return submission if workspace is submission.workspace else replace(submission, workspace=workspace)

    def _at(self, at_s: int, order: EventOrder, happen: Callable[..., None], *arguments: object) -> None:
        self._sequence += 1
        heappush(self._heap, (at_s, order, self._sequence, happen, arguments))

    def _submit(self, submission: TraceSubmission) -> None:
        workspace = submission.workspace
        if workspace.is_best_effort:
            if self.scheduler.submit(workspace, self.now_s):
                self._wake()
            else:
                self.outcome.impossible.append(submission)
            return
        answer, submission = reserve(self.scheduler, submission, self.now_s)
        self._submissions[workspace.name] = submission
        self.outcome.workspaces[workspace.name] = submission.workspace
        self._note_offer(
            submission, answer.price, isinstance(answer.admission, ReservationPlan), answer.is_too_dear
        )
        if isinstance(answer.admission, Rejected):
            self.outcome.refused.append((submission, answer.admission))
            return
        self._accepted(workspace.name, answer.moved)
        self._follow_leases(answer)

    def _follow_leases(self, answer: Decided) -> None:
        """Who has another place for the sake of what was accepted, and who yields."""
        for lease in answer.moved_leases:
            self.outcome.moved_leases += 1
            self._expect(lease.reservation, self._submissions[lease.reservation.workspace.name])
        for yielded in answer.yielded:
            self._yields(yielded)

    def _submit_bundle(self, parts: tuple[TraceSubmission, ...], is_one_start: bool) -> None:
        """All of these reservations or none."""
        decided = self.scheduler.reserve_together(
            [part.workspace for part in parts], self.now_s, is_one_start=is_one_start
        )
        rejected, moved = decided.answer.rejected, decided.moved
        for part in parts:
            price = decided.prices.get(part.workspace.name)
            self._note_offer(part, price, rejected is None, decided.is_too_dear)
        if rejected is not None:
            self.outcome.refused += [(part, rejected) for part in parts]
            return
        for reservation in decided.answer.reservations:
            self._accepted(reservation.workspace.name, moved)
            moved = ()

    def _note_offer(
        self, submission: TraceSubmission, price: int | None, is_accepted: bool, is_too_dear: bool
    ) -> None:
        name = submission.workspace.name
        offer = Offer(workspace=name, price=price, is_accepted=is_accepted, is_too_dear=is_too_dear)
        self.outcome.offers.append(offer)

    def _submit_open(self, submission: TraceSubmission) -> None:
        """Nodes and image ready until an event comes."""
        assert submission.open_until_s is not None
        workspace, until_s = submission.workspace, submission.open_until_s
        answer = self.scheduler.reserve_open(workspace, until_s, submission.within_s, self.now_s)
        self._note_offer(
            submission, answer.price, isinstance(answer.admission, ReservationPlan), answer.is_too_dear
        )
        if isinstance(answer.admission, Rejected):
            self.outcome.refused.append((submission, answer.admission))
            return
        for run in answer.moved:
            self._follow(run)
        self._follow_leases(answer)
        event_s = submission.trigger_s
        if event_s is not None and max(self.now_s, workspace.start_s or 0) <= event_s <= until_s:
            self._at(event_s, EventOrder.SUBMIT, self._event, submission)
        # An event at the very last instant still counts.
        self._at(until_s, EventOrder.BEGIN, self._no_event, workspace.name)
        self._watch_links()
        self._wake()

    def _event(self, submission: TraceSubmission) -> None:
        """The event of an open lease has come."""
        name = submission.workspace.name
        if name not in self.scheduler.open_leases:
            return
        start_s, moved = self.scheduler.trigger(name, self.now_s)
        self.outcome.event_delays_s[name] = start_s - self.now_s
        for run in moved:
            self._follow(run)
        reservation = self.scheduler.book.entries[name].reservation
        self._at(start_s, EventOrder.BEGIN, self._reservation_begins, reservation)
        end_s = start_s + submission.run_s
        self._at(end_s, EventOrder.END, self._reservation_ends, reservation, start_s)
        self._wake()

    def _no_event(self, name: str) -> None:
        if name in self.scheduler.open_leases:
            self.scheduler.end_reservation(name, self.now_s)
            self.outcome.without_event.append(name)
            self._wake()

    def _yields(self, yielded: YieldedLease) -> None:
        """A reservation lost its place: what it has not done by then waits as best effort."""
        before, until_s = yielded.before, yielded.until_s
        self.outcome.yielded.append(before)
        name, workspace = before.workspace.name, before.workspace
        submission = self._submissions[name]
        entry = self.scheduler.book.entries.get(name)
        done_s = sum(max(0, min(end_s, until_s) - start_s) for start_s, end_s in before.spans)
        if entry is not None and done_s >= submission.run_s:
            # It would have been over by then anyhow.
            self._at(before.start_s + submission.run_s, EventOrder.END, self._cut, entry.reservation, None)
            return
        kept_s = done_s if self.setup.suspension.is_allowed else 0
        rest = best_effort_of(workspace, max(1, workspace.duration_s - kept_s))
        run_s = min(rest.duration_s, max(0, submission.run_s - kept_s))
        again = replace(submission, workspace=rest, run_s=run_s, at_s=self.now_s)
        if entry is not None:
            self._at(until_s, EventOrder.END, self._cut, entry.reservation, again)
            return
        if before.start_s < self.now_s:
            self.outcome.kept.append(replace(before, end_s=self.now_s))
        self._queue_again(again)

    def _cut(self, reservation: Reservation, again: TraceSubmission | None) -> None:
        entry = self._entry(reservation)
        if entry is not None:
            self.outcome.kept.append(replace(reservation, end_s=self.now_s))
            self.scheduler.end_reservation(reservation.workspace.name, self.now_s)
            self._wake()
        if again is not None:
            self._queue_again(again)

    def _queue_again(self, again: TraceSubmission) -> None:
        self._submissions[again.workspace.name] = again
        self.outcome.workspaces[again.workspace.name] = again.workspace
        if self.scheduler.submit(again.workspace, self.now_s):
            self._wake()
        else:
            self.outcome.impossible.append(again)

    def _cancel(self, submission: TraceSubmission) -> None:
        """Its user takes it back, if it is not over."""
        workspace = submission.workspace
        if workspace.is_best_effort:
            is_there = self.scheduler.queue.cancel(workspace.name, self.now_s)
        else:
            entry = self.scheduler.book.entries.get(workspace.name)
            is_there = entry is not None
            if entry is not None:
                if entry.reservation.start_s < self.now_s:
                    self.outcome.kept.append(replace(entry.reservation, end_s=self.now_s))
                self.scheduler.end_reservation(workspace.name, self.now_s)
        if is_there:
            self.outcome.cancelled.append(submission)
            self._watch_links()
            self._wake()

    def _accepted(self, name: str, moved: Sequence[BestEffortRun]) -> None:
        """A reservation begins and ends; the runs that made way for it go on elsewhere or later."""
        self._expect(self.scheduler.book.entries[name].reservation, self._submissions[name])
        for run in moved:
            self._follow(run)
        self._watch_links()
        self._wake()

    def _expect(self, reservation: Reservation, submission: TraceSubmission) -> None:
        """A reservation begins and ends where it is now; what was expected of an earlier place is void."""
        self._at(reservation.start_s, EventOrder.BEGIN, self._reservation_begins, reservation)
        pieces = reservation.pieces or (LeasePiece(reservation.start_s, reservation.end_s),)
        end_s = instant_of(pieces, submission.run_s)
        self._at(end_s, EventOrder.END, self._reservation_ends, reservation)

    def _entry(self, reservation: Reservation) -> BookEntry | None:
        """What the book has of it, unless it was lost or promised anew since."""
        entry = self.scheduler.book.entries.get(reservation.workspace.name)
        return entry if entry is not None and entry.reservation is reservation else None

    def _reservation_begins(self, reservation: Reservation) -> None:
        entry = self._entry(reservation)
        if entry is not None and any(life.transfer is not None for _, life in entry.lives):
            self.outcome.late.append(reservation)

    def _reservation_ends(self, reservation: Reservation, start_s: int | None = None) -> None:
        if self._entry(reservation) is None:
            return
        begun_s = reservation.start_s if start_s is None else start_s
        self.outcome.kept.append(replace(reservation, start_s=begun_s, end_s=self.now_s))
        self.scheduler.end_reservation(reservation.workspace.name, self.now_s)
        self._wake()

    def _watch_links(self) -> None:
        """Look again when the next transfer begins or ends."""
        at_s = self.scheduler.book.links.next_event_s(self.now_s)
        if at_s is not None and at_s != self._links_at_s:
            self._links_at_s = at_s
            self._at(max(at_s, self.now_s), EventOrder.END, self._links_move, at_s)

    def _links_move(self, at_s: int) -> None:
        if at_s != self._links_at_s:
            return
        self._links_at_s = None
        book = self.scheduler.book
        for event in book.links.advance(self.now_s):
            transfer = event.transfer
            if event.has_begun:
                book.transfer_begun(transfer.number, self.now_s)
                self.outcome.transfers += 1
                self.outcome.begun_s[transfer.number] = self.now_s
                self.outcome.moved_bytes += transfer.image.size_bytes
                self._stall(transfer)
            else:
                book.transfer_done(transfer.number, self.now_s)
                self.outcome.arrived_s[transfer.number] = self.now_s
                self._wake()
        self._watch_links()

    def _wake(self) -> None:
        """Look at the queue, if that may change anything, at the next tick."""
        if not self.scheduler.queue.is_worth_a_look:
            return
        quantum_s = self.setup.quantum_s
        tick_s = -(-self.now_s // quantum_s) * quantum_s
        if self._scheduled_at_s is None or tick_s < self._scheduled_at_s:
            self._scheduled_at_s = tick_s
            self._at(tick_s, EventOrder.SCHEDULE, self._schedule)

    def _schedule(self) -> None:
        if self._scheduled_at_s != self.now_s:
            return
        self._scheduled_at_s = None
        placed = self.scheduler.schedule(self.now_s)
        for run in placed:
            self._follow(run)
        if any(run.transfers for run in placed):
            self._watch_links()
        if self.scheduler.queue.waiting and self.setup.quantum_s > 1:
            self._scheduled_at_s = self.now_s + self.setup.quantum_s
            self._at(self._scheduled_at_s, EventOrder.SCHEDULE, self._schedule)

    def _follow(self, run: BestEffortRun) -> None:
        """A run begins and ends where its segments say now; what was expected before is void."""
        if not run.has_begun:
            self._at(run.start_s, EventOrder.BEGIN, self._run_begins, run, run.changes)
        run_s = self._submissions[run.workspace.name].run_s
        end_s = min(run.end_s, run.start_s + run_s) if run.is_slice else instant_of(run.segments, run_s)
        # What runs for no time begins before it ends.
        order = EventOrder.END if end_s > run.start_s else EventOrder.BEGIN
        self._at(end_s, order, self._run_ends, run, run.changes)

    def _stall(self, transfer: Transfer) -> None:
        """A transfer that begins on a slow link takes longer than anybody planned."""
        for fault in self._slow:
            if fault.at_s <= self.now_s < fault.until_s:
                lost_s = transfer.duration_s * fault.percent // 100
                self.scheduler.book.links.stall(lost_s, has_deadline=transfer.deadline_s is not None)
                self.scheduler.book.expect_arrivals(self.now_s)

    def _node_fails(self, name: str) -> None:
        lost, broken = self.scheduler.node_failed(name, self.now_s)
        self.outcome.lost_runs += len(lost)
        for reservation in broken:
            self._broken(reservation)
        self._wake()

    def _broken(self, reservation: Reservation) -> None:
        """Promise it again on other nodes if it has not begun; else it is lost."""
        workspace = reservation.workspace
        self.outcome.late = [late for late in self.outcome.late if late is not reservation]
        if reservation.start_s >= self.now_s:
            anew = replace(
                workspace,
                start_s=reservation.start_s,
                finish_by_s=None,
                is_immediate=False,
                ready_within_s=None,
            )
            answer = self.scheduler.reserve(anew, self.now_s, tells_earliest=False)
            if isinstance(answer.admission, ReservationPlan):
                self._accepted(workspace.name, answer.moved)
                return
        self.outcome.broken.append(reservation)

    def _node_returns(self, name: str) -> None:
        if any(fault.at_s <= self.now_s < fault.until_s for fault in self._away.get(name, ())):
            return
        self.scheduler.node_returned(name)
        self._wake()

    def _is_void(self, run: BestEffortRun, changes: int) -> bool:
        return run.changes != changes or self.scheduler.board.runs.get(run.name) is not run

    def _run_begins(self, run: BestEffortRun, changes: int) -> None:
        if self._is_void(run, changes):
            return
        ready_s = self.scheduler.queue.image_ready_s(run, self.now_s)
        if ready_s <= self.now_s:
            self.scheduler.queue.begin(run, self.now_s)
            if self.scheduler.queue.frees_place(run):
                self._wake()
        elif self.scheduler.queue.postpone(run, ready_s, self.now_s):
            self._follow(run)
        else:
            self._wake()

    def _slice_ends(self, run: BestEffortRun) -> None:
        """Of a job that is not over: it waits again."""
        self.scheduler.end_slice(run, self.now_s)
        self._wake()

    def _run_ends(self, run: BestEffortRun, changes: int) -> None:
        if self._is_void(run, changes):
            return
        if run.is_slice and self.now_s < run.start_s + self._submissions[run.workspace.name].run_s:
            self._slice_ends(run)
            return
        first = run.segments[0]
        self.scheduler.queue.finish(run, self.now_s)
        segments = run.segments or (first._replace(end_s=first.start_s, resume_s=0, suspend_s=0, disk=()),)
        submission = self._submissions[run.workspace.name]
        self.outcome.done.append(
            FinishedRun(
                workspace=run.workspace.name,
                index=run.index,
                submit_s=submission.at_s,
                placed_s=run.placed_s,
                ready_s=run.ready_s,
                segments=segments,
            )
        )
        self._wake()
