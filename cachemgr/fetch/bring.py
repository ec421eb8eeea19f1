"""Bringing one image into the pool, from the wish to the commit: what daemon and command share.

Whoever gets the right to write brings the bytes; everybody else waits and watches, and goes
on where the writer stopped if it dies. Bytes that turn out wrong are asked of other sources
once; then the ingest is given up. What only could not be delivered stays, to be resumed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from cachemgr.base.errors import (
    BadRequest,
    CacheError,
    Cancelled,
    DiskFailed,
    NotInPool,
    SourceFailed,
    Unsuitable,
    WrongBytes,
)
from cachemgr.base.hashing import ThreadedHasher
from cachemgr.fetch.report import FetchProgress
from cachemgr.fetch.sources.uris import parse
from cachemgr.instances.formats import detect
from cachemgr.instances.qcow2 import inspect_qcow2
from cachemgr.pool.ingest import Ingest
from cachemgr.pool.layered import LAYERS
from cachemgr.pool.records import Alias, PoolImage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from cachemgr.base.rate import RateLimit
    from cachemgr.fetch.control import Control
    from cachemgr.fetch.ports import Resolved, Sink
    from cachemgr.pool.ingest import Writer
    from cachemgr.pool.pool import ImagePool, Want
    from cachemgr.pool.records import PoolPin

    class Carrier(Protocol):
        """What moves bytes from a source into a sink."""

        def resolve(self, origin: Origin, timeout_s: float) -> Resolved:
            """Size and name of what lies there, asked of the source."""

        def carry(self, sink: Sink, origins: Sequence[Origin], terms: TransferTerms) -> tuple[str, ...]:
            """Fill the sink; the names of the origins that delivered something."""


# How often is looked whether somebody else's writing goes on.
WATCH_S = 0.25
# An ingest may be taken over, or vanish, so often before this is given up.
MOST_ROUNDS = 100


@dataclass(frozen=True)
class Origin:
    """A source of bytes: an address, and perhaps the open file that proves the right to it.

    `uri` may hold credentials, so only `name` is for people. The descriptor belongs to
    whoever made this value.
    """

    uri: str
    name: str
    scheme: str
    descriptor: int | None = None
    # Whether the site's own passwords and keys may be used for it.
    is_trusted: bool = False
    # What a registry is asked for: what its reference stood for when it was looked up.
    digest: str = ""


@dataclass(frozen=True)
class TransferTerms:
    """What others want of a running transfer."""

    control: Control
    limits: tuple[RateLimit, ...] = ()
    on_progress: Callable[[FetchProgress], None] | None = None
    expected_rate_bytes_per_s: int | None = None
    # Is given what is written into, whose offset tells at any time how far it is.
    on_sink: Callable[[Writer], None] | None = None


@dataclass(frozen=True)
class BringOrder:
    """One image to be brought.

    `origins` is asked when it matters, because others may join with sources of their own.
    The `names` will stand for the image if whoever ordered it is believed, or if the whole
    image came from the first origin.
    """

    want: Want
    origins: Callable[[], Sequence[Origin]]
    pin: PoolPin | None = None
    names: tuple[str, ...] = ()
    is_believed: bool = False
    alias_lifetime_s: int | None = None
    # Whose names these are, if an ordinary user's.
    names_uid: int | None = None
    # What its bytes must be, if it is kept under its address nevertheless while it arrives.
    promised: str = ""

    def names_expire_s(self, now_s: int) -> int | None:
        return None if self.alias_lifetime_s is None else now_s + self.alias_lifetime_s


def bring(pool: ImagePool, order: BringOrder, carrier: Carrier, terms: TransferTerms) -> PoolImage:
    """The image, once it is in the pool. Raises what stood in the way, with the rest tidy."""
    for _ in range(MOST_ROUNDS):
        found = pool.want(order.want, order.pin)
        if not isinstance(found, Ingest):
            return found
        try:
            writer = found.writer(ThreadedHasher())
        except NotInPool:
            # Committed or dropped a moment ago: look again.
            continue
        if writer is not None:
            return _write(pool, order, carrier, terms, writer)
        _watch(pool, found, terms)
    raise SourceFailed(f"image {order.want.uri} is begun and dropped again and again: look at the log")


def kind_of(declared: str) -> Callable[[bytes, int], str]:
    """What tells an image's format when it is whole, and refuses what would harm a node.

    A raw disk may begin with anything, so that can be declared, as can what is in a squashfs file; everything
    else must be what its content says.
    """

    def inspect(head: bytes, size_bytes: int) -> str:
        found = detect(head, size_bytes)
        if found == "qcow2":
            inspect_qcow2(head)
        if declared in ("file", found):
            return found
        if (declared in ("raw", LAYERS) and found == "file") or (
            declared == "bundle" and found == "squashfs"
        ):
            return declared
        raise Unsuitable(f"the image was said to be {declared}, but it is {found}: correct its format")

    return inspect


def _write(
    pool: ImagePool, order: BringOrder, carrier: Carrier, terms: TransferTerms, writer: Writer
) -> PoolImage:
    """Fill and commit. After wrong bytes once more, from whoever did not deliver them."""
    try:
        if writer.resumed_bytes and not order.want.digest:
            # Nobody could tell if the source has changed since: halves of two images.
            writer.restart()
        was_resumed = writer.resumed_bytes > 0
        delivered = _fill(writer, order.origins(), carrier, terms)
        try:
            return _commit(pool, order, writer, delivered, was_resumed=was_resumed)
        except WrongBytes as error:
            others = _others(order.origins(), delivered, was_resumed=was_resumed)
            if not others:
                raise
            return _once_more(pool, order, carrier, terms, writer, others, error)
    except (WrongBytes, Unsuitable, BadRequest):
        writer.abandon()
        raise
    except CacheError:
        # Cancelled, or no source could: what has arrived is right as far as anybody knows.
        writer.pause()
        raise
    except BaseException:
        writer.close()
        raise


def _once_more(
    pool: ImagePool,
    order: BringOrder,
    carrier: Carrier,
    terms: TransferTerms,
    writer: Writer,
    origins: Sequence[Origin],
    first: WrongBytes,
) -> PoolImage:
    """All of it from other sources, after the first ones delivered wrong bytes."""
    writer.restart()
    try:
        delivered = _fill(writer, origins, carrier, terms)
    except SourceFailed as error:
        raise WrongBytes(f"{first}; then from other sources: {error}") from error
    return _commit(pool, order, writer, delivered, was_resumed=False)


def _commit(
    pool: ImagePool, order: BringOrder, writer: Writer, delivered: tuple[str, ...], *, was_resumed: bool
) -> PoolImage:
    """Visible, under its names if they are believed."""
    origins = order.origins()
    is_whole = bool(origins) and delivered == (origins[0].name,) and not was_resumed
    names = order.names if is_whole or order.is_believed else ()
    return writer.commit(
        kind_of(order.want.format),
        names=names,
        names_expire_s=order.names_expire_s(pool.clock.now_s()),
        names_uid=order.names_uid,
        promised=order.promised,
    )


def name_it(pool: ImagePool, image: PoolImage, order: BringOrder) -> None:
    """Let the names stand for an image that is here, for as long as an address is believed."""
    expires_s = order.names_expire_s(pool.clock.now_s())
    for name in order.names:
        pool.add_alias(Alias(name, image.digest, expires_s, order.names_uid))


def _fill(
    writer: Writer, origins: Sequence[Origin], carrier: Carrier, terms: TransferTerms
) -> tuple[str, ...]:
    """All bytes are in the ingest; from whom."""
    if terms.on_sink is not None:
        terms.on_sink(writer)
    if writer.offset == writer.size_bytes:
        return ()
    first = origins[0] if origins else None
    if first is not None and first.scheme == "file" and first.descriptor is None:
        try:
            writer.adopt(os.path.realpath(parse(first.uri).path))
            return (first.name,)
        except (Unsuitable, DiskFailed):
            """Another file system, or one that cannot share blocks: the bytes are copied."""
    return carrier.carry(writer, origins, terms)


def _others(origins: Sequence[Origin], delivered: tuple[str, ...], *, was_resumed: bool) -> Sequence[Origin]:
    """Whom to ask after wrong bytes: who did not deliver them; all, if some were there before."""
    innocent = [origin for origin in origins if origin.name not in delivered]
    if was_resumed and not innocent:
        return origins
    return innocent


def _watch(pool: ImagePool, ingest: Ingest, terms: TransferTerms) -> None:
    """Look on until the writer has finished or died, the ingest is gone, or nobody wants to wait."""
    control = terms.control
    since_s, before = pool.clock.monotonic_s(), ingest.arrived_bytes()
    while True:
        if control.cancelled is not None:
            raise Cancelled(f"waiting for {ingest.image.short} was cancelled: {control.cancelled}")
        if control.deadline_s is not None and pool.clock.now_s() >= control.deadline_s:
            raise SourceFailed(f"image {ingest.image.short} did not arrive by its deadline")
        if not ingest.is_there():
            return
        try:
            lock = pool.disk.lock(f"{ingest.folder}/writer", is_shared=False, waits=False)
        except FileNotFoundError:
            return
        if lock is not None:
            lock.release()
            return
        pool.clock.sleep(WATCH_S)
        now_s, arrived = pool.clock.monotonic_s(), ingest.arrived_bytes()
        rate = int((arrived - before) / (now_s - since_s)) if arrived > before and now_s > since_s else 0
        if terms.on_progress is not None:
            left = ingest.size_bytes - arrived
            finish_s = pool.clock.now_s() + -(-left // rate) if rate else None
            terms.on_progress(FetchProgress(arrived, ingest.size_bytes, rate, finish_s, "another process"))
