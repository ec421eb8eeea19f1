"""The verb `promise`: how many bytes are promised to reservations here, and what is in their way."""

from __future__ import annotations

from cachemgr.base.errors import BadRequest
from cachemgr.config import share_bytes
from cachemgr.daemon.copies import copied_formats
from cachemgr.daemon.verbs import access, quota
from cachemgr.pool.held import promise as hold
from cachemgr.protocol import HeldEntry, PromisedRoom, PromiseRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.verbs.requests import VerbRequest
    from cachemgr.pool.held import PoolAccount, PoolHolding

# So many things are told one by one; the smallest of more are told as one.
MOST_TOLD = 500


def promise(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> PromisedRoom:
    """Hold so many bytes until then; without `size_bytes`, only say what holds."""
    access.require_privilege(caller, "promising bytes")
    wanted = request.read(PromiseRequest)
    size_bytes, until_s = wanted.size_bytes, wanted.until_s
    if (size_bytes is None) != (until_s is None):
        raise BadRequest("promising bytes needs both size_bytes and until_s")
    if size_bytes is not None and until_s is not None:
        # Nobody is admitted by what was promised before.
        with node.admission:
            hold(node.pool, size_bytes, until_s)
    found = quota.account_of(node)
    gauge_held(node, found)
    return PromisedRoom(
        limit_bytes=found.limit_bytes,
        capacity_bytes=found.capacity_bytes,
        promised_bytes=found.promised_bytes,
        users_bytes=share_bytes(node.config.users_bytes, found.limit_bytes) or found.limit_bytes,
        copied_formats=copied_formats(node),
        others=_told([each for each in found.holdings if each.is_others]),
    )


def gauge_held(node: NodeContext, found: PoolAccount) -> None:
    node.metrics.set("outrider_pool_capacity_bytes", found.capacity_bytes)
    node.metrics.set("outrider_pool_promised_bytes", found.promised_bytes)
    node.metrics.set("outrider_pool_held_bytes", found.others_bytes)


def _told(holdings: list[PoolHolding]) -> tuple[HeldEntry, ...]:
    """What others hold, the largest first. Whose it is, is nobody's business on another machine."""
    holdings = sorted(holdings, key=lambda each: (-each.size_bytes, each.key))
    told = [
        HeldEntry(f"sha256:{each.digest}" if each.digest else None, each.size_bytes, each.until_s)
        for each in holdings[:MOST_TOLD]
    ]
    rest = holdings[MOST_TOLD:]
    if rest:
        until_s = max(each.until_s for each in rest)
        told.append(HeldEntry(None, sum(each.size_bytes for each in rest), until_s))
    return tuple(told)
