"""The objects in answers: an image, a pin, an instance, a transfer, as fields for the wire."""

from __future__ import annotations

from cachemgr.base.steady import past_s
from cachemgr.daemon.verbs.access import may_use
from cachemgr.pool import pins, room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.peer import Caller
    from cachemgr.daemon.node import Node
    from cachemgr.daemon.transfers.transfer import Transfer
    from cachemgr.pool.ingest import Ingest
    from cachemgr.pool.instance_book import Instance
    from cachemgr.pool.records import Image, Pin


def image_fields(node: Node, caller: Caller, image: Image) -> dict[str, object]:
    pool = node.pool
    uses, last_use_s = room.read_uses(pool.disk, f"{pool.layout.image(image.digest)}/uses")
    now_s = past_s(node.clock)
    fields: dict[str, object] = {
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
    }
    if may_use(pool, caller, image):
        fields["path"] = pool.data_path(image.digest)
    return fields


def arriving_fields(node: Node, caller: Caller, ingest: Ingest) -> dict[str, object]:
    image = ingest.image
    transfer = next((each for each in node.transfers.all() if each.key == ingest.key), None)
    fields: dict[str, object] = {
        "key": ingest.key,
        "uri": image.uri,
        "digest": f"sha256:{image.digest}" if image.digest else None,
        "size_bytes": image.size_bytes,
        "arrived_bytes": arrived_bytes(ingest, transfer),
        "owner_uid": image.owner_uid,
        "is_public": image.readers.is_public,
        "transfer": None if transfer is None or transfer.has_ended else transfer.name,
    }
    if caller.sees_all or caller.uid == image.owner_uid:
        fields["readers"] = {"uids": list(image.readers.uids), "gids": list(image.readers.gids)}
    return fields


def arrived_bytes(ingest: Ingest, transfer: Transfer | None) -> int:
    noted = ingest.arrived_bytes()
    return max(noted, transfer.arrived_bytes if transfer else 0)


def pin_fields(pin: Pin) -> dict[str, object]:
    return {
        "owner": pin.owner,
        "kind": pin.kind,
        "uid": pin.uid,
        "until_s": pin.expires_s,
        "from_s": pin.from_s,
    }


def instance_fields(instance: Instance) -> dict[str, object]:
    return {
        "instance": instance.key,
        "owner": instance.owner,
        "label": instance.label,
        "uid": instance.uid,
        "digest": f"sha256:{instance.digest}",
        "method": instance.method,
        "is_writable": instance.is_writable,
        "created_s": instance.created_s,
        "until_s": instance.expires_s,
        "path": instance.path,
        "mounts": list(instance.mounts),
        "seed": instance.seed,
        "state": "making" if not instance.is_ready else "prepared" if instance.mounts else "ready",
    }


def transfer_fields(node: Node, transfer: Transfer) -> dict[str, object]:
    progress, limit = transfer.progress, transfer.limit
    return {
        "transfer": transfer.name,
        "state": transfer.state,
        "uri": transfer.uri,
        "key": transfer.key,
        "bytes": transfer.arrived_bytes,
        "size_bytes": transfer.size_bytes,
        "rate_bytes_per_s": progress.rate_bytes_per_s if progress and not transfer.has_ended else 0,
        "finish_s": progress.finish_s if progress and not transfer.has_ended else None,
        "source": progress.source if progress else None,
        "deadline_s": transfer.deadline_s,
        "is_late": is_late(node, transfer),
        "limit_bytes_per_s": limit.rate_bytes_per_s,
        "wanted_by": sorted(transfer.wanted_by),
        "created_s": transfer.created_s,
        "ended_s": transfer.ended_s,
        "digest": f"sha256:{transfer.image.digest}" if transfer.image else None,
        "error": transfer.error.code if transfer.error else None,
        "message": str(transfer.error) if transfer.error else None,
    }


def progress_fields(node: Node, transfer: Transfer) -> dict[str, object]:
    names = ("transfer", "state", "bytes", "size_bytes", "rate_bytes_per_s", "finish_s", "source")
    fields = transfer_fields(node, transfer)
    return {name: fields[name] for name in names}


def is_late(node: Node, transfer: Transfer) -> bool:
    """Whether it ended after its deadline, or has not ended by then, or is not going to."""
    if transfer.deadline_s is None:
        return False
    if transfer.ended_s is not None:
        return transfer.ended_s > transfer.deadline_s
    finish_s = transfer.progress.finish_s if transfer.progress else None
    return max(finish_s or 0, node.clock.now_s()) > transfer.deadline_s
