"""Reservations and best effort together: what a service or a simulator talks to.

Events go in (a request, a tick, something began or ended or broke) and decisions come out
(runs with nodes and segments, accepted and refused reservations). Time is what the caller
says it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from outrider.core.besteffort.board import BestEffortRun, QueueBoard, QueueRules
from outrider.core.besteffort.queue import BestEffortQueue
from outrider.core.besteffort.suspension_notice import give_back, hold_nodes
from outrider.core.besteffort.yielding import gentlest
from outrider.core.model import Reservation, Workspace
from outrider.core.reservations.admission import Accepted, Policy, Rejected, admit, assess
from outrider.core.reservations.book import Book

FORGET_EVERY_S = 6 * 3600
"""How often the slot tables drop their past, which nobody asks for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """What became of a request for a reservation, and which runs had to move for it."""

    admission: Accepted | Rejected
    moved: tuple[BestEffortRun, ...] = ()


class Scheduler:
    """One site's book of reservations and queue of best effort."""

    def __init__(self, book: Book, rules: QueueRules, policy: Policy | None = None) -> None:
        self.book = book
        self.board = QueueBoard(book, rules)
        self.queue = BestEffortQueue(self.board)
        self._policy = policy
        self._forgotten_s = 0

    def what_if(self, workspace: Workspace, now_s: int) -> Accepted | Rejected:
        """The answer that `reserve` would give now."""
        self.book.links.pass_until(now_s)
        holds = hold_nodes(self.board, now_s)
        choice = partial(gentlest, self.board, now_s=now_s)
        answer = assess(self.book, workspace, now_s, policy=self._policy, choice=choice)
        give_back(self.board, holds)
        return answer

    def reserve(self, workspace: Workspace, now_s: int, *, tells_earliest: bool = True) -> Decided:
        """Accept or refuse a reservation; if accepted, best effort makes way for it."""
        self.book.links.pass_until(now_s)
        holds = hold_nodes(self.board, now_s)
        choice = partial(gentlest, self.board, now_s=now_s)
        admission = admit(
            self.book, workspace, now_s, policy=self._policy, tells_earliest=tells_earliest, choice=choice
        )
        give_back(self.board, holds)
        if isinstance(admission, Rejected):
            return Decided(admission=admission)
        plan = admission.plan
        self.book.expect_arrivals(now_s)
        need = self.book.entries[workspace.name].need
        moved = self.queue.make_room(plan.fits, need, plan.start_s, plan.end_s, now_s)
        return Decided(admission=admission, moved=tuple(moved))

    def end_reservation(self, name: str, now_s: int) -> None:
        """A reservation is cancelled, or its user is done before its end, or it is over."""
        entry = self.book.entries[name]
        start_s, end_s = max(entry.reservation.start_s, now_s), entry.end_s
        self.queue.give_back(entry.fits, entry.need, start_s, end_s)
        self.book.cancel(name, now_s)

    def node_failed(self, name: str, now_s: int) -> tuple[list[BestEffortRun], list[Reservation]]:
        """A node is gone: the runs that wait again, and the reservations that lost their place.

        Those reservations are out of the book; the caller, who made the promise, decides what to try.
        """
        node = self.book.timeline.number_of[name]
        self.book.available &= ~(1 << node)
        runs = [run for run in self.board.runs.values() if node in run.nodes_from(now_s)]
        for run in sorted(runs, key=lambda run: (run.order, run.index)):
            self.queue.abandon(run, now_s)
        broken = [
            entry.reservation
            for entry in self.book.entries.values()
            if entry.end_s > now_s and any(chosen.node == node for chosen in entry.fits)
        ]
        broken.sort(key=lambda reservation: (reservation.start_s, reservation.workspace.name))
        for reservation in broken:
            self.end_reservation(reservation.workspace.name, now_s)
        return runs, broken

    def node_returned(self, name: str) -> None:
        """A node can be used again."""
        self.book.available |= 1 << self.book.timeline.number_of[name]
        self.queue.gain_node()

    def submit(self, workspace: Workspace) -> bool:
        """Queue a best-effort workspace; False if the site could never run it."""
        if not self.queue.fits_site(workspace):
            return False
        self.queue.submit(workspace)
        return True

    def schedule(self, now_s: int) -> list[BestEffortRun]:
        """Place what can be placed now."""
        self.book.pools.settle(now_s)
        if now_s - self._forgotten_s > FORGET_EVERY_S:
            self._forgotten_s = now_s
            self.book.timeline.forget_before(now_s)
            self.board.everything.forget_before(now_s)
        return self.queue.schedule(now_s)
