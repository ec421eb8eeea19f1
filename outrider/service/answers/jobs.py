"""What is answered about jobs, and whether one may start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.service.answers.images import ImageView
from outrider.service.answers.records import DecisionLine
from outrider.service.answers.transfers import NodeStaging


@dataclass(frozen=True, kw_only=True, slots=True)
class JobView:
    """A best-effort job that names an image, or one that runs in a reservation.

    `state` is resolving, refused, waiting, staging, staged, running or suspended, or over if nothing but what
    was decided is known any more; `held` whether the batch
    system does not start it yet; `nodes` those on which its image is kept for it, or is to be;
    `ready_s` when it is expected on enough of them, or was there; `words` what its user is told.
    """

    job: str
    user: str
    state: str
    held: bool
    image: ImageView | None
    nodes_wanted: int
    nodes: str
    node_count: int
    submitted_s: int
    ready_s: int | None
    start_s: int | None
    """When nodes are expected to be free for it; when it starts is up to the batch system."""
    is_overdue: bool
    """Whether it has waited for its image for longer than it should."""
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobList:
    jobs: tuple[JobView, ...]
    next_after: str
    """What to go on with, if there are more; else empty."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineView:
    """One of a job's virtual machines. `state` is `begins`, `boots`, `joined` (it has its name and address),
    `waits` (for the others), `runs`, `ended`, `failed` or `suspended`."""

    number: int
    name: str
    node: str
    """Empty while no node has said that it is there."""
    address: str
    """Among the job's machines; empty of a machine that is alone, or while no node has said it."""
    state: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JobDetails:
    """All about one job: how far its image is on each node, and what was decided."""

    job: JobView
    tasks: int
    staging: tuple[NodeStaging, ...]
    released_to: str
    """The nodes to which the batch system was told that it may go; empty while it is held."""
    decisions: tuple[DecisionLine, ...]
    moves: str = ""
    """In the answer to its migration: from where to where its machine moves, and for how long it pauses."""
    machines: tuple[MachineView, ...] = ()
    """Of a job that runs in virtual machines; empty until it runs, and for other users."""
    machines_folder: str = ""
    """On the service's own machine, if all machines are there; empty: each is on its node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Whether a job may start: go or wait. `digest` is its image's; empty if it is not known yet, None
    if the service does not know the job."""

    verdict: Literal["go", "wait"]
    words: str = ""
    digest: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Handover:
    """How far a job is on its way to the batch system. `is_new`: it may be handed over now. Otherwise
    `job` is its key, or empty if it was begun and nobody knows how that ended. Not for users."""

    is_new: bool = False
    job: str = ""
