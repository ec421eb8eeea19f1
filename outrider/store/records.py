"""The values that go into the store and come out of it. Frozen, and bounded when built."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from outrider.core.model import Reservation
from outrider.core.restart.snapshot import KeptPool, KeptTransfer
from outrider.store.errors import TooMuch
from outrider.store.states import State, TransferState

MOST_NAME = 256
MOST_REASON = 4_096
MOST_DOCUMENT = 1 << 20
LARGEST_NUMBER = (1 << 63) - 1
EMPTY_DOCUMENT = '{"version":1}'
Payer = Literal["user", "account", "group"]
"""By whom the ledger is added up. Its entries are added and never changed."""


def check_text(what: str, text: str, most: int = MOST_NAME) -> None:
    if len(text) > most:
        raise TooMuch(f"{what} has {len(text)} characters: shorten it to {most}")


def check_numbers(what: str, *numbers: int | None) -> None:
    for number in numbers:
        if number is not None and not 0 <= number <= LARGEST_NUMBER:
            raise TooMuch(f"{what} is {number}: give 0 to {LARGEST_NUMBER}")


def check_document(what: str, text: str) -> None:
    """A document is a JSON object with a version, whose content is its writer's business."""
    check_text(what, text, MOST_DOCUMENT)
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{what} is not JSON: {error}") from error
    if not isinstance(parsed, dict) or not isinstance(parsed.get("version"), int):
        raise ValueError(f"{what} is not a JSON object with a version")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservationOwner:
    """Who a reservation belongs to, as the batch system knows them."""

    uid: int
    user: str
    account: str = ""

    def __post_init__(self) -> None:
        check_numbers("a user's number", self.uid)
        check_text("a user's name", self.user)
        check_text("an account", self.account)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservationRecord:
    """A reservation, where it is in its life, and how often that has changed.

    `number` is given by the store, in the order in which reservations were accepted. `document`
    is what the user asked for.
    """

    reservation: Reservation
    owner: ReservationOwner
    state: State
    version: int
    number: int
    accepted_s: int
    changed_s: int
    ended_s: int | None = None
    receipt: str | None = None
    why: str = ""
    document: str = EMPTY_DOCUMENT

    @property
    def name(self) -> str:
        return self.reservation.workspace.name


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferRecord:
    """A transfer, and what became of it."""

    kept: KeptTransfer
    state: TransferState
    planned_s: int
    begun_s: int | None = None
    ended_s: int | None = None

    @property
    def number(self) -> int:
        return self.kept.transfer.number


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedDecision:
    """What was answered to whom, and why. `number` is given by the store."""

    at_s: int
    uid: int
    kind: str
    name: str
    outcome: str
    reason: str
    details: str = EMPTY_DOCUMENT
    number: int = 0

    def __post_init__(self) -> None:
        for what, text in (("kind", self.kind), ("name", self.name), ("outcome", self.outcome)):
            check_text(f"a decision's {what}", text)
        check_text("a reason", self.reason, MOST_REASON)
        check_numbers("a decision", self.at_s, self.uid)
        check_document("a decision's details", self.details)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedAnswer:
    """What a request with an idempotency key was answered: said again when it is asked again."""

    uid: int
    key: str
    request_hash: str
    text: str
    at_s: int

    def __post_init__(self) -> None:
        check_text("an idempotency key", self.key)
        check_text("a hash", self.request_hash)
        check_numbers("an answer", self.uid, self.at_s)
        check_document("an answer", self.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """Something to be done to the batch system or a node, at least once.

    Whoever carries it out may be told twice: `identity` tells the same effect from another.
    Effects on one `subject` are handed out one at a time, in the order in which they were
    asked for.
    """

    identity: str
    kind: str
    subject: str
    payload: str = EMPTY_DOCUMENT
    created_s: int
    due_s: int
    attempts: int = 0
    trouble: str = ""

    def __post_init__(self) -> None:
        for what, text in (("identity", self.identity), ("kind", self.kind), ("subject", self.subject)):
            check_text(f"an effect's {what}", text)
        check_text("an effect's trouble", self.trouble, MOST_REASON)
        check_numbers("an effect", self.created_s, self.due_s, self.attempts)
        check_document("an effect's payload", self.payload)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRecord:
    """What a node last said of itself, and what its pool holds beyond all promises."""

    name: str
    reported_s: int
    is_available: bool = True
    report: str = EMPTY_DOCUMENT
    pool: KeptPool | None = None

    def __post_init__(self) -> None:
        check_text("a node's name", self.name)
        check_numbers("a report", self.reported_s)
        check_document("a node's report", self.report)
        if self.pool is not None and self.pool.node != self.name:
            raise ValueError(f"node {self.name} is given the pool of {self.pool.node}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """How many old rows of each table are gone; `is_done` when no more are left to go."""

    rows: dict[str, int] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return not any(self.rows.values())


class EntryKind(Enum):
    """What an entry is about."""

    CHARGED = "charged"
    """A reservation that is over, whatever became of it."""
    REFUSED = "refused"
    TOO_DEAR = "too-dear"
    """Refused for its price alone, which was more than its user wanted to pay."""
    HELD = "held"
    """What a holder job of a machine had, whoever pays the batch system for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerEntry:
    """`amount` is what was charged, or what would have been, in thousandths of the site's unit of money; of
    what was held, processor-seconds."""

    at_s: int
    kind: EntryKind
    name: str
    uid: int
    user: str
    account: str
    group: str
    node_seconds: int
    amount: int

    def __post_init__(self) -> None:
        for what, text in (("name", self.name), ("user", self.user), ("account", self.account)):
            check_text(f"an entry's {what}", text)
        check_text("an entry's group", self.group)
        check_numbers("an entry of the ledger", self.at_s, self.uid, self.node_seconds, self.amount)


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerSum:
    """All entries of one kind of one payer."""

    payer: str
    kind: EntryKind
    count: int
    node_seconds: int
    amount: int
