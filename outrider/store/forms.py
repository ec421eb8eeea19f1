"""The core's values as JSON text and back.

Every document has a version and exactly the fields that this version knows. One more is the
work of a later version, and half-understood promises are not carried on with.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from outrider.core.images.pools import Lingering
from outrider.core.links.links import TransferStanding
from outrider.core.model import Image, NodeSlot, Placement, Reservation, Resources, Transfer, Workspace
from outrider.core.restart.snapshot import (
    KeptBestEffort,
    KeptCopy,
    KeptHold,
    KeptPool,
    KeptReservation,
    KeptTransfer,
)
from outrider.store.errors import Damaged, TooMuch, TooNew
from outrider.store.fields import StoredFields

VERSION = 1
MOST_CHARACTERS = 8 << 20
MOST_SHARED = 1 << 15

T = TypeVar("T")


def write_reservation(kept: KeptReservation) -> str:
    reservation = kept.reservation
    return _dump(
        {
            "workspace": _workspace(reservation.workspace),
            "start_s": reservation.start_s,
            "end_s": reservation.end_s,
            "placements": [[each.node, each.instances] for each in reservation.placements],
            "transfers": list(reservation.transfers),
            "holds": [_hold(each) for each in kept.holds],
        }
    )


def read_reservation(text: str) -> KeptReservation:
    return _read("a reservation", text, _read_reservation)


def _read_reservation(fields: StoredFields) -> KeptReservation:
    reservation = Reservation(
        workspace=_read_workspace(fields.fields("workspace")),
        start_s=fields.number("start_s"),
        end_s=fields.number("end_s"),
        placements=tuple(
            _placement(node, instances) for node, instances in fields.rows("placements", str, int)
        ),
        transfers=tuple(fields.numbers("transfers")),
    )
    return KeptReservation(reservation=reservation, holds=_read_holds(fields))


def write_transfer(kept: KeptTransfer) -> str:
    transfer, standing = kept.transfer, kept.standing
    return _dump(
        {
            "number": transfer.number,
            "image": _image(transfer.image),
            "nodes": list(transfer.nodes),
            "duration_s": transfer.duration_s,
            "release_s": transfer.release_s,
            "deadline_s": transfer.deadline_s,
            "on_disk_s": kept.on_disk_s,
            "ready_s": kept.ready_s,
            "standing": None
            if standing is None
            else {
                "has_begun": standing.has_begun,
                "start_s": standing.start_s,
                "end_s": standing.end_s,
                "left_bytes": standing.left_bytes,
            },
            "unwanted": [list(each) for each in kept.unwanted],
        }
    )


def read_transfer(text: str) -> KeptTransfer:
    return _read("a transfer", text, _read_transfer)


def _read_transfer(fields: StoredFields) -> KeptTransfer:
    transfer = Transfer(
        number=fields.number("number"),
        image=_read_image(fields.fields("image")),
        nodes=tuple(fields.texts("nodes")),
        duration_s=fields.number("duration_s"),
        release_s=fields.number("release_s"),
        deadline_s=fields.maybe_number("deadline_s"),
    )
    return KeptTransfer(
        transfer=transfer,
        on_disk_s=fields.number("on_disk_s"),
        ready_s=fields.number("ready_s"),
        standing=_read_standing(transfer, fields.maybe_fields("standing")),
        unwanted=tuple(
            (node, number, until_s) for node, number, until_s in fields.rows("unwanted", str, int, int)
        ),
    )


def write_run(kept: KeptBestEffort) -> str:
    return _dump(
        {
            "name": kept.name,
            "until_s": kept.until_s,
            "holds": [_hold(each) for each in kept.holds],
            "slots": [
                {
                    "node": slot.node,
                    "resources": dict(slot.resources.amounts),
                    "start_s": slot.start_s,
                    "end_s": slot.end_s,
                }
                for slot in kept.slots
            ],
        }
    )


def read_run(text: str) -> KeptBestEffort:
    return _read("a run", text, _read_run)


def _read_run(fields: StoredFields) -> KeptBestEffort:
    return KeptBestEffort(
        name=fields.text("name"),
        until_s=fields.number("until_s"),
        holds=_read_holds(fields),
        slots=tuple(_read_slot(StoredFields("a run's slot", each)) for each in fields.items("slots")),
    )


def write_pool(kept: KeptPool) -> str:
    return _dump(
        {
            "node": kept.node,
            "lingering": [
                {
                    "key": each.key,
                    "size_bytes": each.size_bytes,
                    "added_s": each.added_s,
                    "uses": each.uses,
                    "last_use_s": each.last_use_s,
                    "next_use_s": each.next_use_s,
                }
                for each in kept.lingering
            ],
            "leaving": [
                {
                    "image": _image(each.image),
                    "number": each.number,
                    "ready_s": each.ready_s,
                    "expires_s": each.expires_s,
                }
                for each in kept.leaving
            ],
            "uses": [list(each) for each in kept.uses],
        }
    )


def read_pool(text: str) -> KeptPool:
    return _read("a pool", text, _read_pool)


def _read_pool(fields: StoredFields) -> KeptPool:
    return KeptPool(
        node=fields.text("node"),
        lingering=tuple(
            _read_lingering(StoredFields("an image", each)) for each in fields.items("lingering")
        ),
        leaving=tuple(_read_copy(StoredFields("a copy", each)) for each in fields.items("leaving")),
        uses=tuple((key, count) for key, count in fields.rows("uses", str, int)),
    )


def _dump(fields: dict[str, object]) -> str:
    text = json.dumps({"version": VERSION, **fields}, separators=(",", ":"))
    if len(text) > MOST_CHARACTERS:
        raise TooMuch(f"a document of {len(text)} characters is more than the {MOST_CHARACTERS} that fit")
    return text


def _read(what: str, text: str, build: Callable[[StoredFields], T]) -> T:
    try:
        fields = StoredFields(what, json.loads(text))
        version = fields.number("version")
        if version > VERSION:
            raise TooNew(
                f"{what} in the store has version {version}, this program reads {VERSION}: upgrade it"
            )
        value = build(fields)
        fields.done()
    except ValueError as error:
        raise Damaged(f"{what} in the store cannot be read: put a backup back ({error})") from error
    return value


def _workspace(workspace: Workspace) -> dict[str, object]:
    return {
        "name": workspace.name,
        "instances": workspace.instances,
        "resources": dict(workspace.resources.amounts),
        "duration_s": workspace.duration_s,
        "image": None if workspace.image is None else _image(workspace.image),
        "start_s": workspace.start_s,
        "finish_by_s": workspace.finish_by_s,
        "is_parallel": workspace.is_parallel,
        "is_preemptible": workspace.is_preemptible,
    }


def _read_workspace(fields: StoredFields) -> Workspace:
    image = fields.maybe_fields("image")
    workspace = Workspace(
        name=fields.text("name"),
        instances=fields.number("instances"),
        resources=_read_resources(fields.fields("resources")),
        duration_s=fields.number("duration_s"),
        image=None if image is None else _read_image(image),
        start_s=fields.maybe_number("start_s"),
        finish_by_s=fields.maybe_number("finish_by_s"),
        is_parallel=fields.claim("is_parallel"),
        is_preemptible=fields.claim("is_preemptible"),
    )
    fields.done()
    return workspace


def _read_resources(fields: StoredFields) -> Resources:
    return Resources.from_mapping({name: fields.number(name) for name in fields.names()})


def _image(image: Image) -> dict[str, object]:
    return {"uri": image.uri, "size_bytes": image.size_bytes, "digest": image.digest}


def _read_image(fields: StoredFields) -> Image:
    image = _known_image(fields.text("uri"), fields.number("size_bytes"), fields.text("digest"))
    fields.done()
    return image


# A site has few images and few nodes for its many reservations: equal values are one in memory.
@lru_cache(maxsize=MOST_SHARED)
def _known_image(uri: str, size_bytes: int, digest: str) -> Image:
    return Image(uri=uri, size_bytes=size_bytes, digest=digest)


@lru_cache(maxsize=MOST_SHARED)
def _placement(node: str, instances: int) -> Placement:
    return Placement(node=node, instances=instances)


def _hold(hold: KeptHold) -> dict[str, object]:
    return {
        "image": _image(hold.image),
        "copies": [list(each) for each in hold.copies],
        "transfer": hold.transfer,
        "since_s": hold.since_s,
    }


def _read_holds(fields: StoredFields) -> tuple[KeptHold, ...]:
    holds: list[KeptHold] = []
    for item in fields.items("holds"):
        each = StoredFields("a hold", item)
        holds.append(
            KeptHold(
                image=_read_image(each.fields("image")),
                copies=tuple((node, number) for node, number in each.rows("copies", str, int)),
                transfer=each.maybe_number("transfer"),
                since_s=each.number("since_s"),
            )
        )
        each.done()
    return tuple(holds)


def _read_standing(transfer: Transfer, fields: StoredFields | None) -> TransferStanding | None:
    if fields is None:
        return None
    standing = TransferStanding(
        transfer=transfer,
        has_begun=fields.claim("has_begun"),
        start_s=fields.maybe_number("start_s"),
        end_s=fields.maybe_number("end_s"),
        left_bytes=fields.maybe_number("left_bytes"),
    )
    fields.done()
    return standing


def _read_slot(fields: StoredFields) -> NodeSlot:
    slot = NodeSlot(
        node=fields.text("node"),
        resources=_read_resources(fields.fields("resources")),
        start_s=fields.number("start_s"),
        end_s=fields.number("end_s"),
    )
    fields.done()
    return slot


def _read_lingering(fields: StoredFields) -> Lingering:
    lingering = Lingering(
        key=fields.text("key"),
        size_bytes=fields.number("size_bytes"),
        added_s=fields.number("added_s"),
        uses=fields.number("uses"),
        last_use_s=fields.number("last_use_s"),
        next_use_s=fields.maybe_number("next_use_s"),
    )
    fields.done()
    return lingering


def _read_copy(fields: StoredFields) -> KeptCopy:
    copy = KeptCopy(
        image=_read_image(fields.fields("image")),
        number=fields.number("number"),
        ready_s=fields.number("ready_s"),
        expires_s=fields.number("expires_s"),
    )
    fields.done()
    return copy
