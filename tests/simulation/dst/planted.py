"""Faults planted in the service, to see whether the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from outrider.core.besteffort.jobs.requeueing import RequeueTerms
from outrider.core.reservations.book import Book
from outrider.core.reservations.renegotiation import begin_waiting
from outrider.metadata.joblines import parse_job_lines
from outrider.rms.base import JobState, RmsReservation
from outrider.service.answers.decision import Decision
from outrider.service.desk.desk import Desk
from outrider.service.desk.dispatch import RequestDispatch
from outrider.service.desk.jobs.interruption.yielding import JobYielding
from outrider.service.desk.jobs.job import JobEntry, Stage
from outrider.service.desk.jobs.release import JobRelease
from outrider.service.desk.jobs.transfers import BestEffortTransfers
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.state import Need, NodeStatus
from outrider.service.desk.reconcile.reconciler import SERVICE, Reconciler
from outrider.service.desk.reservations.admission import ReservationAdmission
from outrider.service.desk.reservations.alarms import ReservationAlarms
from outrider.service.desk.reservations.copies import ReservationCopies
from outrider.service.desk.reservations.execution import PlanExecution
from outrider.service.desk.reservations.lifecycle import ReservationLifecycle
from outrider.service.desk.reservations.repair import ReservationRepair
from outrider.service.desk.state.documents import Document, document_of
from outrider.service.desk.state.site import Site
from outrider.service.requests import Caller, Reserve
from outrider.store.errors import StoreError
from outrider.store.sql.writes import SqlPromiseWrites

Plant = Callable[[pytest.MonkeyPatch], None]


def answers_before_writing(patch: pytest.MonkeyPatch) -> None:
    """Whoever asked is answered although what was answered could not be written."""
    flush = Desk._flush

    def hopeful(self: Desk) -> None:
        try:
            flush(self)
        except StoreError as error:
            self._broken(error)

    patch.setattr(Desk, "_flush", hopeful)


def forgets_unpin(patch: pytest.MonkeyPatch) -> None:
    """Nodes are not told when a reservation needs nothing any more, and pins never end by themselves."""
    drop = NodeOrders.drop

    def quiet(self: NodeOrders, node: str, owner: str, now_s: int, *, is_stopped: bool = False) -> None:
        drop(self, node, owner, now_s, is_stopped=is_stopped)
        status = self.statuses.get(node)
        if status is not None:
            status.unpins.clear()

    need = NodeOrders.need

    def for_long(self: NodeOrders, node: str, wanted: Need, now_s: int) -> None:
        wanted.until_s += 100_000
        need(self, node, wanted, now_s)

    patch.setattr(NodeOrders, "drop", quiet)
    patch.setattr(NodeOrders, "need", for_long)
    # What is left pinned is found out at a comparison, too: that has to fail as well.
    patch.setattr(NodeOrders, "_forget_others", lambda self, status, now_s: None)


def ignores_lost_reservation(patch: pytest.MonkeyPatch) -> None:
    """What the batch system has lost is not put back."""

    def missing(self: Reconciler, live: object) -> Iterator[str]:
        return iter(())

    patch.setattr(Reconciler, "_missing", missing)


def plans_for_good(patch: pytest.MonkeyPatch) -> None:
    """A plan is accepted as a reservation would be."""

    def plan(self: ReservationAdmission, wish: object, program: object) -> Decision:
        return self.reserve(wish, program)  # type: ignore[arg-type,return-value]

    patch.setattr(ReservationAdmission, "plan", plan)


def forgets_keys(patch: pytest.MonkeyPatch) -> None:
    """The same request with the same key is decided anew."""
    patch.setattr(RequestDispatch, "_recalled", lambda self, caller, request: None)
    patch.setattr(RequestDispatch, "_remember", lambda self, caller, request, decision: None)


def loses_transfers_at_birth(patch: pytest.MonkeyPatch) -> None:
    """After a start nodes are not told what they are to have."""
    patch.setattr(PlanExecution, "take_up", lambda self: None)


def believes_every_pin(patch: pytest.MonkeyPatch) -> None:
    """A node that does not have the image is taken for one that has."""
    result = NodeOrders._result

    def believing(
        self: NodeOrders, status: NodeStatus, need: Need, order: object, code: str, *rest: object
    ) -> Iterable[object]:
        return result(self, status, need, order, "", *rest)  # type: ignore[arg-type]

    patch.setattr(NodeOrders, "_result", believing)


def gives_no_alarm(patch: pytest.MonkeyPatch) -> None:
    """What is endangered is not reported."""
    patch.setattr(ReservationAlarms, "endanger", lambda self, live, words: None)


def never_mends(patch: pytest.MonkeyPatch) -> None:
    """A copy that is lost is not brought again."""
    patch.setattr(ReservationCopies, "lose", lambda self, node, key, why: None)
    patch.setattr(ReservationRepair, "mend", lambda self: None)


def waits_for_lost_looks(patch: pytest.MonkeyPatch) -> None:
    """A call to the batch system that is never answered is waited for."""
    patch.setattr("outrider.service.desk.batch.effect_queue.LOST_CALL_S", 1 << 40)
    patch.setattr("outrider.service.desk.nodes.orders.LOST_CALL_S", 1 << 40)


def keeps_memory_after_failure(patch: pytest.MonkeyPatch) -> None:
    """What could not be written stays in memory."""

    def broken(self: Desk, error: Exception) -> None:
        pass

    patch.setattr(Desk, "_broken", broken)


def forgets_the_link(patch: pytest.MonkeyPatch) -> None:
    """The store takes the reservations, and a restart forgets what is left of the link."""
    load = Site.__init__

    def forgetting(self: Site, *arguments: object, **named: object) -> None:
        load(self, *arguments, **named)  # type: ignore[arg-type]
        for number in [each.number for each, _ in self.book.link.latest_starts()]:
            self.book.link.remove(number)

    patch.setattr(Site, "__init__", forgetting)


def ends_too_early(patch: pytest.MonkeyPatch) -> None:
    """A reservation is over when it begins."""
    patch.setattr(ReservationLifecycle, "_begin", lambda self, live: self._end(live))


def cancels_for_everybody(patch: pytest.MonkeyPatch) -> None:
    """A reservation that was changed elsewhere is given up."""

    def ours(self: Reconciler, sight: object) -> Iterator[str]:
        for live in list(self._site.live.values()):
            if not live.is_confirmed:
                self._lifecycle.cancel(live, SERVICE, "it is not confirmed")
        return iter(())

    patch.setattr(Reconciler, "_ours", ours)


def reserves_half_of_it(patch: pytest.MonkeyPatch) -> None:
    """The batch system is told other nodes than were promised."""

    def wrong(**fields: object) -> RmsReservation:
        nodes = fields["nodes"]
        assert isinstance(nodes, tuple)
        fields["nodes"] = nodes[:1]
        return RmsReservation(**fields)  # type: ignore[arg-type]

    patch.setattr("outrider.service.desk.batch.reservation_effects.RmsReservation", wrong)
    patch.setattr("outrider.service.desk.reconcile.reconciler._agrees", lambda there, live, now_s: True)


def forgets_decisions(patch: pytest.MonkeyPatch) -> None:
    """Alarms are not written down."""
    patch.setattr(SqlPromiseWrites, "decide", lambda self, decision: 0)


def releases_before_the_image(patch: pytest.MonkeyPatch) -> None:
    """A job is released as soon as nodes are chosen for it."""

    def settle(self: JobRelease, entry: JobEntry) -> None:
        if entry.stage in (Stage.STAGING, Stage.STAGED) and entry.job.state in (
            JobState.HELD,
            JobState.PENDING,
        ):
            self._release(entry, self._jobs.names(self._jobs.usable(set(entry.copies))))

    patch.setattr(JobRelease, "_settle", settle)


def brings_jobs_nothing(patch: pytest.MonkeyPatch) -> None:
    """Best effort never gets the link."""
    patch.setattr(BestEffortTransfers, "_begin_all", lambda self: None)


def pins_for_jobs_for_ever(patch: pytest.MonkeyPatch) -> None:
    """What was kept for a job stays when that is over."""
    patch.setattr(BestEffortTransfers, "part", lambda self, entry, node, is_stopped: None)
    patch.setattr(NodeOrders, "_forget_others", lambda self, status, now_s: None)


def forgets_held_jobs(patch: pytest.MonkeyPatch) -> None:
    """A job is let go once: if that was lost, or the job comes back, it is not let go again."""
    carry = JobRelease._release

    def once(self: JobRelease, entry: JobEntry, nodes: tuple[str, ...]) -> None:
        released = vars(self).setdefault("released_before", set())
        if entry.key not in released:
            released.add(entry.key)
            carry(self, entry, nodes)

    patch.setattr(JobRelease, "_release", once)


def crowds_out_deadlines(patch: pytest.MonkeyPatch) -> None:
    """Best effort begins whenever it likes, and takes the link as if it had it for itself."""
    patch.setattr(BestEffortTransfers, "_near", lambda self: [])
    patch.setattr(BestEffortTransfers, "_rate", lambda self, cargo: self.lane.rate_bytes_per_s)


def does_not_slow_down(patch: pytest.MonkeyPatch) -> None:
    """Best effort that has begun goes on as before when a deadline needs the link."""
    patch.setattr(BestEffortTransfers, "_rate", lambda self, cargo: self.lane.rate_bytes_per_s)


def holds_deadlines_back(patch: pytest.MonkeyPatch) -> None:
    """A deadline takes an image through nodes where best effort is held back."""
    patch.setattr("outrider.service.desk.nodes.orders.is_to_begin_anew", lambda status, need: False)


def slows_both_down(patch: pytest.MonkeyPatch) -> None:
    """A node to which a deadline and a job bring the same image takes it in with the job's rate."""
    patch.setattr("outrider.service.desk.nodes.orders.rate_of", lambda status, need: need.rate_bytes_per_s)


def takes_all_for_preemptible(patch: pytest.MonkeyPatch) -> None:
    """A job makes way that has never said that it can."""
    patch.setattr(
        "outrider.service.desk.nodes.preemptible_jobs.parse_job_lines",
        lambda text: replace(parse_job_lines(text), is_preemptible=True),
    )


def lets_nobody_go(patch: pytest.MonkeyPatch) -> None:
    """Reservations count on nodes whose jobs nobody tells to go."""
    patch.setattr(JobYielding, "_tell", lambda self, live, job: None)


def requeues_by_and_by(patch: pytest.MonkeyPatch) -> None:
    """A job is requeued some seconds after the reservation's start."""
    patch.setattr(RequeueTerms, "latest_requeue_s", lambda self, start_s: start_s + 3)


def starts_late_after_events(patch: pytest.MonkeyPatch) -> None:
    """An open reservation begins three minutes later than it could when its event comes."""

    def late(book: Book, name: str, start_s: int, end_s: int, now_s: int) -> None:
        latest_s = book.entries[name].end_s
        begin_waiting(book, name, min(start_s + 180, latest_s - 1), min(end_s + 180, latest_s), now_s)

    patch.setattr("outrider.service.desk.leases.open_reservations.begin_waiting", late)


def cancels_what_may_not_yield(patch: pytest.MonkeyPatch) -> None:
    """Reservations make way for others whose users have never said that they may."""

    def yielding(request: Reserve, caller: Caller) -> Document:
        return replace(document_of(request, caller), may_yield=True)

    patch.setattr("outrider.service.desk.state.wishes.document_of", yielding)


def opens_private_images(patch: pytest.MonkeyPatch) -> None:
    """Nodes are not told that an image is for its user alone."""

    def opened(request: Reserve, caller: Caller) -> Document:
        return replace(document_of(request, caller), readers=None)

    patch.setattr("outrider.service.desk.state.wishes.document_of", opened)


PLANTS: tuple[Plant, ...] = (
    takes_all_for_preemptible,
    answers_before_writing,
    forgets_unpin,
    ignores_lost_reservation,
    plans_for_good,
    forgets_keys,
    loses_transfers_at_birth,
    believes_every_pin,
    gives_no_alarm,
    never_mends,
    waits_for_lost_looks,
    keeps_memory_after_failure,
    forgets_the_link,
    ends_too_early,
    cancels_for_everybody,
    reserves_half_of_it,
    forgets_decisions,
    releases_before_the_image,
    brings_jobs_nothing,
    pins_for_jobs_for_ever,
    forgets_held_jobs,
)

LATE_PLANTS: tuple[Plant, ...] = (
    crowds_out_deadlines,
    does_not_slow_down,
    holds_deadlines_back,
    slows_both_down,
    lets_nobody_go,
    requeues_by_and_by,
)

KIND_PLANTS: tuple[Plant, ...] = (
    starts_late_after_events,
    cancels_what_may_not_yield,
    opens_private_images,
)
"""Found in worlds with leases of all kinds and private images."""
