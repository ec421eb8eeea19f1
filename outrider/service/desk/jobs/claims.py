"""What users' jobs that wait have claimed of nodes' pools, and how much more one user may claim.

A job that waits keeps its image's place in a pool until it starts, and that may be for days. So one
user may claim, of what nobody else has, no more than a share: something is always left for whoever
comes next, and a user who is alone has most of it. What is not brought yet counts like what is there.
An image counts once for its user on a node, however many jobs wait with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cachemgr.base.shares import BYTES, Share
from outrider.core.images.pools import PlannedPool

THING = "pool bytes of jobs that wait"
PERCENT = 100


class Claims:
    """Counts by user and node."""

    def __init__(self, share_percent: int) -> None:
        self._share_percent = share_percent
        self._jobs: dict[tuple[str, int], tuple[int, str, int]] = {}
        """By job and node: user, image and bytes."""
        self._images: Counter[tuple[int, int, str]] = Counter()
        """By user, node and image, how many jobs wait with it there."""
        self._of_user: dict[int, Counter[int]] = {}
        """By user, the bytes on each node."""
        self._refused: Counter[int] = Counter()

    def add(self, job: str, user: int, node: int, key: str, size_bytes: int) -> None:
        """A job counts on a copy of its image on a node."""
        if (job, node) in self._jobs:
            return
        self._jobs[job, node] = (user, key, size_bytes)
        self._images[user, node, key] += 1
        if self._images[user, node, key] == 1:
            self._of_user.setdefault(user, Counter())[node] += size_bytes

    def drop(self, job: str, node: int) -> None:
        """It does not any more, or has started there."""
        user, key, size_bytes = self._jobs.pop((job, node), (0, "", 0))
        if not key:
            return
        self._images[user, node, key] -= 1
        if self._images[user, node, key]:
            return
        del self._images[user, node, key]
        own = self._of_user[user]
        own[node] -= size_bytes
        if not own[node]:
            del own[node]
        if not own:
            del self._of_user[user]

    def full(
        self, user: int, images: Mapping[str, int], pools: Sequence[PlannedPool], now_s: int
    ) -> Iterator[int]:
        """The nodes on which a user has claimed too much for these images, by their keys and sizes."""
        for node, own_bytes in self._of_user.get(user, {}).items():
            limit_bytes = pools[node].limit_bytes
            size_bytes = sum(each for key, each in images.items() if (user, node, key) not in self._images)
            if limit_bytes is None or not size_bytes:
                continue
            taken_bytes = pools[node].promised_bytes
            if taken_bytes > limit_bytes:
                # That counts what is never there at the same time.
                taken_bytes = pools[node].peak((), now_s)
            left_bytes = limit_bytes - max(0, taken_bytes - own_bytes)
            if PERCENT * (own_bytes + size_bytes) > self._share_percent * left_bytes:
                yield node

    def held_by(self, user: int) -> int:
        return sum(self._of_user.get(user, {}).values())

    def refuse(self, user: int) -> None:
        """Note that a user would have claimed more."""
        self._refused[user] += 1

    def shares(self, pools: Sequence[PlannedPool]) -> list[Share]:
        """By user, of all nodes together; who claims most comes first."""
        limit_bytes = sum(pool.limit_bytes or 0 for pool in pools) * self._share_percent // PERCENT
        rows = [
            Share(THING, BYTES, str(user), self.held_by(user), limit_bytes, self._refused[user])
            for user in {**self._of_user, **self._refused}
        ]
        return sorted(rows, key=lambda row: (-row.held, -row.refused, row.user))
