"""Why a reservation is refused, as facts and in a sentence that a user understands.

The facts are kept apart from the sentence because only the edge of the program knows time
zones: `Refusal.sentence` is handed a function that writes an instant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from outrider.core.model import Image


class Cause(Enum):
    """What stands in the way."""

    SLOTS = "slots"
    LINK = "link"
    POOL = "pool"
    POLICY = "policy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """One obstacle, with what a user needs in order to understand it."""

    cause: Cause
    start_s: int
    end_s: int
    instances: int = 0
    room: int = 0
    image: Image | None = None
    nodes: tuple[str, ...] = ()
    needed_s: int = 0
    message: str = ""
    from_s: int = 0
    """From when on the image would have to be in the pool that has no room for it."""
    held_bytes: int = 0
    """What others hold of that pool then, until `held_until_s`, of its limit."""
    held_until_s: int = 0
    limit_bytes: int = 0
    room_bytes: int = 0
    """What that pool can hold: less than its limit if its disk has no room for that."""

    def sentence(self, instant: Callable[[int], str] = str) -> str:
        if self.cause is Cause.POLICY:
            return self.message
        if self.cause is Cause.SLOTS:
            return self.message or (
                f"{self.room} of {self.instances} instances fit between "
                f"{instant(self.start_s)} and {instant(self.end_s)}: the rest of the nodes is taken"
            )
        assert self.image is not None
        what = f"image {self.image.uri} ({size(self.image.size_bytes)})"
        where = folded(self.nodes)
        if self.cause is Cause.LINK:
            return (
                f"{what} cannot reach {where} by {instant(self.start_s)}: it needs "
                f"{self.needed_s} s of a link that has less left before then"
            )
        until = instant(self.end_s)
        return f"{what} has no room in the image pool of {where} until {until}{self._takers(instant)}"

    def _takers(self, instant: Callable[[int], str]) -> str:
        """What takes the room beside reservations. It is not said whose it is."""
        found = ""
        if self.room_bytes < self.limit_bytes:
            found += (
                f": its disk has room for {size(self.room_bytes)} of the {size(self.limit_bytes)} that "
                "the pool may take"
            )
        if self.held_bytes:
            found += (
                f"{', and' if found else ':'} {size(self.held_bytes)} of its {size(self.limit_bytes)} are "
                f"held there by users' images and copies, until {instant(self.held_until_s)} at most"
            )
        return found


def size(size_bytes: int) -> str:
    """A size as people write it: 600 MB, 2.1 GB."""
    if size_bytes >= 10**9:
        return f"{size_bytes / 10**9:.1f} GB"
    if size_bytes >= 10**6:
        return f"{size_bytes // 10**6} MB"
    return f"{size_bytes} bytes"


def folded(nodes: tuple[str, ...]) -> str:
    """The first few nodes by name, and how many more there are."""
    if len(nodes) <= 3:
        return ", ".join(nodes)
    return f"{', '.join(nodes[:3])} and {len(nodes) - 3} more"
