"""The verbs that steer: transfers and their rates, evictions, checks. Mostly for administrators."""

from __future__ import annotations

import dataclasses

from cachemgr.base.errors import BadRequest, Busy, Missing, NotAllowed
from cachemgr.daemon.verbs import access
from cachemgr.daemon.verbs.looking import may_see
from cachemgr.daemon.verbs.shapes import transfer_fields
from cachemgr.pool import check as checks
from cachemgr.pool import room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.line import Line
    from cachemgr.daemon.network.peer import Caller
    from cachemgr.daemon.node import Node
    from cachemgr.daemon.verbs.requests import Request

MOST_FINDINGS = 1000


def transfer_set(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    name = request.text("transfer")
    has_rate = "rate_bytes_per_s" in request
    rate = request.optional_number("rate_bytes_per_s")
    deadline_s = request.optional_number("deadline_s")
    is_cancelled = request.truth("cancel")
    is_paused, is_resumed = request.truth("pause"), request.truth("resume")
    request.finish()
    if is_paused and is_resumed:
        raise BadRequest("a transfer can be paused or resumed, not both")
    found = node.transfers.get(name)
    if not may_see(caller, found):
        raise Missing(f"there is no transfer {name[:40]!r}: it may have ended long ago")
    if found.has_ended:
        raise Missing(f"the transfer {name} has ended: it is {found.state}")
    is_alone = caller.sees_all or found.wanted_by == {caller.uid}
    if not is_alone and (has_rate or is_paused or is_resumed):
        raise NotAllowed(f"others wait for the transfer {name} too: only root can change it")
    is_later = None not in (deadline_s, found.deadline_s) and (deadline_s or 0) > (found.deadline_s or 0)
    if not is_alone and is_later:
        raise NotAllowed(f"others wait for the transfer {name} too: only root can put its deadline off")
    if is_cancelled:
        reason = f"uid {caller.uid} asked for it"
        if is_alone:
            node.transfers.cancel(found, reason)
        else:
            node.transfers.leave(found, caller.uid, reason)
    if has_rate:
        found.limit.set(rate or None)
        found.is_rate_roots = caller.is_privileged
    if deadline_s is not None:
        node.transfers.set_deadline(found, deadline_s, is_ordinary=not caller.is_privileged)
    if is_paused or is_resumed:
        node.transfers.hold(found, is_held=is_paused, is_by_waiting=not caller.sees_all)
    node.log.info(
        "transfer changed", culprit=caller.culprit, transfer=name, uid=caller.uid, state=found.state
    )
    return transfer_fields(node, found)


def limits(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    """Rates of the whole node; 0 is no limit. Without a field, what holds now."""
    is_change = "rate_bytes_per_s" in request or "relay_rate_bytes_per_s" in request
    rate = request.optional_number("rate_bytes_per_s")
    relay_rate = request.optional_number("relay_rate_bytes_per_s")
    request.finish()
    if is_change:
        access.require_privilege(caller, "changing the node's rates")
    if rate is not None:
        node.transfers.limit.set(rate or None)
    if relay_rate is not None:
        node.relay_limit.set(relay_rate or None)
    if is_change:
        node.log.info("rates changed", rate_bytes_per_s=rate, relay_rate_bytes_per_s=relay_rate)
    return {
        "rate_bytes_per_s": node.transfers.limit.rate_bytes_per_s or 0,
        "relay_rate_bytes_per_s": node.relay_limit.rate_bytes_per_s or 0,
    }


def evict(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    access.require_privilege(caller, "evicting images")
    name, need_bytes = request.optional_text("name"), request.optional_number("need_bytes")
    request.finish()
    if (name is None) == (need_bytes is None):
        raise BadRequest("evicting needs either a name or need_bytes")
    node.index.reason.word = "asked"
    try:
        if name is not None:
            image = access.find_visible(node, caller, name)
            with node.pool.changing(f"evicting image {image.short}"):
                is_evicted = room.evict(node.pool, image.digest)
            if not is_evicted and node.pool.image(image.digest) is not None:
                raise Busy(f"image {image.short} is pinned or in use: see who holds it with `show`")
            evicted = [image.digest]
        else:
            with node.pool.changing("evicting images"):
                evicted = room.make_room(node.pool, need_bytes or 0, "the space asked for")
    finally:
        node.index.reason.word = "room"
    node.poke("aliases", node.clock.now_s())
    node.log.info("images evicted", count=len(evicted), uid=caller.uid)
    return {"evicted": [f"sha256:{digest}" for digest in evicted]}


def check(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    access.require_privilege(caller, "checking the pool")
    is_fixing, has_digests = request.truth("fix"), request.truth("digests")
    request.finish()
    found = checks.check(node.pool, node.maker, fix=is_fixing)
    if has_digests:
        found += checks.check_contents(node.pool, fix=is_fixing)
    node.log.info("pool checked", findings=len(found), fix=is_fixing)
    shown = [dataclasses.asdict(each) for each in found[:MOST_FINDINGS]]
    return {"findings": shown, "count": len(found)}
