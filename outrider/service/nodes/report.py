"""A node's report, made of what its daemon lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cachemgr.base.shares import Share
from outrider.service.nodes.answers import Fields
from outrider.service.ports import Arriving, NodeImage, NodeReport, NodeRoom, OrderResult, Readers, TellNode

DIGEST_LETTERS = 64
IDLE = "no transfer is under way: what has arrived is kept"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lists:
    """What the daemon says to `transfers`, `ls`, `stats` and `show`, and as whom it was asked."""

    transfers: Fields
    pool: Fields
    stats: Fields
    our_uid: int
    owners: dict[str, tuple[str, ...]]
    """For whom images are pinned, as far as that was asked."""
    room: NodeRoom | None = None
    jobs: tuple[str, ...] = ()
    """Jobs that have instances, as far as that was asked."""
    shares: tuple[Share, ...] | None = None
    """Who takes what, as far as that was asked and the daemon can say."""


def report_of(call: TellNode, lists: Lists, results: tuple[OrderResult, ...], at_s: int) -> NodeReport:
    images = tuple(_image(each, lists) for each in lists.pool.parts("images"))
    arriving = tuple(sorted(_arriving(lists, {each.digest for each in images}), key=lambda each: each.digest))
    return NodeReport(
        node=call.node,
        at_s=at_s,
        limit_bytes=lists.stats.number("outrider_pool_limit_bytes"),
        used_bytes=_used_bytes(lists, images),
        arriving=arriving,
        images=images if call.wants_images else None,
        results=results,
        jobs=lists.jobs,
        room=lists.room,
        shares=lists.shares,
    )


def _used_bytes(lists: Lists, images: tuple[NodeImage, ...]) -> int:
    """What the pool has counted. A daemon that has only just started has not counted yet."""
    counted = lists.stats.optional_number("outrider_pool_used_bytes")
    if counted is not None:
        return counted
    arriving_bytes = sum(each.number("size_bytes") for each in lists.pool.parts("arriving"))
    return sum(image.size_bytes for image in images) + arriving_bytes


def _image(image: Fields, lists: Lists) -> NodeImage:
    owner_uid, is_public = image.optional_number("owner_uid"), image.truth("is_public")
    # A daemon of an older version does not tell of them here.
    readers = image.optional_part("readers")
    return NodeImage(
        digest=image.text("digest"),
        size_bytes=image.number("size_bytes"),
        uri=image.text("uri"),
        added_s=image.number("added_s"),
        uses=image.number("uses"),
        last_use_s=image.number("last_use_s"),
        is_public=is_public,
        owners=lists.owners.get(image.text("digest"), ()),
        owner_uid=None if owner_uid == lists.our_uid else owner_uid,
        readers=None
        if readers is None or is_public
        else Readers(uids=readers.numbers("uids"), gids=readers.numbers("gids")),
    )


def _arriving(lists: Lists, present: set[str]) -> Iterator[Arriving]:
    """What is on its way and, of what is not, ours that has failed and whatever keeps its bytes.

    An image of which nobody knows the digest yet is none that we could mean.
    """
    last: dict[str, Fields] = {}
    words: dict[str, str] = {}
    # They come in the order in which they began: the last one of an image is the one that counts.
    for transfer in lists.transfers.parts("transfers"):
        key = transfer.text("key")
        if len(key) == DIGEST_LETTERS:
            last[f"sha256:{key}"] = transfer
            words[f"sha256:{key}"] = transfer.text("message") or words.get(f"sha256:{key}", "")
    told = set(present)
    for digest, transfer in last.items():
        has_failed = transfer.text("state") in ("failed", "cancelled")
        is_alive = transfer.optional_number("ended_s") is None
        is_ours = lists.our_uid in transfer.numbers("wanted_by")
        if digest not in present and (is_alive or (has_failed and is_ours)):
            told.add(digest)
            yield _of_transfer(digest, transfer, words[digest], has_failed=has_failed)
    for each in lists.pool.parts("arriving"):
        digest = each.text("digest")
        if digest and digest not in told:
            yield Arriving(
                digest=digest,
                size_bytes=each.number("size_bytes"),
                arrived_bytes=each.number("arrived_bytes"),
                has_failed=True,
                words=IDLE,
            )


def _of_transfer(digest: str, transfer: Fields, words: str, *, has_failed: bool) -> Arriving:
    """One that goes on after a failure keeps the words of that failure."""
    return Arriving(
        digest=digest,
        size_bytes=transfer.number("size_bytes"),
        arrived_bytes=transfer.number("bytes"),
        rate_bytes_per_s=transfer.number("rate_bytes_per_s"),
        source=transfer.text("source"),
        has_failed=has_failed,
        code=transfer.text("error") if has_failed else "",
        words=words,
    )
