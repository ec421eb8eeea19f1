"""What is answered about images: of a reservation or job, and on all nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageView:
    """An image as a reservation has it."""

    uri: str | None
    digest: str | None
    size_bytes: int
    is_private: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageOnNodes:
    """An image, where it is, and what needs it.

    `is_private`: not everybody may use it; `owners` are those whose it is then, and of them only
    whoever asks, unless that is an administrator.
    """

    digest: str
    uri: str
    size_bytes: int
    nodes: str
    node_count: int
    coming_nodes: str
    reservations: int
    is_private: bool
    jobs: int = 0
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageList:
    images: tuple[ImageOnNodes, ...]
    is_complete: bool
