"""What a transfer needs of others, and what a source has to be: interfaces only.

The pool implements `Sink`, `Held` and `Holdings` without importing this module; sources are
in this package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Sink(Protocol):
    """What a transfer writes into: an ingest of the pool."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def offset(self) -> int:
        """How much is there already: the next byte to be written."""

    def write(self, data: bytes | memoryview) -> None:
        """Append. The buffer is used again after the call, so it must not be kept."""


class Held(Protocol):
    """An image, held or still arriving, as the relay reads it."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def is_public(self) -> bool:
        """Whether anybody may have it without a ticket, if the site allows that at all."""

    def valid_bytes(self) -> int: ...

    def wait(self, offset: int, timeout_s: float) -> int:
        """Block until there are more than `offset` valid bytes, or the time is over.

        Gives the valid bytes; raises `NotInPool` when the ingest was given up.
        """

    def read(self, offset: int, most: int) -> bytes: ...

    def fileno(self) -> int | None:
        """A file whose first `valid_bytes()` bytes are the image's, if the kernel may send from it."""

    def close(self) -> None: ...


class Holdings(Protocol):
    """The images of this node."""

    def open(self, digest: str) -> Held | None:
        """The image `sha256:<hex>`, or None if it is neither held nor arriving."""


@dataclass(frozen=True)
class FetchStatus:
    """What a node says of an image: how much of it is there."""

    have_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class Resolved:
    """What a source says of a file before its first byte is asked for.

    The validator tells whether a later answer is about the same content (an ETag, a time of
    change); it is compared and never interpreted. The digest is that of the content, where a source
    vouches for it, as registries do.
    """

    size_bytes: int
    name: str
    validator: str | None = None
    digest: str = ""


class Stream(Protocol):
    """The bytes of an image from some offset on."""

    @property
    def start_bytes(self) -> int:
        """Where it really starts: before the offset asked for if the source cannot skip."""

    def read_into(self, buffer: memoryview, timeout_s: float) -> int | None:
        """Some bytes: how many; 0 at the end; None if none came in time. Raises `SourceFault`."""

    def close(self) -> None: ...


class Source(Protocol):
    """Where an image can be had."""

    @property
    def name(self) -> str:
        """For people and reports; unique among a transfer's sources; without credentials."""

    @property
    def is_relay(self) -> bool:
        """Whether it may still be receiving the image itself, and answers `status`."""

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> Stream: ...

    def status(self, timeout_s: float) -> FetchStatus | None:
        """How much it has; None if it does not answer in time or cannot tell."""
