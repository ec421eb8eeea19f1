"""What is answered about kinds of leases: offers in the place of a refusal, what recurs, prices."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from outrider.service.answers.reservations import ReservationView


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """Other terms that would be accepted, with the nodes that it would have now.

    `kind` says in what they differ: later, fewer-nodes, shorter, fewer-nodes-later or
    shorter-with-fewer-nodes. `name` is what it is accepted by; empty if it is not held.
    """

    name: str
    kind: str
    start_s: int
    end_s: int
    node_count: int
    nodes: str
    price: int | None = None
    """In thousandths of the site's unit of money; None where nothing has a price."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Occurrence:
    """One of the reservations of a request that recurs, or that has unlike roles. `name` is empty if it is
    refused."""

    name: str
    number: int
    result: Literal["accepted", "refused"]
    start_s: int
    end_s: int
    nodes: str
    reason: str
    price: int | None = None
    role: str = ""
    """Of one with unlike instances, which of them it has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionView:
    """One of the ways to carry out a request. `words` say why it was chosen, or what stands in its way."""

    number: int
    """From 1 on, in the order in which they were asked for."""
    result: Literal["chosen", "possible", "refused"]
    node_count: int
    duration_s: int
    earliest_start_s: int | None
    words: str
    image: str = ""
    """The address of the image that it would have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportLine:
    """One payer's sums. Amounts are thousandths of the site's unit of money.

    `charged` is for reservations that are over, `booked` what those cost that are not. Lost is what refused
    requests would have cost: to refusals of the site, or to their price. `machines` are holder jobs that
    are over, with what these had.
    """

    payer: str
    reservations: int
    node_seconds: int
    charged: int
    booked_reservations: int
    booked: int
    refused: int
    lost_to_refusals: int
    too_dear: int
    lost_to_price: int
    machines: int
    machine_node_seconds: int
    machine_cpu_seconds: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was charged to whom. `is_of_all`: of all users, as administrators see it."""

    by: Literal["user", "account", "group"]
    from_s: int
    until_s: int
    is_of_all: bool
    lines: tuple[ReportLine, ...]


class LeaseKind(Enum):
    """What a user has, or could have."""

    RESERVATION = "reservation"
    DEADLINE = "deadline"
    RECURRING = "recurring"
    ROLES = "roles"
    OFFER = "offer"


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseView:
    """A lease in a list: one that recurs has the times and nodes of its next occurrence, and `left` of them
    that are not over, the last of which ends at `last_end_s`.

    `state` is offered, or that of a reservation.
    """

    name: str
    kind: str
    state: str
    user: str
    account: str
    workspace: str
    start_s: int
    end_s: int
    nodes: str
    node_count: int
    left: int
    last_end_s: int
    price: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseList:
    leases: tuple[LeaseView, ...]
    is_complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseDetails:
    """A lease with the reservations that it consists of and that are not over; an offer has none."""

    lease: LeaseView
    reservations: tuple[ReservationView, ...]
