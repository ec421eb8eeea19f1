"""What of a pool cannot leave: how many bytes, for whom, and until when.

Two kinds of holders are told apart. Promises are the service's own pins and the copies that are made
for them, whose sum the service knows and has said (`promise`). All else is others': users' pins and
instances, what is arriving for them, instances of jobs, damaged images, an administrator's pins. Both
may hold the same image; it counts as others' then, because the service may give it back before they do.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass

from cachemgr.base.disk import replace_file
from cachemgr.base.errors import BadRequest, PoolDamaged
from cachemgr.pool import instance_book, pins, room
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.records import MOST_BYTES, decode, digest_of, encode
from cachemgr.protocol import RESERVATION_OWNER, USER_OWNER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from cachemgr.pool.ingest import Ingest
    from cachemgr.pool.pool import ImagePool
    from cachemgr.pool.records import PoolImage, PoolPin

INSTANCE = "instance:"
# A job's instance ends when the job does, and its lease is far longer than that.
MOST_OF_A_JOB_S = 3_600
# What the service has promised.
PROMISED_FILE = "promised.json"
PROMISED_REMEDY = "delete it; the service writes it again within minutes"


@dataclass(frozen=True)
class PoolHolding:
    """Something that takes bytes and cannot leave.

    `until_s` is when others' holds on it end, as far as is known; 0 if only promises hold it, or nobody
    does whom the service has to ask.
    `uids` are the ordinary users who hold it of their own accord: a job's instance is nobody's.
    """

    key: str
    digest: str
    name: str
    size_bytes: int
    until_s: int
    uids: frozenset[int] = frozenset()
    is_promised: bool = False

    @property
    def is_others(self) -> bool:
        return self.until_s > 0


@dataclass(frozen=True)
class PoolAccount:
    """A pool's bytes: what it can hold, what is promised, and what others hold of it."""

    capacity_bytes: int
    limit_bytes: int
    promised_bytes: int
    holdings: tuple[PoolHolding, ...]

    @property
    def others_bytes(self) -> int:
        return sum(each.size_bytes for each in self.holdings if each.is_others)

    @property
    def users_bytes(self) -> int:
        """What ordinary users hold together; an image that several hold counts once."""
        return sum(each.size_bytes for each in self.holdings if each.uids)

    @property
    def left_bytes(self) -> int:
        """What others may hold beyond what they hold; below 0 if a promise is in danger."""
        return self.capacity_bytes - self.promised_bytes - self.others_bytes

    def of(self, uid: int) -> list[PoolHolding]:
        """What one user holds, the largest first."""
        mine = [each for each in self.holdings if uid in each.uids]
        return sorted(mine, key=lambda each: (-each.size_bytes, each.key))


def account(pool: ImagePool) -> PoolAccount:
    """The pool's bytes now. The index has to be open."""
    holdings = tuple(_holdings(pool))
    kept_bytes = sum(each.size_bytes for each in holdings if each.is_promised)
    return PoolAccount(
        capacity_bytes=capacity_bytes(pool),
        limit_bytes=pool.settings.limit_bytes,
        # Pins of the service that it has not (yet) counted are kept, too.
        promised_bytes=max(read_promised(pool).size_bytes, kept_bytes),
        holdings=holdings,
    )


def with_holdings(found: PoolAccount, more: tuple[PoolHolding, ...]) -> PoolAccount:
    """The same account with what is about to be held, each thing counted once."""
    holdings = {each.key: each for each in found.holdings}
    for each in more:
        there = holdings.get(each.key, each)
        holdings[each.key] = dataclasses.replace(
            there, uids=there.uids | each.uids, until_s=max(there.until_s, each.until_s)
        )
    return dataclasses.replace(found, holdings=tuple(holdings.values()))


def capacity_bytes(pool: ImagePool) -> int:
    """What the pool can hold in all: its limit, or less if its disk has less for it."""
    with disk_errors(f"looking at the disk of {pool.layout.root}"):
        free_bytes = pool.disk.free_bytes(pool.layout.root) - room.SPARE_BYTES
        return max(0, min(pool.settings.limit_bytes, pool.index.used_bytes() + free_bytes))


def _holdings(pool: ImagePool) -> Iterable[PoolHolding]:
    now_s, trusted = pool.clock.now_s(), {0, os.geteuid()}
    with disk_errors("counting what is held"):
        digests = [name for name in pool.disk.names(pool.layout.folder("images")) if digest_of(name)]
        for digest in digests:
            found = pins.read_pins(pool.disk, pool.layout.image(digest))
            holds = _Holds(pool, [pin for pin in found if pins.holds(pin, now_s)], now_s, trusted)
            if holds.is_any:
                image = _readable(pool, digest)
                if image is not None:
                    yield holds.holding(f"image:{digest}", digest, image.short, image.size_bytes)
        for ingest in pool.ingests():
            arriving = _arriving(pool, ingest, now_s, trusted)
            if arriving is not None:
                yield arriving
        for what, size_bytes in pool.index.taken().items():
            kind, _, key = what.partition(":")
            if kind == "instance":
                instance = instance_book.read_instance(pool, key)
                name = f"instance {key}"
                if instance is not None and instance.owner.startswith(RESERVATION_OWNER):
                    # A copy that is made before its job is the service's, like the pin for which it is made.
                    yield PoolHolding(what, "", name, size_bytes, 0, is_promised=True)
                    continue
                until_s, uid = _end_of(instance, now_s), _user_of(instance)
                uids = frozenset() if uid is None else frozenset({uid})
                yield PoolHolding(what, "", name, size_bytes, until_s, uids)
            elif kind == "damaged":
                yield PoolHolding(what, "", f"damaged {key[:12]}", size_bytes, pins.FOR_EVER_S)


class _Holds:
    """The pins on one image that hold it."""

    def __init__(self, pool: ImagePool, holding: list[PoolPin], now_s: int, trusted: set[int]) -> None:
        self.is_promised = any(is_promise(pin, trusted) for pin in holding)
        self.uids: set[int] = set()
        self.until_s = 0
        for pin in holding:
            if is_promise(pin, trusted):
                continue
            until_s, uid = pin.expires_s, None if pin.uid in trusted else pin.uid
            if pin.kind == "instance":
                instance = instance_book.read_instance(pool, pin.owner[len(INSTANCE) :])
                uid = _user_of(instance)
                if uid is None and self.is_promised:
                    # A job of a promise: its image is held for as long as that is.
                    continue
                until_s = _end_of(instance, now_s)
            self.until_s = max(self.until_s, until_s)
            if uid is not None:
                self.uids.add(uid)

    @property
    def is_any(self) -> bool:
        return self.is_promised or self.until_s > 0

    def holding(self, key: str, digest: str, name: str, size_bytes: int) -> PoolHolding:
        return PoolHolding(
            key, digest, name, size_bytes, self.until_s, frozenset(self.uids), is_promised=self.is_promised
        )


def _arriving(pool: ImagePool, ingest: Ingest, now_s: int, trusted: set[int]) -> PoolHolding | None:
    """What is arriving. What the service may drop, since nobody waits for it, is not in its way; it counts
    for the user who began it, since other users cannot have its room."""
    image = ingest.image
    found = [pin for pin in pins.read_pins(pool.disk, ingest.folder) if pins.holds(pin, now_s)]
    holds = _Holds(pool, found, now_s, trusted)
    is_ordinary = image.owner_uid not in trusted
    is_abandoned = room.is_abandoned(pool, ingest.folder)
    if is_ordinary:
        holds.uids.add(image.owner_uid)
        if not is_abandoned:
            holds.until_s = max(holds.until_s, ingest.lease_s(), now_s + 1)
    elif is_abandoned:
        return None
    elif not holds.is_any:
        holds.until_s = now_s + 1
    return holds.holding(f"ingest:{ingest.key}", image.digest, image.short, image.size_bytes)


def is_promise(pin: PoolPin, trusted: set[int]) -> bool:
    return pin.kind == "hold" and pin.uid in trusted and pin.owner.startswith(RESERVATION_OWNER)


def _user_of(instance: instance_book.Instance | None) -> int | None:
    """The user who made an instance; None for those that root's hooks made for jobs."""
    return None if instance is None or not instance.owner.startswith(USER_OWNER) else instance.uid


def _end_of(instance: instance_book.Instance | None, now_s: int) -> int:
    if instance is None:
        return now_s + 1
    if instance.owner.startswith(USER_OWNER):
        return max(instance.expires_s, now_s + 1)
    return max(min(instance.expires_s, now_s + MOST_OF_A_JOB_S), now_s + 1)


def _readable(pool: ImagePool, digest: str) -> PoolImage | None:
    try:
        return pool.image(digest)
    except PoolDamaged:
        # Its bytes are counted as damaged ones as soon as that was noticed.
        return None


@dataclass(frozen=True)
class PromisedBytes:
    """So many bytes of the pool are held for reservations until then, before any of them has come.

    The service says it again with every call, so that what it holds ends by itself when it is gone, as pins
    do. Promised images that are here or arriving are part of the number: it is what all promises take
    together at their worst instant. So nothing changes here when an image comes or goes, and a call that is
    lost, late or doubled is no special case.
    """

    size_bytes: int = 0
    expires_s: int = 0


def read_promised(pool: ImagePool) -> PromisedBytes:
    """What is promised now: nothing, if it was never said or has expired."""
    path = f"{pool.layout.root}/{PROMISED_FILE}"
    with disk_errors(f"reading {path}"):
        try:
            found = decode(pool.disk.read(path, MOST_BYTES), path, PROMISED_REMEDY)
        except FileNotFoundError:
            return PromisedBytes()
    try:
        promised = PromisedBytes(int(found["size_bytes"]), int(found["expires_s"]))
    except (KeyError, TypeError, ValueError) as error:
        raise PoolDamaged(f"{path} lacks {error}: {PROMISED_REMEDY}") from error
    return promised if promised.expires_s > pool.clock.now_s() else PromisedBytes()


def promise(pool: ImagePool, size_bytes: int, expires_s: int) -> None:
    """Hold so many bytes until then, from the return on and over a power cut.

    It is said every few seconds while an image arrives. Written is what differs: another number,
    or an end that is later by more than a quarter of what is left.
    """
    now_s = pool.clock.now_s()
    if expires_s > now_s + pins.LONGEST_LEASE_S:
        raise BadRequest(
            f"bytes can be promised for {pins.LONGEST_LEASE_S // 86_400} days: say it again then"
        )
    try:
        there = read_promised(pool)
    except PoolDamaged:
        there = PromisedBytes(-1)
    has_long = there.expires_s - now_s >= (expires_s - now_s) * 3 // 4
    if there.size_bytes == size_bytes and (has_long or not size_bytes):
        return
    path = f"{pool.layout.root}/{PROMISED_FILE}"
    with disk_errors(f"writing {path}"):
        data = encode({"size_bytes": size_bytes, "expires_s": expires_s})
        replace_file(pool.disk, path, data)
