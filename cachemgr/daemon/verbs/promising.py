"""The verb `promise`: how many bytes are promised to reservations here, and what is in their way; and whether
more would find room."""

from __future__ import annotations

from cachemgr.base.errors import BadRequest, NeverFits, NoRoom
from cachemgr.base.sizes import in_words
from cachemgr.config import share_bytes
from cachemgr.daemon.copies import copied_formats
from cachemgr.daemon.verbs import access, quota
from cachemgr.pool import room
from cachemgr.pool.held import promise as hold
from cachemgr.protocol import DryRun, EvictedImage, HeldEntry, PromisedRoom, PromiseRequest

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


def dry_run(node: NodeContext, size_bytes: int, *, is_arriving: bool = False) -> DryRun:
    """Whether that many bytes would find room, and what would have to leave."""
    if is_arriving:
        return DryRun(fits=True, is_present=False, evicted=())
    limit_bytes = node.pool.settings.limit_bytes
    if size_bytes > limit_bytes:
        raise NeverFits(f"{in_words(size_bytes)} never fit into the pool of {in_words(limit_bytes)}")
    with node.pool.changing("looking for room"):
        over_bytes = node.pool.index.used_bytes() + size_bytes - limit_bytes
        short_bytes = size_bytes + room.SPARE_BYTES - node.pool.disk.free_bytes(node.pool.layout.root)
        missing_bytes = max(over_bytes, short_bytes)
        chosen = [] if missing_bytes <= 0 else room.choose(node.pool, missing_bytes)
    if chosen is None:
        raise NoRoom(f"{in_words(size_bytes)} find no room: too much is pinned or arriving")
    evicted = tuple(EvictedImage(f"sha256:{each.key}", each.size_bytes) for each in chosen)
    return DryRun(fits=True, is_present=False, evicted=evicted)
