"""The answer to a request for a reservation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.service.answers.events import OpenWindow
from outrider.service.answers.images import ImageView
from outrider.service.answers.leases import Occurrence, Offer, OptionView
from outrider.service.answers.transfers import PlannedTransfer

Result = Literal["accepted", "refused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The answer to a request for a reservation, for a plan, or for a change.

    Accepted: the reservation's name (empty for a plan), its nodes and its transfers; the image
    is expected on all nodes at `ready_s`, and will be there by `latest_ready_s`; `slack_s` lies
    between the former and the start. Refused: `cause` (slots, link, pool, policy), `reason`, the
    earliest start that would be accepted now, and what else would work.

    `environment` is the parallel environment with which a job has all of these nodes, if it asks for `slots`
    of it; empty where the batch system has none, or none is needed.
    """

    result: Result
    name: str
    workspace: str
    start_s: int | None
    end_s: int | None
    nodes: str
    node_count: int
    image: ImageView
    transfers: tuple[PlannedTransfer, ...] = ()
    nodes_with_image: str = ""
    saved_bytes: int = 0
    ready_s: int | None = None
    latest_ready_s: int | None = None
    slack_s: int | None = None
    cause: str = ""
    reason: str = ""
    earliest_start_s: int | None = None
    remedies: tuple[str, ...] = ()
    environment: str = ""
    slots: int = 0
    window: OpenWindow | None = None
    """When its event may come, if it waits for one."""
    secret: str = ""
    """Of an open reservation that may be begun or ended by a signed call: what signs it. Told once."""
    notes: tuple[str, ...] = ()
    """What of the workspace is not used, so that nobody relies on it."""
    price: int | None = None
    """What it costs, or what a refused one would, in thousandths; None where nothing has a price."""
    occurrences: tuple[Occurrence, ...] = ()
    """Of a request that recurs; the nodes and times are those of the first, and `name` is that of all."""
    offers: tuple[Offer, ...] = ()
    """Refused: what would be accepted instead."""
    offers_until_s: int | None = None
    """Until when these are held; None if they are not, or not any more for long."""
    are_offers_protected: bool = False
    """Whether no request of another user is accepted meanwhile that would take their place."""
    options: tuple[OptionView, ...] = ()
    """Of a request that can be carried out in several ways: what is said of each."""
