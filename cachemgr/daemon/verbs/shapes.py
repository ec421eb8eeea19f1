"""The entries of answers: what the daemon tells of an image, a pin, an instance, a transfer."""

from __future__ import annotations

from cachemgr.base.steady import past_s
from cachemgr.daemon.verbs.access import may_use
from cachemgr.pool import pins, room
from cachemgr.protocol import (
    ArrivingEntry,
    ImageEntry,
    InstanceEntry,
    Readers,
    TransferEntry,
    TransferProgress,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.transfers.transfer import PoolTransfer
    from cachemgr.pool.ingest import Ingest
    from cachemgr.pool.instance_book import Instance
    from cachemgr.pool.records import PoolImage


def image_entry(node: NodeContext, caller: NodeCaller, image: PoolImage) -> ImageEntry:
    return ImageEntry(**image_fields(node, caller, image))


def image_fields(node: NodeContext, caller: NodeCaller, image: PoolImage) -> dict[str, Any]:
    """What every entry of an image has."""
    pool = node.pool
    uses, last_use_s = room.read_uses(pool.disk, f"{pool.layout.image(image.digest)}/uses")
    now_s = past_s(node.clock)
    return {
        "digest": f"sha256:{image.digest}",
        "size_bytes": image.size_bytes,
        "format": image.format,
        "uri": image.uri,
        "added_s": image.added_s,
        "owner_uid": image.owner_uid,
        "is_public": image.readers.is_public,
        "expires_s": image.expires_s,
        "uses": uses,
        "last_use_s": last_use_s,
        "pins": sum(pins.holds(pin, now_s) for pin in pool.pins(image.digest)),
        "path": pool.data_path(image.digest) if may_use(pool, caller, image) else None,
    }


def readers_of(caller: NodeCaller, image: PoolImage) -> Readers | None:
    """Whose it is beside its owner, for whoever may know."""
    if caller.sees_all or caller.uid == image.owner_uid:
        return Readers(image.readers.uids, image.readers.gids)
    return None


def arriving_entry(node: NodeContext, caller: NodeCaller, ingest: Ingest) -> ArrivingEntry:
    image = ingest.image
    transfer = next((each for each in node.transfers.all() if each.key == ingest.key), None)
    return ArrivingEntry(
        key=ingest.key,
        uri=image.uri,
        digest=f"sha256:{image.digest}" if image.digest else None,
        size_bytes=image.size_bytes if transfer is None else transfer.size_bytes,
        arrived_bytes=arrived_bytes(ingest, transfer),
        owner_uid=image.owner_uid,
        is_public=image.readers.is_public,
        transfer=None if transfer is None or transfer.has_ended else transfer.name,
        readers=readers_of(caller, image),
        owners=_owners(node, caller, ingest),
    )


def _owners(node: NodeContext, caller: NodeCaller, ingest: Ingest) -> tuple[str, ...]:
    """For whom the caller has pinned it. What cannot be read keeps nobody from seeing the rest."""
    try:
        found = pins.read_pins(node.pool.disk, ingest.folder)
    except OSError:
        return ()
    now_s = past_s(node.clock)
    return tuple(sorted(pin.owner for pin in found if pin.uid == caller.uid and pins.holds(pin, now_s)))


def arrived_bytes(ingest: Ingest, transfer: PoolTransfer | None) -> int:
    return max(ingest.arrived_bytes(), transfer.arrived_bytes if transfer else 0)


def instance_entry(instance: Instance) -> InstanceEntry:
    return InstanceEntry(
        instance=instance.key,
        owner=instance.owner,
        label=instance.label,
        uid=instance.uid,
        digest=f"sha256:{instance.digest}",
        method=instance.method,
        is_writable=instance.is_writable,
        created_s=instance.created_s,
        until_s=instance.expires_s,
        path=instance.path,
        mounts=instance.mounts,
        seed=instance.seed,
        state="making" if not instance.is_ready else "prepared" if instance.mounts else "ready",
    )


def transfer_entry(node: NodeContext, transfer: PoolTransfer) -> TransferEntry:
    return TransferEntry(
        **vars(transfer_progress(transfer)),
        uri=transfer.uri,
        key=transfer.key,
        deadline_s=transfer.deadline_s,
        is_late=is_late(node, transfer),
        limit_bytes_per_s=transfer.limit.rate_bytes_per_s,
        wanted_by=tuple(sorted(transfer.wanted_by)),
        created_s=transfer.created_s,
        ended_s=transfer.ended_s,
        digest=f"sha256:{transfer.image.digest}" if transfer.image else None,
        error=transfer.error.code if transfer.error else None,
        message=str(transfer.error) if transfer.error else None,
    )


def transfer_progress(transfer: PoolTransfer) -> TransferProgress:
    progress = transfer.progress
    moving = None if transfer.has_ended else progress
    return TransferProgress(
        transfer=transfer.name,
        state=transfer.state,
        bytes=transfer.arrived_bytes,
        size_bytes=transfer.size_bytes,
        rate_bytes_per_s=moving.rate_bytes_per_s if moving else 0,
        finish_s=moving.finish_s if moving else None,
        source=progress.source if progress else None,
    )


def is_late(node: NodeContext, transfer: PoolTransfer) -> bool:
    """Whether it ended after its deadline, or has not ended by then, or is not going to."""
    if transfer.deadline_s is None:
        return False
    if transfer.ended_s is not None:
        return transfer.ended_s > transfer.deadline_s
    finish_s = transfer.progress.finish_s if transfer.progress else None
    return max(finish_s or 0, node.clock.now_s()) > transfer.deadline_s
