"""Reading an image's bytes at another address, to let whoever gets them there use those that are here.

A private image is for its readers alone, and to know its digest gives nobody a right to it. Who gets the same
bytes elsewhere, without any rights of the site's, has them anyway: so they are read once more, compared, and
not kept. Else whoever had a copy of a popular image privately would keep it from all others.
"""

from __future__ import annotations

import dataclasses
import os
from urllib.parse import quote

from cachemgr.base.errors import NotAllowed, NotInPool, SourceFailed, WrongBytes
from cachemgr.daemon.transfers.content import Content
from cachemgr.daemon.transfers.places import close_files
from cachemgr.fetch.carrier import pinned
from cachemgr.fetch.registry.references import SCHEMES as REGISTRIES
from cachemgr.fetch.sources.uris import parse
from cachemgr.protocol import PROOF

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.transfers.transfer import PoolTransfer, Work
    from cachemgr.fetch.bring import Carrier, Origin, TransferTerms
    from cachemgr.pool.records import PoolImage
    from cachemgr.protocol import AddRequest


OPEN = ("http", "https", *REGISTRIES)
"""What gives the node no more than anybody, once its passwords are left out."""


def begin(
    node: NodeContext,
    uid: int,
    wanted: AddRequest,
    origin: Origin,
    image: PoolImage,
    opens: Callable[[PoolImage], PoolImage],
    reads: Callable[[PoolTransfer, TransferTerms], None] | None = None,
) -> PoolTransfer:
    """The transfer that reads what is at that address, for all who need it from there, and `opens` the image
    if it is the same. `reads` does so for an image that is not one file."""
    source = _source_of_all(node, dataclasses.replace(origin, is_trusted=False), image)
    try:
        transfer, _ = node.transfers.join(
            f"{PROOF}{image.digest} {origin.name}",
            uri=origin.name,
            size_bytes=image.size_bytes,
            uid=uid,
            origins=[source],
            work=_work(node, image, reads or _reading(node, image)),
            deadline_s=wanted.deadline_s,
            rate_bytes_per_s=wanted.rate_bytes_per_s,
        )
    except BaseException:
        close_files([source])
        raise
    transfer.opens.append(opens)
    node.log.info("image is read again", transfer=transfer.name, uri=origin.name, image=image.digest[:12])
    return transfer


def _source_of_all(node: NodeContext, origin: Origin, image: PoolImage) -> Origin:
    """The address as anybody may ask there. Schemes at which the node has keys of its own prove nothing."""
    if origin.scheme == "file":
        return open_everybodys(node.carrier, origin)
    if origin.scheme not in OPEN:
        raise NotAllowed(
            f"image {image.short} is private, and what a node gets by {origin.scheme}:// not everybody gets: "
            "ask its owner to make it public"
        )
    return pinned([origin], image.digest)[0]


def open_everybodys(carrier: Carrier, origin: Origin) -> Origin:
    """A file that anybody may read where it lies: the path may lead elsewhere a moment later, so it is asked
    of what was opened where that is."""
    try:
        descriptor = os.open(parse(origin.uri).path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SourceFailed(f"{origin.uri} cannot be opened: {error.strerror}") from error
    try:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        carrier.resolve(dataclasses.replace(origin, uri=f"file://{quote(path)}"), 0)
        if not os.path.samestat(os.stat(path), os.fstat(descriptor)):
            raise SourceFailed(f"{origin.uri} is changed while it is opened: try again")
    except BaseException:
        os.close(descriptor)
        raise
    return dataclasses.replace(origin, descriptor=descriptor)


def _reading(node: NodeContext, image: PoolImage) -> Callable[[PoolTransfer, TransferTerms], None]:
    def read(transfer: PoolTransfer, terms: TransferTerms) -> None:
        sink = Content(image.size_bytes, keeps=False)
        node.carrier.carry(sink, list(transfer.origins), terms)
        if sink.digest != image.digest:
            raise WrongBytes(f"image {transfer.uri} is another than {image.short}: correct its digest")

    return read


def _work(
    node: NodeContext,
    image: PoolImage,
    reads: Callable[[PoolTransfer, TransferTerms], None],
) -> Work:
    """What the transfer's thread does."""

    def work(transfer: PoolTransfer, terms: TransferTerms) -> PoolImage:
        reads(transfer, terms)
        found = node.pool.image(image.digest)
        if found is None:
            raise NotInPool(f"image {image.short} is not in the pool any more")
        node.log.info("source has these bytes", uri=transfer.uri, image=image.digest[:12])
        for opens in tuple(transfer.opens):
            found = opens(found)
        return found

    return work
