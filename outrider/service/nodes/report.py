"""A node's report, made of what its daemon lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cachemgr.base.shares import Share
from cachemgr.pool.layered import is_part_owner
from cachemgr.protocol import (
    PROOF,
    RESERVATION_OWNER,
    ArrivingEntry,
    ListedImage,
    ListedImages,
    PoolStats,
    TransferEntry,
)
from outrider.service.ports import (
    Arriving,
    MachineInstance,
    MachineTime,
    NodeImage,
    NodeReport,
    NodeRoom,
    OrderResult,
)

DIGEST_LETTERS = 64
IDLE = "no transfer is under way: what has arrived is kept"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lists:
    """What the daemon says to `transfers`, `ls`, `stats` and `show`, and as whom it was asked."""

    transfers: tuple[TransferEntry, ...]
    pool: ListedImages
    stats: PoolStats
    our_uid: int
    is_complete: bool = False
    """Whether all that is only said when it is asked for was asked for, too."""
    owners: dict[str, tuple[str, ...]]
    """For whom images are pinned, as far as that was asked."""
    room: NodeRoom | None = None
    jobs: tuple[str, ...] = ()
    """Jobs that have instances, as far as that was asked."""
    machines: tuple[str, ...] = ()
    instances: tuple[MachineInstance, ...] | None = None
    times: tuple[MachineTime, ...] | None = None
    shares: tuple[Share, ...] | None = None
    """Who takes what, as far as that was asked and the daemon can say."""


def report_of(node: str, lists: Lists, results: tuple[OrderResult, ...], at_s: int) -> NodeReport:
    # A file without any bytes, which anybody may add, is no image that could be promised or shown.
    images = tuple(_image(each, lists) for each in lists.pool.images if each.size_bytes > 0)
    arriving = tuple(sorted(_arriving(lists, {each.digest for each in images}), key=lambda each: each.digest))
    return NodeReport(
        node=node,
        at_s=at_s,
        limit_bytes=lists.stats.outrider_pool_limit_bytes,
        used_bytes=_used_bytes(lists, images),
        arriving=arriving,
        images=images if lists.is_complete else None,
        results=results,
        jobs=lists.jobs,
        machines=lists.machines if lists.is_complete else (),
        instances=lists.instances,
        times=lists.times,
        room=lists.room,
        shares=lists.shares,
    )


def _used_bytes(lists: Lists, images: tuple[NodeImage, ...]) -> int:
    """What the pool has counted. A daemon that has only just started has not counted yet."""
    counted = lists.stats.outrider_pool_used_bytes
    if counted is not None:
        return counted
    arriving_bytes = sum(each.size_bytes for each in lists.pool.arriving)
    return sum(image.size_bytes for image in images) + arriving_bytes


def _image(image: ListedImage, lists: Lists) -> NodeImage:
    return NodeImage(
        digest=image.digest,
        size_bytes=image.size_bytes,
        uri=image.uri,
        added_s=image.added_s,
        uses=image.uses,
        last_use_s=image.last_use_s,
        is_public=image.is_public,
        owners=lists.owners.get(image.digest, ()),
        owner_uid=None if image.owner_uid == lists.our_uid else image.owner_uid,
        readers=None if image.is_public else image.readers,
    )


def _arriving(lists: Lists, present: set[str]) -> Iterator[Arriving]:
    """What is on its way and, of what is not, ours that has failed and whatever keeps its bytes.

    An image of which nobody knows the digest yet is none that we could mean.
    """
    last: dict[str, TransferEntry] = {}
    words: dict[str, str] = {}
    read: set[str] = set()
    # They come in the order in which they began: the last one of an image is the one that counts.
    for transfer in lists.transfers:
        key, _, _ = transfer.key.removeprefix(PROOF).partition(" ")
        if key != transfer.key:
            read.add(f"sha256:{key}")
        if len(key) == DIGEST_LETTERS:
            last[f"sha256:{key}"] = transfer
            words[f"sha256:{key}"] = transfer.message or words.get(f"sha256:{key}", "")
    told, owners = set(present), {each.digest: _owners(each) for each in lists.pool.arriving}
    for digest, transfer in last.items():
        has_failed = transfer.state in ("failed", "cancelled")
        is_alive = transfer.ended_s is None
        is_ours = lists.our_uid in transfer.wanted_by
        # Of what is there only that says something of what is there for others.
        if (digest not in present or digest in read) and (is_alive or (has_failed and is_ours)):
            told.add(digest)
            found = _of_transfer(digest, transfer, words[digest], has_failed=has_failed)
            yield replace(found, owners=owners.get(digest, ()))
    for each in lists.pool.arriving:
        if each.digest and each.digest not in told:
            yield Arriving(
                digest=each.digest,
                size_bytes=each.size_bytes,
                arrived_bytes=each.arrived_bytes,
                has_failed=True,
                words=IDLE,
                owners=_owners(each),
            )


def _owners(arriving: ArrivingEntry) -> tuple[str, ...]:
    return reservations_of(arriving.owners or ())


def reservations_of(owners: Iterable[str]) -> tuple[str, ...]:
    """The reservations and jobs among the owners of pins that the service has set on a node."""
    return tuple(
        sorted(
            owner.removeprefix(RESERVATION_OWNER)
            for owner in owners
            if owner.startswith(RESERVATION_OWNER) and not is_part_owner(owner)
        )
    )


def _of_transfer(digest: str, transfer: TransferEntry, words: str, *, has_failed: bool) -> Arriving:
    """One that goes on after a failure keeps the words of that failure."""
    return Arriving(
        digest=digest,
        size_bytes=transfer.size_bytes,
        arrived_bytes=transfer.bytes,
        rate_bytes_per_s=transfer.rate_bytes_per_s,
        source=transfer.source or "",
        has_failed=has_failed,
        code=transfer.error or "" if has_failed else "",
        words=words,
    )
