"""All that the desk knows: the book, the reservations that are not over, the transfers under way.

It is loaded from the store and is thrown away and loaded again when a write has failed, since
what is not on the disk has not happened. Writes are gathered while an event is dealt with and are
one transaction at its end, before anybody is told anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from outrider.core.images.pools import Lingering, Pools
from outrider.core.leases.adaptive import AdaptiveShare
from outrider.core.links.deadline_network import DeadlineNetwork
from outrider.core.links.links import ExclusiveLinks
from outrider.core.model import Image, LeaseOwner, Node, Reservation, Transfer
from outrider.core.reservations.book import Book, Shipping, Terms
from outrider.core.restart.restore import Lost
from outrider.core.restart.snapshot import KeptTransfer, keep_done, keep_transfers
from outrider.core.switch.use import PackingByUse
from outrider.rms.base import RmsJob
from outrider.service.desk.state.documents import (
    Document,
    Record,
    as_written,
    read_document,
    read_record,
    without_transfers,
    write_document,
    write_record,
)
from outrider.service.desk.state.link_use import LinkUse
from outrider.service.desk.state.node_list import as_now
from outrider.service.desk.state.refusal_log import Noted, RefusalLog
from outrider.service.desk.state.user_usage import UserUsage
from outrider.service.settings import Settings
from outrider.store.loading import load_book
from outrider.store.records import MOST_REASON, Effect, RecordedDecision, ReservationOwner, ReservationRecord
from outrider.store.states import State, TransferState
from outrider.store.store import ProgressWrites, PromiseWrites, Store

Write = Callable[[PromiseWrites], object]
LightWrite = Callable[[ProgressWrites], object]

REFUSED = "the batch system refuses it"
KEPT_BYTES = 1 << 62
"""What lingers in pools is what nodes report: no limit of the book's own beside the pools'."""


@dataclass(slots=True)
class Live:
    """A reservation that is not over."""

    record: ReservationRecord
    document: Document
    kept: Record
    ready: set[str] = field(default_factory=set)
    """The nodes on which its image is known to be, pinned for it."""
    has_begun: bool = False
    """Whether it began, with its image, before now: in the life of an earlier service, or before it grew."""
    is_confirmed: bool = True
    odds_percent: int | None = None
    danger: str = ""
    """Why it is endangered, in words; empty if it is not."""
    spoiled: str = ""
    """Why its image can never be brought, so that nothing is tried any more; until it is changed."""
    is_refused: bool = False
    """Whether the batch system has refused it, and has not taken it since."""
    key: str = ""
    """What the batch system called it when it was seen last."""
    missing_since_s: int | None = None
    unseen: str = ""
    """Why it could not be seen whether its event has come; empty if it could."""
    batch_start_s: int = 0
    """When the batch system starts it, as it was told last, if its event is waited for; 0 if not known."""
    restored: int = 0
    """How often it was put back into a batch system that had lost it."""

    @property
    def name(self) -> str:
        return self.record.reservation.workspace.name

    @property
    def reservation(self) -> Reservation:
        return self.record.reservation

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.record.reservation.nodes

    @property
    def waits(self) -> bool:
        """Whether it is open, and its event has not come."""
        is_open = self.document.open is not None and self.kept.triggered_s is None
        return is_open and not self.record.state.is_final

    @property
    def is_ready(self) -> bool:
        return self.ready.issuperset(self.nodes)

    def grow(self, nodes: set[str]) -> None:
        """It has begun, and gets more nodes that have its image."""
        self.ready |= nodes
        self.has_begun = True

    @property
    def may_begin(self) -> bool:
        """Whether a job in it finds its image wherever it starts."""
        return self.is_ready and self.record.state in (State.READY, State.ACTIVE)


@dataclass(slots=True)
class Moving:
    """A transfer that has begun. `is_aside`: it goes on after its time on the link was over."""

    transfer: Transfer
    begun_s: int
    left: set[str]
    given_up: set[str] = field(default_factory=set)
    """Nodes that nobody waits for any more, although the image has not arrived there."""
    is_aside: bool = False
    rates: list[tuple[int, int]] = field(default_factory=list)
    """Instants, and the bytes that had arrived on the slowest node by then."""
    rate_bytes_per_s: int = 0
    has_planned_rate: bool = True
    """Whether all of it is seen at the rate that was planned with, neither less nor more."""
    judged_s: int | None = None
    link_use: LinkUse | None = None
    """Whether it takes any of the link; None before it was looked at."""
    odds: dict[str, int] = field(default_factory=dict)
    """By reservation, how likely it is that this brings its image in time, in percent."""


class PaddedLinks(ExclusiveLinks):
    """Links on which every transfer for a reservation is given a few seconds beside its bytes."""

    def __init__(self, settings: Settings) -> None:
        network = settings.network
        super().__init__(
            rate_bytes_per_s=settings.deadline_rate_bytes_per_s,
            reserve_s=settings.reserve_s,
            network=None if network is None else DeadlineNetwork(network, reserve_s=settings.reserve_s),
        )
        self._network = network
        self._spread_s = settings.spread_s

    def deadline_duration_s(self, size_bytes: int) -> int:
        return super().deadline_duration_s(size_bytes) + self._spread_s

    def transfer_duration_s(self, image: Image, nodes: tuple[str, ...]) -> int:
        if self._network is None:
            return self.deadline_duration_s(image.size_bytes)
        return self._network.duration_s(image, nodes)


class Site:
    """One site's state in memory, and what is still to be written of it."""

    def __init__(self, store: Store, settings: Settings, nodes: Sequence[Node], now_s: int) -> None:
        self.store = store
        self.settings = settings
        self.refusals = RefusalLog(settings.most_refusals)
        self.now_s = now_s
        terms = Terms(shipping=Shipping(settings.shipping))
        links = PaddedLinks(settings)
        records = [
            each if (now := as_now(each.reservation)) is each.reservation else replace(each, reservation=now)
            for each in store.live_reservations()
        ]
        restored = load_book(
            store,
            nodes,
            terms,
            links=links,
            pools=Pools(nodes, keep_bytes=KEPT_BYTES, rank=_oldest_first),
            live=records,
            now_s=now_s,
        )
        self.book: Book = restored.book
        self.lost: tuple[Lost, ...] = restored.lost
        self.late = restored.late
        self.overfull = restored.overfull
        self.live: dict[str, Live] = {}
        self._owned: dict[int, dict[str, Live]] = {}
        self.counts: Counter[State] = Counter()
        """How many reservations that are not over are in each state."""
        self.holding = UserUsage()
        self.seen_jobs: tuple[RmsJob, ...] = ()
        """All jobs, as the batch system showed them last."""
        self.share: AdaptiveShare | None = None
        """Of reservations, if the site's policies have one that adapts."""
        self.holder_account = ""
        """To which holder jobs are charged, if not to the accounts of their jobs."""
        self.overbooking: PackingByUse | None = None
        """Whether machines count as what they use of processors."""
        self._series_count = 0
        self._next_start_s: int | None = None
        self._is_next_known = False
        self.moving: dict[int, Moving] = {}
        self.stirred: set[str] = set()
        """Reservations that may begin and could not before, perhaps, or the other way round."""
        self.writes = 0
        """How often anything was written: what was found out before may not be so any more."""
        self._writes: list[Write] = []
        self._light_writes: list[LightWrite] = []
        self._touched: set[int] = set()
        self._ended: dict[int, TransferState] = {}
        self._unwritten: set[int] = set()
        """Transfers that were planned and given up within one event: they have never been written."""
        self._done: list[KeptTransfer] = []
        unconfirmed = store.waiting_subjects()
        for record in records:
            live = Live(
                record=record,
                document=read_document(record.document),
                kept=read_record(record.receipt),
                is_confirmed=record.name not in unconfirmed,
            )
            if record.state in (State.READY, State.ACTIVE):
                # As it was before the restart, until a node says otherwise.
                live.ready.update(live.nodes)
                live.has_begun = record.state is State.ACTIVE
                self.stirred.add(live.name)
            self._enter(live)
            self._own(live)
        self.next_number = _next_number(store)

    def _own(self, live: Live) -> None:
        """Let the book know whose a reservation is, which is not written with its place."""
        entry = self.book.entries.get(live.name)
        if entry is not None:
            owner, document = live.record.owner, live.document
            whose = LeaseOwner(user=owner.user, account=owner.account, lease_class=document.lease_class)
            workspace = replace(
                entry.reservation.workspace, may_yield=document.may_yield, is_spread=True, owner=whose
            )
            entry.reservation = replace(entry.reservation, workspace=workspace)

    def pass_to(self, now_s: int) -> None:
        """It is now so late. What somebody gave back a second ago is still in its pool."""
        self.now_s = now_s
        self.book.pools.settle(now_s)

    def forget_past(self) -> None:
        """Drop what the book knows of times that are over."""
        self.book.timeline.forget_before(self.now_s)
        self.book.pools.settle(self.now_s)
        # These are statistics that only a simulation wants.
        self.book.pools.stays.clear()

    def begins(self) -> tuple[tuple[str, bool], ...]:
        """Which reservations have changed since this was asked, and whether their jobs may begin."""
        names, self.stirred = self.stirred, set()
        return tuple((name, name in self.live and self.live[name].may_begin) for name in sorted(names))

    def owned(self, uid: int) -> list[Live]:
        """What a user has that is not over."""
        return list(self._owned.get(uid, {}).values())

    def gone_nodes(self, live: Live) -> list[str]:
        """Those of a reservation's nodes that cannot be promised now: down, drained, silent, or not there."""
        number_of, available = self.book.timeline.number_of, self.book.available
        return [name for name in live.nodes if name not in number_of or not available >> number_of[name] & 1]

    def next_start_s(self) -> int | None:
        """When the next reservation starts. All are looked at only when that has changed."""
        known_s = self._next_start_s
        if not self._is_next_known or (known_s is not None and known_s <= self.now_s):
            starts = (live.reservation.start_s for live in self.live.values())
            self._next_start_s = min((at_s for at_s in starts if at_s > self.now_s), default=None)
            self._is_next_known = True
        return self._next_start_s

    def leave(self, live: Live) -> None:
        """It is over."""
        del self.live[live.name]
        self._series_count -= bool(live.document.series)
        self.stirred.add(live.name)
        self.counts[live.record.state] -= 1
        self._forget_start(live.reservation)
        self._hold(live, live.reservation, times=-1)
        own = self._owned[live.record.owner.uid]
        del own[live.name]
        if not own:
            del self._owned[live.record.owner.uid]

    def _forget_start(self, reservation: Reservation) -> None:
        self._is_next_known = self._is_next_known and reservation.start_s != self._next_start_s

    def _note_start(self, reservation: Reservation) -> None:
        start_s, known_s = reservation.start_s, self._next_start_s
        if start_s > self.now_s and (known_s is None or start_s < known_s):
            self._next_start_s = start_s

    def _enter(self, live: Live) -> None:
        self.live[live.name] = live
        self._series_count += bool(live.document.series)
        self.counts[live.record.state] += 1
        self._note_start(live.reservation)
        self._hold(live, live.reservation)
        self._owned.setdefault(live.record.owner.uid, {})[live.name] = live

    def _hold(self, live: Live, reservation: Reservation, *, times: int = 1) -> None:
        self.holding.add(
            live.record.owner.uid,
            nodes=len(reservation.nodes),
            seconds=reservation.end_s - reservation.start_s,
            image_bytes=live.document.size_bytes,
            times=times,
        )

    @property
    def has_series(self) -> bool:
        """Whether any reservation here recurs: to look for one takes as long as there are reservations."""
        return self._series_count > 0

    @property
    def has_promises(self) -> bool:
        """Whether anybody relies on what is to be written."""
        return len(self._light_writes) < len(self._writes)

    def accept(self, kept: Reservation, owner: ReservationOwner, document: Document, record: Record) -> Live:
        """A new reservation, in memory and at the end of the event on the disk."""
        kept = as_written(kept)
        number, now_s, text = self.next_number, self.now_s, write_document(document)
        self.next_number += 1
        live = Live(
            record=ReservationRecord(
                reservation=kept,
                owner=owner,
                state=State.ACCEPTED,
                version=1,
                number=number,
                accepted_s=now_s,
                changed_s=now_s,
                document=text,
            ),
            document=document,
            kept=record,
        )
        self._enter(live)
        self._own(live)

        def write(promise: PromiseWrites) -> None:
            given = promise.add_reservation(
                without_transfers(kept, self._unwritten), owner, now_s, document=text
            )
            assert given == number

        self.write(write)
        return live

    def skip_numbers(self, last: int) -> None:
        """Names with numbers up to this one are not given to new reservations."""
        if last >= self.next_number:
            self.next_number = last + 1
            self.write(lambda promise: promise.skip_reservation_numbers(last))

    def write(self, write: Write) -> None:
        """Remember something that somebody relies on, for the end of the event."""
        self._writes.append(write)

    def write_lightly(self, write: LightWrite) -> None:
        """Remember something that can be found out again should the power fail."""
        self._writes.append(write)
        self._light_writes.append(write)

    def touch(self, numbers: Iterable[int]) -> None:
        """These transfers are new, or stand elsewhere than before."""
        self._touched.update(numbers)

    def end_transfers(self, numbers: Iterable[int], state: TransferState) -> None:
        """These transfers are over, and have brought nothing. One that was planned in this very event is
        never written down: no reservation may be written as having had it."""
        for number in numbers:
            self._touched.discard(number)
            self._ended[number] = state
            if self.store.transfer(number) is not None:
                continue
            for entry in self.book.entries.values():
                if number in entry.reservation.transfers:
                    left = tuple(each for each in entry.reservation.transfers if each != number)
                    entry.reservation = replace(entry.reservation, transfers=left)

    def done_transfer(self, kept: KeptTransfer) -> None:
        """A transfer has brought its image; `kept` is how it stood before that."""
        self._touched.discard(kept.transfer.number)
        self._done.append(keep_done(kept, self.now_s))

    def flush(self) -> None:
        """Bring to the disk what is to be written; a StoreError means that nothing of it is there."""
        writes, self._writes = self._writes, []
        light, self._light_writes = self._light_writes, []
        touched, self._touched = self._touched, set()
        ended, self._ended = self._ended, {}
        done, self._done = self._done, []
        self._unwritten = {number for number in ended if self.store.transfer(number) is None}
        ended = {number: state for number, state in ended.items() if number not in self._unwritten}
        if not (writes or touched or ended or done):
            return
        self.writes += 1
        transfers = (*(keep_transfers(self.book, self.now_s, touched) if touched else ()), *done)
        if len(light) == len(writes):
            with self.store.progress() as progress:
                progress.put_transfers(transfers, self.now_s)
                _end(progress, ended, self.now_s)
                for write in light:
                    write(progress)
            return
        with self.store.promise() as promise:
            promise.put_transfers(transfers, self.now_s)
            _end(promise, ended, self.now_s)
            for each in writes:
                each(promise)

    def change(
        self,
        live: Live,
        *,
        state: State | None = None,
        kept: Reservation | None = None,
        why: str | None = None,
        receipt: Record | None = None,
    ) -> None:
        """Change a reservation, in memory and at the end of the event on the disk."""
        kept = None if kept is None else as_written(kept)
        before = live.record
        after = before.state if state is None else state
        why = None if why is None else why[:MOST_REASON]
        text = None if receipt is None else write_record(receipt)
        live.record = replace(
            before,
            state=after,
            version=before.version + 1,
            changed_s=self.now_s,
            ended_s=self.now_s if after.is_final else None,
            reservation=before.reservation if kept is None else kept,
            why=before.why if why is None else why,
            receipt=before.receipt if text is None else text,
        )
        self.counts[before.state] -= 1
        self.counts[after] += 1
        self.stirred.add(live.name)
        if kept is not None:
            self._forget_start(before.reservation)
            self._note_start(kept)
            self._hold(live, before.reservation, times=-1)
            self._hold(live, kept)
            self._own(live)
        if receipt is not None:
            live.kept = receipt
        now_s = self.now_s

        def write(promise: PromiseWrites) -> None:
            place = None if kept is None else without_transfers(kept, self._unwritten)
            promise.change_reservation(before, now_s, state=state, kept=place, receipt=text, why=why)

        self.write(write)

    def note(self, kind: str, name: str, outcome: str, reason: str, *, uid: int = 0) -> None:
        """Write down something that was decided or has happened."""
        decision = RecordedDecision(
            at_s=self.now_s, uid=uid, kind=kind, name=name, outcome=outcome, reason=reason[:MOST_REASON]
        )
        self.write(lambda promise: promise.decide(decision))

    def note_refusal(self, kind: str, name: str, outcome: str, reason: str, *, uid: int) -> None:
        """Write a refusal down, if its user has not had too many of them in the last hour."""
        noted, left_out = self.refusals.add(uid, self.now_s)
        if left_out:
            words = f"{left_out} more requests were refused in an hour, and are not written down one by one"
            self.note(kind, "-", outcome, words, uid=uid)
        if noted is Noted.LAST:
            reason = f"(further refusals of this hour are only counted) {reason}"
        if noted is not Noted.COUNTED:
            self.note(kind, name, outcome, reason, uid=uid)

    def todo(self, effects: Iterable[Effect]) -> None:
        chosen = tuple(effects)
        self.write(lambda promise: promise.todo(*chosen))


def _oldest_first(entry: Lingering, now_s: int) -> tuple[int, ...]:
    """What a node gives up first is its own policy's choice: this is only what is expected of it."""
    return (entry.last_use_s,)


def _end(progress: ProgressWrites, ended: dict[int, TransferState], now_s: int) -> None:
    for number in sorted(ended):
        progress.end_transfer(number, ended[number], now_s)


def _next_number(store: Store) -> int:
    with store.promise() as promise:
        return promise.next_reservation_number()
