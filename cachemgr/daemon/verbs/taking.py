"""What users take of everything that they share on this node: the verb `shares`, and its metrics."""

from __future__ import annotations

from collections import Counter

from cachemgr.base.shares import PLACES, Share
from cachemgr.daemon.verbs import quota
from cachemgr.pool import instance_book
from cachemgr.protocol import ListedShares, NoFields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext, Shared
    from cachemgr.daemon.verbs.requests import VerbRequest

# Of each thing so many are told: those who have most of it.
MOST_OF_A_THING = 50
REFUSED, LARGEST = "outrider_share_refused_total", "outrider_share_largest_ratio"


def shares(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> ListedShares:
    """Who has how much of what, and was refused more; ordinary users see their own."""
    request.read(NoFields)
    found = every_share(node)
    if not caller.sees_all:
        found = [each for each in found if each.user == str(caller.uid)]
    by_thing: dict[str, list[Share]] = {}
    for each in sorted(found, key=lambda row: (-row.held, -row.refused, row.user)):
        by_thing.setdefault(each.thing, []).append(each)
    told = [each for thing in sorted(by_thing) for each in by_thing[thing][:MOST_OF_A_THING]]
    return ListedShares(tuple(told))


def every_share(node: NodeContext) -> list[Share]:
    found = [share for source in _sources(node) for share in source.shares()]
    found += quota.shares(node)
    images = Counter(image.owner_uid for image in node.pool.images())
    images += Counter(ingest.image.owner_uid for ingest in node.pool.ingests())
    instances = Counter(each.uid for each in instance_book.instances(node.pool))
    counted = (
        ("images", images, node.config.user_images),
        ("instances", instances, node.config.user_instances),
    )
    for thing, held, most in counted:
        found += [Share(thing, PLACES, str(uid), count, most, 0) for uid, count in sorted(held.items())]
    return found


def gauge_shares(node: NodeContext) -> None:
    """Refusals, and the largest share, of each thing. No users: there may be any number of them."""
    for source in (*_sources(node), node.shared_bytes):
        for thing, count in source.refused().items():
            node.metrics.set_total(REFUSED, count, thing)
    largest: dict[str, float] = {}
    for each in every_share(node):
        if each.most:
            largest[each.thing] = max(largest.get(each.thing, 0.0), each.held / each.most)
    node.metrics.set_all(LARGEST, {(thing,): round(ratio, 3) for thing, ratio in largest.items()})


def _sources(node: NodeContext) -> list[Shared]:
    return [*node.shared, node.transfers, node.log, node.names, node.pins]
