"""What is answered about the whole site: its state, its timeline, what users share."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Something that occupies nodes for a while. `kind` is reservation, job, other or down."""

    node: str
    kind: str
    name: str
    start_s: int
    end_s: int
    ready_s: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    from_s: int
    until_s: int
    nodes: tuple[str, ...]
    stretches: tuple[Stretch, ...]
    is_complete: bool


Runs = tuple[int, ...]
"""Nodes by their places in a list: where a run of neighbours begins, how many there are, and so on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservationColumns:
    """Reservations that are not over, a column for each of their values."""

    names: tuple[str, ...]
    users: tuple[str, ...]
    states: tuple[str, ...]
    starts_s: tuple[int, ...]
    ends_s: tuple[int, ...]
    ready_s: tuple[int | None, ...]
    """When the image was, or will be, on all nodes; None while nothing is on its way or known."""
    nodes: tuple[Runs, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenColumns:
    """What else nodes are taken by, as far as it is known: jobs that run, until their limits, and
    reservations of the batch system's own. Nothing says whose."""

    kinds: tuple[str, ...]
    """job or other."""
    starts_s: tuple[int, ...]
    """0 of a job: it runs."""
    ends_s: tuple[int, ...]
    nodes: tuple[Runs, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """Who has which nodes when, of the whole site and for everybody alike, to be drawn."""

    nodes: tuple[str, ...]
    unavailable: Runs
    """Nodes that are down, drained or silent."""
    reservations: ReservationColumns
    taken: TakenColumns
    is_complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """The service at a glance."""

    version: str
    site: str
    batch_system: str
    now_s: int
    started_s: int
    is_promising: bool
    """Whether reservations are accepted now; `troubles` says why not."""
    troubles: tuple[str, ...]
    last_look_s: int | None
    nodes: int
    nodes_up: int
    nodes_away: int
    reservations: dict[str, int]
    """How many are in each state."""
    next_start_s: int | None
    transfers_waiting: int
    transfers_running: int
    link_rate_bytes_per_s: int
    link_busy_until_s: int | None
    effects_waiting: int
    decisions: dict[str, int]
    """How many requests were answered how, since the service was started."""
    jobs: dict[str, int] = field(default_factory=dict)
    """How many best-effort jobs that name an image are in each state."""
    jobs_overdue: int = 0
    """Of these, how many have waited for it for longer than they should."""
    link_measured_bytes_per_s: int | None = None
    """The most that any of the last transfers got, if that is much less than was planned; `link_words` says
    what to do."""
    link_words: str = ""
    turns_words: str = ""
    """What is not as `jobs.schedule` wants it: queues that are handed back or not there, an order that is not
    known."""
    is_link_doubted: bool = False
    """Whether these were transfers from several servers, so that it is the link's fault."""
    head: str = ""
    """Which head leads, where there are several, and since when."""
    head_since_s: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareView:
    """What a user has of one thing that users share.

    `where` is the head or a node. On nodes one row is for all of them, unless some were named: it
    says where the user's share is the largest, and on how many `nodes` there is something of it.
    """

    thing: str
    unit: str
    user: str
    """A name; a number if nobody knows one, and an address where no user is known."""
    where: str
    held: int
    most: int | None
    """What one user may have there; None if there is no such limit."""
    refused: int
    """How often more was refused, on all nodes together."""
    nodes: int
    held_in_all: int
    seen_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareList:
    """Who takes what of what is shared; whose share is the largest comes first.

    `is_of_all`: of all users, as administrators see it. `missing` says what could not be asked.
    `nodes` have said what is on them, the one that did so longest ago at `oldest_s`.
    """

    shares: tuple[ShareView, ...]
    is_complete: bool
    is_of_all: bool
    missing: tuple[str, ...]
    nodes: int
    oldest_s: int | None
