"""The verbs that look: nothing changes by them."""

from __future__ import annotations

import os

from cachemgr import __version__
from cachemgr.base.errors import BadRequest
from cachemgr.base.steady import SteadyClock, past_s
from cachemgr.daemon.network.mirror_logins import USER
from cachemgr.daemon.verbs import access
from cachemgr.daemon.verbs.shapes import (
    arriving_entry,
    image_entry,
    image_fields,
    instance_entry,
    readers_of,
    transfer_entry,
)
from cachemgr.daemon.verbs.taking import gauge_shares
from cachemgr.pool import instance_book, pins
from cachemgr.pool.layered import LAYERS, is_whole
from cachemgr.pool.layout import disk_errors
from cachemgr.protocol import (
    AliasEntry,
    ImageEntry,
    InstanceEntry,
    ListedImage,
    ListedImages,
    ListedInstances,
    ListedTransfers,
    MetricsText,
    MirrorLogin,
    MirrorRequest,
    NameRequest,
    NoFields,
    PinEntry,
    PingAnswer,
    ShownImage,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.transfers.transfer import PoolTransfer
    from cachemgr.daemon.verbs.requests import VerbRequest
    from cachemgr.pool.records import PoolImage


def ping(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> PingAnswer:
    request.read(NoFields)
    return PingAnswer(
        version=__version__,
        pid=os.getpid(),
        uptime_s=int(node.clock.monotonic_s() - node.began_s),
        now_s=node.clock.now_s(),
        clock_trouble=node.clock.doubt if isinstance(node.clock, SteadyClock) else "",
        pool=node.pool.layout.root,
        is_index_ready=node.is_index_ready,
        caller_uid=caller.real_uid,
        node=node.config.node,
    )


def find(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> ImageEntry:
    name = request.read(NameRequest).name
    return image_entry(node, caller, access.find_visible(node, caller, name))


def ls(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> ListedImages:
    request.read(NoFields)
    seen = [image for image in node.pool.images() if access.may_use(node.pool, caller, image)]
    # An image of layers of which some have left is none: who wants it adds it again.
    images = [image for image in seen if image.format != LAYERS or is_whole(node.pool, image)]
    arriving = [ingest for ingest in node.pool.ingests() if access.may_see_arriving(caller, ingest.image)]
    return ListedImages(
        tuple(_listed(node, caller, image) for image in images),
        tuple(arriving_entry(node, caller, ingest) for ingest in arriving),
    )


def _listed(node: NodeContext, caller: NodeCaller, image: PoolImage) -> ListedImage:
    readers = None if image.readers.is_public else readers_of(caller, image)
    return ListedImage(**image_fields(node, caller, image), readers=readers)


def show(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> ShownImage:
    name = request.read(NameRequest).name
    image = access.find_visible(node, caller, name)
    fields = image_fields(node, caller, image)
    held = [pin for pin in node.pool.pins(image.digest) if caller.sees_all or pin.uid == caller.uid]
    copies = [each for each in _visible_instances(node, caller) if each.digest == fields["digest"]]
    aliases = [alias for alias in node.pool.aliases() if alias.digest == image.digest]
    return ShownImage(
        **fields,
        pin_list=tuple(PinEntry(pin.owner, pin.kind, pin.uid, pin.expires_s, pin.from_s) for pin in held),
        instances=tuple(copies),
        aliases=tuple(AliasEntry(alias.name, alias.expires_s) for alias in aliases),
        readers=readers_of(caller, image),
    )


def mirror(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> MirrorLogin:
    """A login for the node's mirror, for the user who asks. It is kept nowhere."""
    wanted = request.read(MirrorRequest)
    if node.mirror is None:
        raise BadRequest("this node has no mirror for runtimes: ask the administrator for mirror_listen")
    until_s = access.checked_until(node, caller, wanted.until_s)
    return MirrorLogin(node.mirror.address, USER, node.mirror.password(caller.uid, until_s), until_s)


def instances(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> ListedInstances:
    request.read(NoFields)
    return ListedInstances(tuple(_visible_instances(node, caller)))


def transfers(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> ListedTransfers:
    request.read(NoFields)
    seen = [each for each in node.transfers.all() if may_see(caller, each)]
    limit = node.transfers.limit.rate_bytes_per_s
    return ListedTransfers(tuple(transfer_entry(node, each) for each in seen), limit)


def stats(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> dict[str, float]:
    request.read(NoFields)
    gauge(node)
    return node.metrics.numbers()


def metrics(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> MetricsText:
    request.read(NoFields)
    gauge(node)
    gauge_shares(node)
    return MetricsText(node.metrics.text())


def gauge(node: NodeContext) -> None:
    """Measure what is not counted as it happens. The pool's lock is not waited for."""
    found, pool = node.metrics, node.pool
    found.set("outrider_pool_limit_bytes", pool.settings.limit_bytes)
    if node.is_index_ready and pool.index.is_open:
        taken = pool.index.taken()
        found.set("outrider_pool_used_bytes", pool.index.used_bytes())
        reserved = sum(size for what, size in taken.items() if what.startswith("ingest:"))
        found.set("outrider_pool_reserved_bytes", reserved)
    if node.connections is not None:
        found.set("outrider_connections", node.connections())
    with disk_errors("counting the pool"):
        found.set("outrider_pool_images", len(pool.disk.names(pool.layout.folder("images"))))
        found.set("outrider_pool_instances", len(pool.disk.names(pool.layout.folder("instances"))))
    for state, count in node.transfers.counts().items():
        found.set("outrider_transfers", count, state)


def count_expired_pins(node: NodeContext) -> int:
    """Pins whose time is over: they hold nothing, and go with their image."""
    now_s = past_s(node.clock)
    return sum(
        pin.expires_s <= now_s
        for image in node.pool.images()
        for pin in pins.read_pins(node.pool.disk, node.pool.layout.image(image.digest))
    )


def may_see(caller: NodeCaller, transfer: PoolTransfer) -> bool:
    return caller.sees_all or caller.uid in transfer.wanted_by


def _visible_instances(node: NodeContext, caller: NodeCaller) -> list[InstanceEntry]:
    found = instance_book.instances(node.pool)
    return [instance_entry(each) for each in found if caller.sees_all or each.uid == caller.uid]
