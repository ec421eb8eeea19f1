"""What each user's reservations take, kept up as they come, change and go: there may be tens of thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cachemgr.base.shares import BYTES, Share

RESERVATIONS, NODE_SECONDS = "reservations", "node-seconds"


class UserUsage:
    """Counts reservations that are not over by their owners."""

    def __init__(self) -> None:
        self._count: Counter[int] = Counter()
        self._node_seconds: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()

    def add(self, uid: int, *, nodes: int, seconds: int, image_bytes: int, times: int = 1) -> None:
        """A reservation is accepted; or is over, with `times` -1."""
        for counted, amount in (
            (self._count, 1),
            (self._node_seconds, nodes * seconds),
            (self._bytes, nodes * image_bytes),
        ):
            counted[uid] += amount * times
            if not counted[uid]:
                del counted[uid]

    def shares(self) -> Iterator[Share]:
        """There is no limit for one user here but what the policies say of each request."""
        for thing, unit, counted in (
            ("reservations", RESERVATIONS, self._count),
            ("reserved time on nodes", NODE_SECONDS, self._node_seconds),
            ("promised bytes in pools", BYTES, self._bytes),
        ):
            yield from (Share(thing, unit, str(uid), amount, 0, 0) for uid, amount in counted.items())
