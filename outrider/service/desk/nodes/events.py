"""What nodes say of the images that they are to have, by who needs them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrived:
    """The image that a reservation needs is there and pinned."""

    node: str
    owner: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """Bytes have arrived, or have not."""

    node: str
    owner: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Missed:
    """An image that should be there is not."""

    node: str
    owner: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """A node could not bring an image; it is told again later."""

    node: str
    owner: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """The full copy that a job is to have is made."""

    node: str
    owner: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Uncopied:
    """A node cannot make that copy, and why; it is told again later."""

    node: str
    owner: str
    words: str


News = Arrived | Moved | Missed | Failed | Copied | Uncopied
