"""The verbs that steer: transfers and their rates, evictions, checks. Mostly for administrators."""

from __future__ import annotations

import dataclasses

from cachemgr.base.errors import BadRequest, InUse, NotAllowed, NotInPool
from cachemgr.daemon.verbs import access
from cachemgr.daemon.verbs.looking import may_see
from cachemgr.daemon.verbs.shapes import transfer_entry
from cachemgr.pool import check as checks
from cachemgr.pool import room
from cachemgr.protocol import (
    Checked,
    CheckRequest,
    Evicted,
    EvictRequest,
    NodeRates,
    RateChange,
    TransferChange,
    TransferEntry,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.verbs.requests import VerbRequest

MOST_FINDINGS = 1000


def transfer_set(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> TransferEntry:
    wanted = request.read(TransferChange)
    name, rate, deadline_s = wanted.transfer, wanted.rate_bytes_per_s, wanted.deadline_s
    if wanted.pause and wanted.resume:
        raise BadRequest("a transfer can be paused or resumed, not both")
    found = node.transfers.get(name)
    if not may_see(caller, found):
        raise NotInPool(f"there is no transfer {name[:40]!r}: it may have ended long ago")
    if found.has_ended:
        raise NotInPool(f"the transfer {name} has ended: it is {found.state}")
    is_alone = caller.sees_all or found.wanted_by == {caller.uid}
    if not is_alone and (rate is not None or wanted.pause or wanted.resume):
        raise NotAllowed(f"others wait for the transfer {name} too: only root can change it")
    is_later = None not in (deadline_s, found.deadline_s) and (deadline_s or 0) > (found.deadline_s or 0)
    if not is_alone and is_later:
        raise NotAllowed(f"others wait for the transfer {name} too: only root can put its deadline off")
    if wanted.cancel:
        reason = f"uid {caller.uid} asked for it"
        if is_alone:
            node.transfers.cancel(found, reason)
        else:
            node.transfers.leave(found, caller.uid, reason)
    if rate is not None:
        found.limit.set(rate or None)
        found.is_rate_roots = caller.is_privileged
    if deadline_s is not None:
        node.transfers.set_deadline(found, deadline_s, is_ordinary=not caller.is_privileged)
    if wanted.pause or wanted.resume:
        node.transfers.hold(found, is_held=wanted.pause, is_by_waiting=not caller.sees_all)
    node.log.info(
        "transfer changed", culprit=caller.culprit, transfer=name, uid=caller.uid, state=found.state
    )
    return transfer_entry(node, found)


def limits(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> NodeRates:
    """Rates of the whole node; 0: no limit. Without a field, what holds now."""
    wanted = request.read(RateChange)
    rate, relay_rate = wanted.rate_bytes_per_s, wanted.relay_rate_bytes_per_s
    is_change = wanted != RateChange()
    if is_change:
        access.require_privilege(caller, "changing the node's rates")
    if rate is not None:
        node.transfers.limit.set(rate or None)
    if relay_rate is not None:
        node.relay_limit.set(relay_rate or None)
    if is_change:
        node.log.info("rates changed", rate_bytes_per_s=rate, relay_rate_bytes_per_s=relay_rate)
    return NodeRates(node.transfers.limit.rate_bytes_per_s or 0, node.relay_limit.rate_bytes_per_s or 0)


def evict(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> Evicted:
    access.require_privilege(caller, "evicting images")
    wanted = request.read(EvictRequest)
    name, need_bytes = wanted.name, wanted.need_bytes
    if (name is None) == (need_bytes is None):
        raise BadRequest("evicting needs either a name or need_bytes")
    node.index.reason.word = "asked"
    try:
        if name is not None:
            image = access.find_visible(node, caller, name)
            with node.pool.changing(f"evicting image {image.short}"):
                is_evicted = room.evict(node.pool, image.digest)
            if not is_evicted and node.pool.image(image.digest) is not None:
                raise InUse(f"image {image.short} is pinned or in use: see who holds it with `show`")
            evicted = [image.digest]
        else:
            with node.pool.changing("evicting images"):
                evicted = room.make_room(node.pool, need_bytes or 0, "the space asked for")
    finally:
        node.index.reason.word = "room"
    node.poke("aliases", node.clock.now_s())
    node.log.info("images evicted", count=len(evicted), uid=caller.uid)
    return Evicted(tuple(f"sha256:{digest}" for digest in evicted))


def check(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> Checked:
    access.require_privilege(caller, "checking the pool")
    wanted = request.read(CheckRequest)
    found = checks.check(node.pool, node.maker, fix=wanted.fix)
    if wanted.digests:
        found += checks.check_contents(node.pool, fix=wanted.fix)
    node.log.info("pool checked", findings=len(found), fix=wanted.fix)
    return Checked(tuple(dataclasses.asdict(each) for each in found[:MOST_FINDINGS]), len(found))
