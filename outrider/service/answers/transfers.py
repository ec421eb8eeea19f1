"""What is answered about transfers: as planned, under way, and how far each node is."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.service.answers.images import ImageView


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedTransfer:
    """One image on its way to one or more nodes.

    It begins at `begin_s` if the link is idle then, and at `latest_begin_s` whatever happens;
    it ends `duration_s` later.
    """

    number: int
    nodes: str
    size_bytes: int
    duration_s: int
    begin_s: int
    latest_begin_s: int
    deadline_s: int

    @property
    def ready_s(self) -> int:
        return self.begin_s + self.duration_s


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeStaging:
    """How far the image is on one node of a reservation.

    `state` is waiting, arriving, ready, failed or unknown.
    """

    node: str
    state: str
    arrived_bytes: int
    size_bytes: int
    rate_bytes_per_s: int = 0
    source: str = ""
    ready_s: int | None = None
    words: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferView:
    """A transfer that waits or runs."""

    number: int
    state: str
    nodes: str
    image: ImageView
    begin_s: int
    latest_begin_s: int | None
    deadline_s: int | None
    ready_s: int | None
    arrived_bytes: int
    total_bytes: int
    rate_bytes_per_s: int
    for_reservations: tuple[str, ...]
    is_late: bool
    staging: tuple[NodeStaging, ...]
    for_jobs: tuple[str, ...] = ()
    """The jobs that wait for it: it has no deadline then, and its number is negative."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TransferList:
    transfers: tuple[TransferView, ...]
    is_complete: bool
