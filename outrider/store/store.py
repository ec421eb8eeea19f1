"""What a service must not forget: what any store does for it, however it keeps its rows.

    with store.promise() as promise:
        promise.add_reservation(kept, owner, now_s)
        promise.put_transfers(transfers, now_s)
        promise.answer(answer)
        promise.todo(effect)

When the block is left all of it is on the disk, and only then may anybody be told. If it
raises, nothing of it is; a book that was changed in memory has to be restored. Errors are those
of `errors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from outrider.core.model import Reservation
from outrider.core.restart.snapshot import KeptBook, KeptTransfer
from outrider.store.records import (
    EMPTY_DOCUMENT,
    LARGEST_NUMBER,
    Effect,
    LedgerEntry,
    LedgerSum,
    NodeRecord,
    Payer,
    Pruned,
    RecordedAnswer,
    RecordedDecision,
    ReservationOwner,
    ReservationRecord,
    TransferRecord,
)
from outrider.store.states import State, TransferState

MOST_ROWS = 1_000
"""How many rows one look returns, and one step of pruning removes, at most."""


class ProgressWrites(Protocol):
    """What happens by itself: transfers move, nodes report, effects are carried out."""

    def put_transfers(self, transfers: Iterable[KeptTransfer], now_s: int) -> None:
        """Transfers that are new or stand elsewhere than before."""

    def end_transfer(self, number: int, state: TransferState, now_s: int) -> None:
        """A transfer is withdrawn or has failed. One that is done is put."""

    def put_node(self, node: NodeRecord) -> None:
        """What a node has reported last."""

    def drop_node(self, name: str) -> None:
        """A node does not belong to the site any more."""

    def finish_effect(self, identity: str, now_s: int) -> bool:
        """An effect has been carried out; False if that was known."""

    def postpone_effect(self, identity: str, trouble: str, due_s: int) -> None:
        """An effect could not be carried out: try again later."""

    def hasten_effects(self, now_s: int, latest_s: int) -> None:
        """What is to be carried out later than that is to be carried out now."""

    def retry_effects(self, now_s: int) -> None:
        """What has failed is tried again now."""


class PromiseWrites(ProgressWrites, Protocol):
    """One decision with all that follows from it."""

    def next_reservation_number(self) -> int:
        """The number of the reservation that is added next: never one that was given before.

        Nobody else writes as long as the transaction lasts, so a name may be made of it.
        """

    def skip_reservation_numbers(self, last: int) -> None:
        """Numbers up to this one were given by a store that is no more: they are not given again."""

    def add_reservation(
        self, kept: Reservation, owner: ReservationOwner, now_s: int, *, document: str = EMPTY_DOCUMENT
    ) -> int:
        """A reservation is accepted; its number. `document` is what the user asked for."""

    def change_reservation(
        self,
        record: ReservationRecord,
        now_s: int,
        *,
        state: State | None = None,
        kept: Reservation | None = None,
        receipt: str | None = None,
        why: str | None = None,
        document: str | None = None,
    ) -> None:
        """Change a reservation that was read as `record`; a Conflict if it has changed since."""

    def decide(self, decision: RecordedDecision) -> int:
        """Write down what was answered and why; the decision's number."""

    def enter(self, entry: LedgerEntry) -> None:
        """Write down what was charged, or what nobody pays because it was refused."""

    def answer(self, answer: RecordedAnswer) -> None:
        """Remember an answer, so that the same request gets it again."""

    def change_answer(self, answer: RecordedAnswer) -> None:
        """Let a request that is remembered be answered otherwise from now on: more is known of it."""

    def todo(self, *effects: Effect) -> None:
        """Effects that must be carried out once this is on the disk. The same one twice is one. What has
        failed for their subjects does not keep them waiting: it is tried again as early as they are due."""

    def set(self, name: str, value: str) -> None:
        """A setting of the store's own."""


class Store(Protocol):
    """One service's memory. Used by the thread that opened it."""

    @property
    def is_broken(self) -> bool:
        """Whether its disk has failed: nothing is written until it is opened again."""

    def close(self) -> None:
        """Give it back, with everything on the disk."""

    def promise(self) -> AbstractContextManager[PromiseWrites]:
        """A transaction that is on the disk when it is over."""

    def progress(self) -> AbstractContextManager[ProgressWrites]:
        """A transaction that survives the death of the service, but perhaps not of the machine."""

    def kept_book(self, now_s: int, live: Sequence[ReservationRecord] | None = None) -> KeptBook:
        """What the book is restored from. `live` are the live reservations, if they were read already."""

    def reservation(self, name: str) -> ReservationRecord | None:
        """The last reservation of that name, live or past."""

    def live_reservations(self) -> list[ReservationRecord]:
        """All that are not over, in the order in which they were accepted."""

    def past_reservations(
        self, *, before: int = LARGEST_NUMBER, most: int = MOST_ROWS
    ) -> list[ReservationRecord]:
        """Those that are over, the youngest first; `before` is the number to go on from."""

    def past_of_stem(self, stem: str, uid: int | None, *, most: int) -> list[ReservationRecord]:
        """Those of a user, or of all, that are over and are called STEM-NUMBER, the youngest first."""

    def transfer(self, number: int) -> TransferRecord | None:
        """One transfer, whatever became of it."""

    def decisions(
        self, name: str | None = None, *, before: int = LARGEST_NUMBER, most: int = MOST_ROWS
    ) -> list[RecordedDecision]:
        """What was decided (about one reservation), the last first."""

    def decisions_since(self, after: int, *, most: int = MOST_ROWS) -> list[RecordedDecision]:
        """What was decided after the decision numbered `after`, the first first."""

    def last_decision(self) -> int:
        """The number of the last decision, even if it has been pruned; 0 before the first."""

    def ledger_sums(self, by: Payer, from_s: int, until_s: int, uid: int | None) -> list[LedgerSum]:
        """Sums of the entries within [from_s, until_s), of one user or of all, by payer and kind."""

    def answered(self, uid: int, key: str, request_hash: str) -> RecordedAnswer | None:
        """What this very request was answered before; a Conflict if the key was another request's."""

    def due_effects(self, now_s: int, *, most: int = MOST_ROWS) -> list[Effect]:
        """What is to be carried out now: of each subject the first that is left."""

    def waiting_effects(self, subject: str, *, most: int = MOST_ROWS) -> list[Effect]:
        """What is still to be done to one subject, in the order in which it will be."""

    def knows_effect(self, identity: str) -> bool:
        """Whether it is still to be carried out, or was not long ago."""

    def waiting_subjects(self) -> set[str]:
        """All to which something is still to be done."""

    def count_effects(self) -> int:
        """How many effects are still to be carried out."""

    def next_due_s(self) -> int | None:
        """When the next effect is to be carried out."""

    def nodes(self) -> list[NodeRecord]:
        """What is known of each node, by name."""

    def setting(self, name: str) -> str | None:
        """What `set` has written; None if nothing was."""

    def prune(self, before_s: int, *, most: int = MOST_ROWS) -> Pruned:
        """One step of forgetting what was over before an instant; to be repeated until it is done.

        Transfers stay as long as any reservation that is kept had need of them.
        """
