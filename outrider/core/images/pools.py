"""Image pools: where an image is or will be, from when on, and until when (thesis, Algorithm 4).

A *life* is one stay of an image in one node's pool: its bytes are reserved from the start
of its transfer, it can be used from `ready_s` on, and it expires when its last user ends.
Later users of the same image extend a life instead of starting a transfer. The sum of
lives never exceeds a pool's limit at any future instant; a caller that adds one asks `has_room`
first.

What has expired may linger: it costs nothing but space, is given up whenever a life needs
its space, and saves a transfer if somebody asks for it before. Who is given up first is a
policy's choice (`Rank`), which is told when each image is needed next by what has already
been accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import itemgetter
from typing import NamedTuple

from outrider.core.images.encumbrance import NOTHING, Encumbrance, beside, highest
from outrider.core.model import Image, Node
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import mask_of, numbers


@dataclass(slots=True, eq=False)
class Life:
    """One stay of an image in a pool. `users` maps who needs it to when they end."""

    image: Image
    start_s: int
    ready_s: int
    expires_s: int
    users: dict[str, int] = field(default_factory=dict)
    transfer: int | None = None
    is_firm: bool = False
    """Whether `ready_s` is when its transfer ends, rather than when it must have ended."""
    number: int = 0
    """In the order in which they were added: what tells two lives of one image apart."""


class Lingering(NamedTuple):
    """An image that nobody needs any more but that is still in the pool, for everybody."""

    key: str
    size_bytes: int
    added_s: int
    uses: int
    last_use_s: int
    next_use_s: int | None


@dataclass(frozen=True, slots=True)
class PoolsMark:
    """What some pools promised at some instant, to go back to."""

    lives: tuple[tuple[Life, dict[str, int], int], ...]
    pools: dict[int, tuple[dict[str, list[Life]], int]]
    where: dict[str, int]


ImagesMark = tuple[dict[str, int], int, int]
"""Which nodes have which image, how many lives were added, and how many stays are over."""

Rank = Callable[[Lingering, int], tuple[int, ...]]
"""A sort key for an image at an instant: the smallest is given up first."""


class PlannedPool:
    """One node's image pool, past the present and into the future."""

    def __init__(self, limit_bytes: int | None, keep_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.keep_bytes = keep_bytes
        self.lives: dict[str, list[Life]] = {}
        self.lingering: dict[str, Lingering] = {}
        self.uses: dict[str, int] = {}
        self.promised_bytes = 0
        """The sum of all lives, whenever they are: while it is within the limit, so is everything."""
        self.encumbrance = NOTHING
        """What others hold of it, as its node has reported."""
        self.foreign_bytes = 0
        self.room_bytes = limit_bytes
        """What it can hold in all: its limit, or less if its disk has less room than that."""

    def limit(self, limit_bytes: int | None) -> None:
        """It is as large as that from now on."""
        self.limit_bytes = limit_bytes
        self.encumber(self.encumbrance)

    def life_at(self, key: str, at_s: int) -> Life | None:
        """The life that guarantees the image at `at_s` (thesis, Algorithm 4, line 4)."""
        for life in self.lives.get(key, ()):
            if life.ready_s <= at_s <= life.expires_s:
                return life
        return None

    def coming(self, key: str, after_s: int) -> Life | None:
        """The life of the image that becomes ready first after `after_s`."""
        later = [life for life in self.lives.get(key, ()) if life.ready_s > after_s]
        return min(later, key=lambda life: life.ready_s, default=None)

    @property
    def is_encumbered(self) -> bool:
        """Whether others hold any of it, or its disk has too little room."""
        return bool(self.foreign_bytes) or self.room_bytes != self.limit_bytes

    def is_roomy_beside(self, extra_bytes: int) -> bool:
        """Whether all that is promised, and so much more, has room beside all that others hold, whenever it
        is there."""
        most = self.room_bytes
        return most is None or self.promised_bytes + self.foreign_bytes + extra_bytes <= most

    def encumber(self, encumbrance: Encumbrance) -> None:
        """This is what others hold from now on."""
        self.encumbrance, self.foreign_bytes = encumbrance, encumbrance.size_bytes
        limits = (self.limit_bytes, encumbrance.capacity_bytes)
        self.room_bytes = min((each for each in limits if each is not None), default=None)

    def has_room(self, extra: Collection[tuple[int, int, int]], from_s: int, key: str = "") -> bool:
        """Whether lives of `(start_s, end_s, size_bytes)` can be added without passing the limit.

        If they are of the image `key`, a copy that others hold is the very one that they need.
        """
        most = self.room_bytes
        if most is None:
            return True
        wanted = 0
        for _, _, size_bytes in extra:
            wanted += size_bytes
        if self.promised_bytes + self.foreign_bytes + wanted <= most:
            return True
        first_s = min(start_s for start_s, _, _ in extra)
        last_s = max(end_s for _, end_s, _ in extra)
        for lives in self.lives.values():
            for life in lives:
                if life.start_s < last_s and first_s < life.expires_s:
                    wanted += life.image.size_bytes
        for hold in self.encumbrance.holds:
            if (hold.key != key or not key) and first_s < hold.until_s:
                wanted += hold.size_bytes
        if wanted <= most:
            return True
        if not self.encumbrance.holds and self.encumbrance.capacity_bytes is None:
            return self.peak(extra, from_s) <= most
        return self.peak_within(first_s, last_s, extra, from_s, key) <= most

    def peak_within(
        self, first_s: int, last_s: int, extra: Iterable[tuple[int, int, int]], from_s: int, key: str = ""
    ) -> int:
        """The most bytes at any instant of an interval, with `extra` lives and what others hold.

        Of that interval alone: what others hold may pass the limit at another.
        """
        taken = [*self._stays(), *extra]
        for hold in self.encumbrance.holds:
            if hold.key != key or not key:
                same = [(life.start_s, life.expires_s) for life in self.lives.get(hold.key, ())]
                taken += [(*each, hold.size_bytes) for each in beside(same, hold, from_s)]
        return highest(taken, max(first_s, from_s), last_s)

    def peak(self, extra: Iterable[tuple[int, int, int]], from_s: int) -> int:
        """The most bytes promised at any instant from `from_s` on, with `extra` lives added."""
        return highest([*self._stays(), *extra], from_s)

    def _stays(self) -> list[tuple[int, int, int]]:
        """From when to when each life takes how many bytes."""
        return [
            (life.start_s, life.expires_s, life.image.size_bytes)
            for lives in self.lives.values()
            for life in lives
        ]

    def held_bytes(self, now_s: int) -> int:
        """Bytes on the disk now: lives that have begun and what lingers."""
        begun = sum(
            life.image.size_bytes for lives in self.lives.values() for life in lives if life.start_s <= now_s
        )
        return begun + sum(entry.size_bytes for entry in self.lingering.values())

    def next_use(self, key: str, now_s: int) -> int | None:
        """When the next life of the image that is still to come begins to be used."""
        return min((life.ready_s for life in self.lives.get(key, ()) if life.start_s > now_s), default=None)


class Stay(NamedTuple):
    """A stretch of time for which a node's disk held an image: for statistics."""

    node: int
    key: str
    start_s: int
    end_s: int
    size_bytes: int
    is_private: bool = False
    """An instance's own file, which nobody else can use; else the one copy in the pool."""


class Pools:
    """The pools of all nodes of a site, numbered as in the timeline."""

    def __init__(self, nodes: Sequence[Node], *, keep_bytes: int = 0, rank: Rank | None = None) -> None:
        if keep_bytes and rank is None:
            raise ValueError("images are to linger, but no policy says which to give up first")
        self._rank = rank
        self.pools = [PlannedPool(node.pool_bytes, keep_bytes) for node in nodes]
        self.stays: list[Stay] = []
        # For each image a mask of the nodes that have it in any way, and when the transfers
        # that best effort may join will have brought it.
        self._where: dict[str, int] = {}
        self._coming: dict[str, dict[int, int]] = {}
        # Lives with their nodes by when they were once to expire, and these instants: looked at again then.
        # A gang's lives expire together.
        self._due: dict[int, list[tuple[int, Life]]] = {}
        self._instants: list[int] = []
        self._added = 0
        self.changed: set[int] = set()
        """Nodes whose lives have changed since somebody last looked and emptied this."""
        self._limits = Counter(pool.limit_bytes for pool in self.pools)

    def limit(self, node: int, limit_bytes: int | None) -> None:
        """A node's pool is as large as that from now on."""
        self._limits[self.pools[node].limit_bytes] -= 1
        self._limits[limit_bytes] += 1
        self.pools[node].limit(limit_bytes)
        self._limits = +self._limits

    def count_of_size(self, size_bytes: int) -> int:
        """How many pools could hold so much if nothing else were there."""
        return sum(count for limit, count in self._limits.items() if limit is None or size_bytes <= limit)

    def nodes_with(self, key: str) -> list[int]:
        """The nodes whose pool has, will have or has kept the image."""
        return list(numbers(self._where.get(key, 0)))

    def mask_with(self, key: str) -> int:
        """The same nodes as a mask."""
        return self._where.get(key, 0)

    def coming_times(self, key: str) -> list[int]:
        """When transfers under way or waiting on the best-effort link bring the image somewhere."""
        coming = self._coming.get(key)
        return sorted(set(coming.values())) if coming else []

    def all_coming_times(self) -> list[int]:
        """The same for all images together."""
        return sorted({at_s for coming in self._coming.values() for at_s in coming.values()})

    def expect(self, number: int, life: Life) -> None:
        """A best-effort transfer brings this life."""
        self._coming.setdefault(life.image.key, {})[number] = life.ready_s

    def arrived(self, number: int, node: int, life: Life) -> None:
        """A transfer has brought this life, which may have expired in the meantime."""
        self._watch(node, life)
        key = life.image.key
        coming = self._coming.get(key)
        if coming is not None:
            coming.pop(number, None)
            if not coming:
                del self._coming[key]

    def number_from(self, taken: Iterable[int]) -> None:
        """Number lives that are added from now on after all of these."""
        self._added = max(self._added, max(taken, default=0))

    def fill(self, lives: Iterable[tuple[int, Life]]) -> None:
        """Put back lives of before a restart, in the order of their numbers, each used once by each user."""
        where: dict[str, list[int]] = {}
        for node, life in lives:
            key, pool = life.image.key, self.pools[node]
            pool.lives.setdefault(key, []).append(life)
            pool.uses[key] = pool.uses.get(key, 0) + len(life.users)
            pool.promised_bytes += life.image.size_bytes
            where.setdefault(key, []).append(node)
            self._added = life.number
            self._watch(node, life)
        for key, nodes in where.items():
            self.changed.update(nodes)
            self._where[key] = self._where.get(key, 0) | mask_of(nodes, len(self.pools))

    def add(self, node: int, life: Life) -> None:
        self._added += 1
        life.number = self._added
        pool = self.pools[node]
        pool.lives.setdefault(life.image.key, []).append(life)
        pool.promised_bytes += life.image.size_bytes
        self.changed.add(node)
        self._watch(node, life)
        self._where[life.image.key] = self._where.get(life.image.key, 0) | 1 << node

    def keep(self, node: int, entry: Lingering) -> None:
        """An image that nobody needs is known to be in the pool."""
        self.pools[node].lingering[entry.key] = entry
        self._where[entry.key] = self._where.get(entry.key, 0) | 1 << node

    def _watch(self, node: int, life: Life) -> None:
        self._due_at(life.expires_s).append((node, life))

    def _due_at(self, at_s: int) -> list[tuple[int, Life]]:
        due = self._due.get(at_s)
        if due is None:
            due = self._due[at_s] = []
            heappush(self._instants, at_s)
        return due

    def extend(self, node: int, life: Life, user: str, until_s: int) -> None:
        """`user` also needs this life, until `until_s`."""
        self.set_user(node, life, user, max(until_s, life.users.get(user, 0)))
        uses, key = self.pools[node].uses, life.image.key
        uses[key] = uses.get(key, 0) + 1

    def set_user(self, node: int, life: Life, user: str, until_s: int) -> None:
        """`user` needs this life until `until_s`, whatever it needed before."""
        users = life.users
        users[user] = until_s
        self._expire(node, life, until_s if len(users) == 1 else max(users.values()))

    def _expire(self, node: int, life: Life, at_s: int) -> None:
        self.changed.add(node)
        # Whoever watches it for an earlier instant will see that it expires later.
        is_earlier, life.expires_s = at_s < life.expires_s, at_s
        if is_earlier:
            self._watch(node, life)

    def number(self, lives: Sequence[tuple[int, Life]]) -> None:
        """These are in their pools, where the image has been until now."""
        for _, life in lives:
            self._added += 1
            life.number = self._added
        self.expire(lives, lives)

    def expire(self, lives: Sequence[tuple[int, Life]], earlier: Sequence[tuple[int, Life]]) -> None:
        """These have another end, and some of them one that is earlier."""
        self.changed.update(map(itemgetter(0), lives))
        due_s, due = -1, list[tuple[int, Life]]()
        for each in earlier:
            if each[1].expires_s != due_s:
                due_s, due = each[1].expires_s, self._due_at(each[1].expires_s)
            due.append(each)

    def leave(self, node: int, life: Life, user: str, now_s: int, *, is_waiting: bool = False) -> bool:
        """`user` no longer needs this life. True if it was dropped: nobody does, and its
        transfer `is_waiting`, so that it need not begin.
        """
        life.users.pop(user, None)
        if is_waiting and not life.users:
            self._drop(node, life)
            return True
        # What is under way arrives, wanted or not, and takes its space until it has.
        unwanted_s = now_s if life.transfer is None else max(now_s, life.ready_s)
        self._expire(node, life, max(life.users.values(), default=unwanted_s))
        return False

    def lose(self, node: int, life: Life) -> None:
        """The copy is not there, or never will be, whoever needs it."""
        if life.is_firm and life.transfer is not None:
            self.arrived(life.transfer, node, life)
        self._drop(node, life)

    def forget(self, node: int, key: str) -> None:
        """An image that nobody needs is not in the pool any more."""
        if self.pools[node].lingering.pop(key, None) is not None:
            self._forget_if_gone(node, key)

    def mark_images(self) -> ImagesMark:
        """Where images are, how many lives were added, and which stays are over, for `back_to_images`."""
        return dict(self._where), self._added, len(self.stays)

    def back_to_images(self, mark: ImagesMark) -> None:
        """What is in each pool is the caller's to put back."""
        self._where, self._added = dict(mark[0]), mark[1]
        del self.stays[mark[2] :]

    def mark(self, lives: Iterable[tuple[int, Life]]) -> PoolsMark:
        """The pools of these lives as they are, to go back to once their users have left."""
        lives = tuple(lives)
        pools = {node: self.pools[node] for node, _ in lives}
        return PoolsMark(
            lives=tuple((life, dict(life.users), life.expires_s) for _, life in lives),
            pools={
                node: ({key: list(each) for key, each in pool.lives.items()}, pool.promised_bytes)
                for node, pool in pools.items()
            },
            where={life.image.key: self.mask_with(life.image.key) for _, life in lives},
        )

    def back_to(self, mark: PoolsMark) -> None:
        """Undo that users have left. Whoever watches a life looks at its end when it is due."""
        for life, users, expires_s in mark.lives:
            life.users, life.expires_s = dict(users), expires_s
        for node, (lives, promised_bytes) in mark.pools.items():
            self.pools[node].lives = {key: list(each) for key, each in lives.items()}
            self.pools[node].promised_bytes = promised_bytes
        self._where.update(mark.where)

    def revive(self, node: int, key: str, image: Image, now_s: int, until_s: int) -> Life | None:
        """Make a life of what lingers, with no transfer; None if it does not linger."""
        pool = self.pools[node]
        entry = pool.lingering.pop(key, None)
        if entry is None:
            return None
        self.stays.append(Stay(node, key, entry.last_use_s, now_s, entry.size_bytes))
        life = Life(image, now_s, now_s, until_s)
        self.add(node, life)
        return life

    def settle(self, now_s: int, *, includes_now: bool = False) -> None:
        """End the lives that have expired before `now_s`: drop them or let them linger.

        What expires at this very instant can still be used at it (thesis, Algorithm 4), unless
        its space is needed: then it `includes_now`.
        """
        bound_s = now_s + includes_now
        while self._instants and self._instants[0] < bound_s:
            due_s = heappop(self._instants)
            # At one instant the life that was added first ends first, however often its end was moved.
            for node, life in sorted(self._due.pop(due_s), key=lambda stay: stay[1].number):
                if life not in self.pools[node].lives.get(life.image.key, ()):
                    continue
                if life.expires_s > due_s:
                    self._watch(node, life)
                elif life.transfer is None:
                    self._end(node, life, now_s)

    def make_room(self, node: int, now_s: int, coming_bytes: int = 0) -> list[str]:
        """Give up what lingers until a life of `coming_bytes` fits; the keys given up."""
        pool = self.pools[node]
        bound = FOREVER if pool.limit_bytes is None else pool.limit_bytes
        given_up: list[str] = []
        # Usually all that was ever promised and all that lingers fit together.
        most = pool.promised_bytes + sum([entry.size_bytes for entry in pool.lingering.values()])
        if most + coming_bytes <= min(bound, pool.keep_bytes):
            return given_up
        while pool.lingering and (
            pool.held_bytes(now_s) + coming_bytes > bound or pool.held_bytes(now_s) > pool.keep_bytes
        ):
            victim = self._victim(pool, now_s)
            given_up.append(victim.key)
            del pool.lingering[victim.key]
            self.stays.append(Stay(node, victim.key, victim.last_use_s, now_s, victim.size_bytes))
            self._forget_if_gone(node, victim.key)
        return given_up

    def close(self) -> list[Stay]:
        """Every stay, the lives still open included: for statistics at the end of a run."""
        open_stays = [
            Stay(node, life.image.key, life.start_s, life.expires_s, life.image.size_bytes)
            for node, pool in enumerate(self.pools)
            for lives in pool.lives.values()
            for life in lives
        ]
        return self.stays + open_stays

    def _victim(self, pool: PlannedPool, now_s: int) -> Lingering:
        rank = self._rank
        assert rank is not None
        entries = [
            entry._replace(uses=pool.uses.get(entry.key, 0), next_use_s=pool.next_use(entry.key, now_s))
            for entry in pool.lingering.values()
        ]
        return min(entries, key=lambda entry: (*rank(entry, now_s), entry.key))

    def _end(self, node: int, life: Life, now_s: int) -> None:
        pool, image, expires_s = self.pools[node], life.image, life.expires_s
        key, size_bytes = image.key, image.size_bytes
        self.stays.append(Stay(node, key, life.start_s, expires_s, size_bytes))
        self._drop(node, life, keep=True)
        others = pool.lives.get(key)
        still_there = others is not None and any(other.start_s <= now_s for other in others)
        if pool.keep_bytes and not (still_there or image.is_private or key in pool.lingering):
            uses = pool.uses.get(key, 0)
            pool.lingering[key] = Lingering(key, size_bytes, life.ready_s, uses, expires_s, None)
            self.make_room(node, now_s)
        if others is None and key not in pool.lingering:
            self._forget_if_gone(node, key)

    def _drop(self, node: int, life: Life, *, keep: bool = False) -> None:
        pool, image = self.pools[node], life.image
        key = image.key
        lives = pool.lives[key]
        lives.remove(life)
        pool.promised_bytes -= image.size_bytes
        self.changed.add(node)
        if not lives:
            del pool.lives[key]
        if not keep:
            self._forget_if_gone(node, key)

    def _forget_if_gone(self, node: int, key: str) -> None:
        pool = self.pools[node]
        if key not in pool.lives and key not in pool.lingering:
            nodes = self._where.get(key, 0) & ~(1 << node)
            if nodes:
                self._where[key] = nodes
            else:
                self._where.pop(key, None)
