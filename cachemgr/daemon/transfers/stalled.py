"""Bytes that are reserved for a user's image and do not come: after a while they are given up.

A source may say that it has 300 MB and send nothing, or a byte a minute. Its user would hold the
room, by a pin for a month, without any bytes having come.
"""

from __future__ import annotations

import os

from cachemgr.daemon.node import LastAdvance
from cachemgr.daemon.transfers.schedule import PAUSED, WAITING
from cachemgr.daemon.verbs.shapes import arrived_bytes
from cachemgr.pool import pins
from cachemgr.pool.held import is_promise
from cachemgr.pool.ingest import drop_unwritten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.transfers.transfer import PoolTransfer
    from cachemgr.pool.ingest import Ingest

# Less than this is next to nothing, unless it is all that was missing.
LEAST_BYTES = 256 << 10


def sweep_stalled(node: NodeContext) -> int | None:
    """Give up what has stalled; when to look next."""
    now_s = node.clock.monotonic_s()
    watched: dict[str, LastAdvance] = {}
    for ingest in node.pool.ingests():
        if not _is_ordinary(node, ingest):
            continue
        transfer = next((each for each in node.transfers.all() if _brings(each, ingest)), None)
        arrived = arrived_bytes(ingest, transfer)
        seen = node.stalled.get(ingest.key)
        if (
            seen is None
            or _is_moving(seen, arrived)
            or (transfer is not None and _waits_for_others(transfer))
        ):
            seen = LastAdvance(arrived, now_s)
        elif now_s - seen.since_s >= node.config.user_stall_s:
            _give_up(node, ingest, transfer)
        watched[ingest.key] = seen
    node.stalled = watched
    if not watched:
        return None
    oldest_s = min(seen.since_s for seen in watched.values())
    left_s = int(oldest_s + node.config.user_stall_s - now_s) + 1
    return node.clock.now_s() + max(1, left_s)


def _give_up(node: NodeContext, ingest: Ingest, transfer: PoolTransfer | None) -> None:
    """End its transfer, and then drop what it has: at this look or, while its thread ends, at the next."""
    words = f"almost nothing has come for {node.config.user_stall_s} s: look at its source, and add it again"
    if transfer is not None:
        node.transfers.cancel(transfer, words)
    if drop_unwritten(ingest, lambda there: _is_ordinary(node, there)):
        node.log.warning(
            "ingest given up",
            uri=ingest.image.uri,
            uid=ingest.image.owner_uid,
            size_bytes=ingest.size_bytes,
            reason=words,
        )


def _is_moving(seen: LastAdvance, arrived: int) -> bool:
    """Whether more than next to nothing has come, or it was begun anew."""
    return arrived - seen.arrived_bytes >= LEAST_BYTES or arrived < seen.arrived_bytes


def _is_ordinary(node: NodeContext, ingest: Ingest) -> bool:
    """Whether only ordinary users want it: what is promised waits for its source as long as it may."""
    trusted, now_s = {0, os.geteuid()}, node.clock.now_s()
    if ingest.image.owner_uid in trusted:
        return False
    found = pins.read_pins(node.pool.disk, ingest.folder)
    return not any(pins.holds(pin, now_s) and is_promise(pin, trusted) for pin in found)


def _brings(transfer: PoolTransfer, ingest: Ingest) -> bool:
    return transfer.key == ingest.key and not transfer.has_ended


def _waits_for_others(transfer: PoolTransfer) -> bool:
    """Whether it stands still because others have the slots, and not because somebody wants it so."""
    return transfer.state in (WAITING, PAUSED) and not transfer.is_held
