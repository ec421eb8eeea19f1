"""What a pool holds beside the promises of the book: bytes that the book cannot free.

Users pin images, images arrive for them, jobs have full copies; and a disk may have less room than
its pool's limit says. A node reports both. They are not lives: the book neither plans nor ends them,
it only promises the bytes to nobody until they are free. `Pool.has_room` counts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from outrider.core.nodes.node_timeline import FOREVER


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignHold:
    """Bytes that somebody holds until then, as far as is known. `key`: of which image, or nothing."""

    key: str
    size_bytes: int
    until_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Encumbrance:
    """All that is held beside the book in one pool, and how much its disk lets it hold at all."""

    holds: tuple[ForeignHold, ...] = ()
    capacity_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.holds)

    def until_s(self, after_s: int) -> int:
        """When the last of what is held then is free."""
        return max((each.until_s for each in self.holds if each.until_s > after_s), default=after_s)


NOTHING = Encumbrance()


def beside(lives: list[tuple[int, int]], hold: ForeignHold, from_s: int) -> Iterator[tuple[int, int]]:
    """From `from_s` on, when a hold takes bytes of its own: not while a life of the same image does."""
    at_s = from_s
    for start_s, end_s in sorted(lives):
        if at_s >= hold.until_s:
            return
        if start_s > at_s:
            yield at_s, min(start_s, hold.until_s)
        at_s = max(at_s, end_s)
    if at_s < hold.until_s:
        yield at_s, hold.until_s


def highest(taken: Iterable[tuple[int, int, int]], from_s: int, until_s: int = FOREVER) -> int:
    """The largest sum of what overlaps within an interval, of `(start_s, end_s, size_bytes)`."""
    held = 0
    changes: list[tuple[int, int]] = []
    for start_s, end_s, size_bytes in taken:
        if start_s >= until_s or end_s <= from_s or start_s >= end_s:
            continue
        if start_s <= from_s:
            held += size_bytes
        else:
            changes.append((start_s, size_bytes))
        # At the same instant what ends comes first: it has the smaller amount.
        changes.append((end_s, -size_bytes))
    changes.sort()
    peak = held
    for _, size_bytes in changes:
        held += size_bytes
        if held > peak:
            peak = held
    return peak
