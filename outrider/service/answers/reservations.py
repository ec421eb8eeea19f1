"""What is answered about reservations."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.service.answers.events import OpenWindow
from outrider.service.answers.images import ImageView
from outrider.service.answers.transfers import NodeStaging, PlannedTransfer


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservationView:
    """A reservation in a list."""

    name: str
    number: int
    state: str
    user: str
    account: str
    nodes: str
    node_count: int
    start_s: int
    end_s: int
    image: ImageView
    ready_s: int | None
    """When the image is expected on all nodes, or was there."""
    is_confirmed: bool
    """Whether the batch system has it, too."""
    why: str
    window: OpenWindow | None = None
    """Of one that waits, or has waited, for an event."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """What became of a promise.

    `ready_s` is when the image was on all nodes, None if it never was; `spare_s` is how long
    before the start that was, negative if it was late.
    """

    is_met: bool
    digest: str
    ready_s: int | None
    spare_s: int | None
    transferred_bytes: int
    saved_bytes: int
    sources: tuple[str, ...]
    words: str
    price: int | None = None
    """What was agreed, in thousandths of the site's unit of money; None where nothing has a price."""
    charged: int | None = None
    """What of that is charged: nothing if it was not met, or given up before its start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservationDetails:
    """All about one reservation."""

    reservation: ReservationView
    workspace: str
    accepted_s: int
    changed_s: int
    ended_s: int | None
    staging: tuple[NodeStaging, ...]
    transfers: tuple[PlannedTransfer, ...]
    odds_percent: int | None
    """While it is endangered: how likely it is still to be met, by the rates that were seen."""
    receipt: Receipt | None
    environment: str = ""
    """The parallel environment with which a job has all of its nodes, if it asks for `slots` of it."""
    slots: int = 0
    price: int | None = None
    key: str = ""
    """What the batch system calls it, if that is not its name: a number, by which jobs name it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservationList:
    reservations: tuple[ReservationView, ...]
    next_after: int | None
    """What to go on with, if there are more."""
