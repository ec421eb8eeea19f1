"""The verbs that look: nothing changes by them."""

from __future__ import annotations

import os

from cachemgr import __version__
from cachemgr.base.steady import SteadyClock, past_s
from cachemgr.daemon.verbs import access
from cachemgr.daemon.verbs.shapes import (
    arriving_fields,
    image_fields,
    instance_fields,
    pin_fields,
    transfer_fields,
)
from cachemgr.daemon.verbs.taking import gauge_shares
from cachemgr.pool import instance_book, pins
from cachemgr.pool.layout import disk_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.line import Line
    from cachemgr.daemon.network.peer import Caller
    from cachemgr.daemon.node import Node
    from cachemgr.daemon.transfers.transfer import Transfer
    from cachemgr.daemon.verbs.requests import Request
    from cachemgr.pool.records import Image


def ping(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    request.finish()
    return {
        "version": __version__,
        "pid": os.getpid(),
        "uptime_s": int(node.clock.monotonic_s() - node.began_s),
        "now_s": node.clock.now_s(),
        "clock_trouble": node.clock.doubt if isinstance(node.clock, SteadyClock) else "",
        "pool": node.pool.layout.root,
        "is_index_ready": node.is_index_ready,
        "caller_uid": caller.real_uid,
        "node": node.config.node,
    }


def find(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    name = request.text("name")
    request.finish()
    return image_fields(node, caller, access.find_visible(node, caller, name))


def ls(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    request.finish()
    images = [image for image in node.pool.images() if access.may_use(node.pool, caller, image)]
    arriving = [ingest for ingest in node.pool.ingests() if access.may_see_arriving(caller, ingest.image)]
    return {
        "images": [_listed(node, caller, image) for image in images],
        "arriving": [arriving_fields(node, caller, ingest) for ingest in arriving],
    }


def _listed(node: Node, caller: Caller, image: Image) -> dict[str, object]:
    """An image as it is listed; whose it is beside its owner, to whoever may know."""
    fields = image_fields(node, caller, image)
    if not image.readers.is_public and (caller.sees_all or caller.uid == image.owner_uid):
        fields["readers"] = {"uids": list(image.readers.uids), "gids": list(image.readers.gids)}
    return fields


def show(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    name = request.text("name")
    request.finish()
    image = access.find_visible(node, caller, name)
    fields = image_fields(node, caller, image)
    held = [pin for pin in node.pool.pins(image.digest) if caller.sees_all or pin.uid == caller.uid]
    copies = [each for each in _visible_instances(node, caller) if each["digest"] == fields["digest"]]
    aliases = [alias for alias in node.pool.aliases() if alias.digest == image.digest]
    fields["pin_list"] = [pin_fields(pin) for pin in held]
    fields["instances"] = copies
    fields["aliases"] = [{"name": alias.name, "expires_s": alias.expires_s} for alias in aliases]
    if caller.sees_all or caller.uid == image.owner_uid:
        fields["readers"] = {"uids": list(image.readers.uids), "gids": list(image.readers.gids)}
    return fields


def instances(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    request.finish()
    return {"instances": _visible_instances(node, caller)}


def transfers(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    request.finish()
    seen = [each for each in node.transfers.all() if may_see(caller, each)]
    limit = node.transfers.limit.rate_bytes_per_s
    return {"transfers": [transfer_fields(node, each) for each in seen], "limit_bytes_per_s": limit}


def stats(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    request.finish()
    gauge(node)
    return dict(node.metrics.numbers())


def metrics(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    request.finish()
    gauge(node)
    gauge_shares(node)
    return {"text": node.metrics.text()}


def gauge(node: Node) -> None:
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


def count_expired_pins(node: Node) -> int:
    """Pins whose time is over: they hold nothing, and go with their image."""
    now_s = past_s(node.clock)
    return sum(
        pin.expires_s <= now_s
        for image in node.pool.images()
        for pin in pins.read_pins(node.pool.disk, node.pool.layout.image(image.digest))
    )


def may_see(caller: Caller, transfer: Transfer) -> bool:
    return caller.sees_all or caller.uid in transfer.wanted_by


def _visible_instances(node: Node, caller: Caller) -> list[dict[str, object]]:
    found = instance_book.instances(node.pool)
    return [instance_fields(each) for each in found if caller.sees_all or each.uid == caller.uid]
