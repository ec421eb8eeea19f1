"""How many files of a kind each user has in the pool, counted anew only when it may matter."""

from __future__ import annotations

import threading
from collections import Counter

from cachemgr.base.errors import CacheError, NotAllowed
from cachemgr.base.shares import PLACES, Share
from cachemgr.pool import pins
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.records import digest_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.clock import Clock
    from cachemgr.pool.pool import ImagePool

# The folders are not read more often than this, whatever users try.
AGAIN_S = 1.0


class Tally:
    """A limit by user on what lies in the pool's folders. Any thread may call.

    Between two looks at the folders only what is added is counted, so that the count is never too
    low for what came by this process; what has gone since is found when somebody seems to have too many.
    """

    def __init__(
        self,
        thing: str,
        most: int,
        count: Callable[[], dict[int, int]],
        clock: Clock,
        *,
        option: str,
        remedy: str,
    ) -> None:
        self.thing = thing
        self._most = most
        self._count = count
        self._clock = clock
        self._told = f"{remedy}, or ask the administrator for {option}"
        self._guard = threading.Lock()
        self._known: Counter[int] | None = None
        self._counted_s = 0.0
        self._refused: Counter[int] = Counter()

    def check(self, uid: int) -> None:
        """One more is about to be; refused if that is too many."""
        if not self._most:
            return
        with self._guard:
            known = self._known
            is_fresh = self._clock.monotonic_s() < self._counted_s + AGAIN_S
            if known is None or (known[uid] >= self._most and not is_fresh):
                known = self._counted()
            if known[uid] >= self._most:
                self._refused[uid] += 1
                raise NotAllowed(
                    f"you have {known[uid]} {self.thing} and may have {self._most}: {self._told}"
                )
            known[uid] += 1

    def shares(self) -> list[Share]:
        with self._guard:
            known, refused = self._counted(), dict(self._refused)
        users = {*known, *refused}
        return [
            Share(self.thing, PLACES, str(uid), known[uid], self._most, refused.get(uid, 0))
            for uid in sorted(users)
        ]

    def refused(self) -> dict[str, int]:
        return {self.thing: sum(self._refused.values())}

    def _counted(self) -> Counter[int]:
        if self._known is None or self._clock.monotonic_s() >= self._counted_s + AGAIN_S:
            self._known = Counter(self._count())
            self._counted_s = self._clock.monotonic_s()
        return self._known


def count_pins(pool: ImagePool) -> dict[int, int]:
    """Pins that have not expired, by user; those of instances are counted with them."""
    now_s, found = pool.clock.now_s(), Counter[int]()
    with disk_errors("counting pins"):
        folders = [
            pool.layout.image(name)
            for name in pool.disk.names(pool.layout.folder("images"))
            if digest_of(name)
        ]
        folders += [ingest.folder for ingest in pool.ingests()]
        for folder in folders:
            for pin in pins.read_pins(pool.disk, folder):
                if pin.expires_s > now_s and pin.kind != "instance":
                    found[pin.uid] += 1
    return found


class Holders:
    """Whose images are in the pool, so that a quota need not read every record each time."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, pool: ImagePool, uid: int) -> int:
        """How many images a user has brought, arriving ones included."""
        with disk_errors("counting images"):
            names = [name for name in pool.disk.names(pool.layout.folder("images")) if digest_of(name)]
        known: dict[str, int] = {}
        for name in names:
            found = self._known.get(name)
            found = self._looked_up(pool, name) if found is None else found
            if found is not None:
                known[name] = found
        self._known = known
        arriving = [ingest.image.owner_uid for ingest in pool.ingests()]
        return [*known.values(), *arriving].count(uid)

    def _looked_up(self, pool: ImagePool, digest: str) -> int | None:
        try:
            image = pool.image(digest)
        except CacheError:
            return None
        return None if image is None else image.owner_uid
