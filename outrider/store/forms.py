"""The core's values as JSON text and back.

Every document has a version and exactly the fields that this version knows. One more is the
work of a later version, and half-understood promises are not carried on with.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from outrider.core.images.pools import Lingering
from outrider.core.links.links import TransferStanding
from outrider.core.model import (
    Image,
    ImagePart,
    KeptHold,
    Placement,
    Reservation,
    Resources,
    Transfer,
    Workspace,
)
from outrider.core.restart.snapshot import (
    KeptCopy,
    KeptPool,
    KeptTransfer,
)
from outrider.store.errors import Damaged, TooMuch, TooNew
from outrider.store.fields import (
    CLAIM,
    NUMBER,
    TEXT,
    FieldKind,
    amounts,
    maybe,
    read_fields,
    record,
    rows,
    several,
    write_fields,
)

VERSION = 1
MOST_CHARACTERS = 8 << 20
MOST_SHARED = 1 << 15


# A site has few images and few nodes for its many reservations: equal values are one in memory.
@lru_cache(maxsize=MOST_SHARED)
def _known_image(
    uri: str, size_bytes: int, digest: str, parts: tuple[ImagePart, ...] = (), is_private: bool = False
) -> Image:
    return Image(uri=uri, size_bytes=size_bytes, digest=digest, parts=parts, is_private=is_private)


def _part(key: str, size_bytes: int) -> ImagePart:
    return ImagePart(key=key, size_bytes=size_bytes)


def _write_image(image: Image) -> object:
    return _IMAGES[bool(image.parts), image.is_private].write(image)


def _read_image(value: object, name: str, what: str) -> Image:
    """Of an image that is one file no parts are written, and only of a private one that it is private."""
    written = value if isinstance(value, dict) else {}
    return _IMAGES["parts" in written, "is_private" in written].read(value, name, what)


@lru_cache(maxsize=MOST_SHARED)
def _placement(node: str, instances: int) -> Placement:
    return Placement(node=node, instances=instances)


_RESOURCES = amounts(Resources.from_mapping, lambda resources: dict(resources.amounts))
_PARTS = rows(str, int, build=lambda each: _part(*each), write=lambda each: (each.key, each.size_bytes))
_FILE: dict[str, FieldKind[Any]] = {"uri": TEXT, "size_bytes": NUMBER, "digest": TEXT}
_IMAGES = {
    (False, False): record(_known_image, "", **_FILE),
    (False, True): record(_known_image, "", **_FILE, is_private=CLAIM),
    (True, False): record(_known_image, "", **_FILE, parts=_PARTS),
    (True, True): record(_known_image, "", **_FILE, parts=_PARTS, is_private=CLAIM),
}
_IMAGE: FieldKind[Image] = FieldKind(_write_image, _read_image)
_WORKSPACE = record(
    Workspace,
    name=TEXT,
    instances=NUMBER,
    resources=_RESOURCES,
    duration_s=NUMBER,
    image=maybe(_IMAGE),
    start_s=maybe(NUMBER),
    finish_by_s=maybe(NUMBER),
    is_parallel=CLAIM,
    is_preemptible=CLAIM,
)
_HOLDS = several(
    record(
        KeptHold,
        "a hold",
        image=_IMAGE,
        copies=rows(str, int, build=tuple, write=list),
        transfer=maybe(NUMBER),
        since_s=NUMBER,
    )
)
_PLACEMENTS = rows(
    str, int, build=lambda each: _placement(*each), write=lambda each: (each.node, each.instances)
)
_RESERVATION: dict[str, FieldKind[Any]] = {
    "workspace": _WORKSPACE,
    "start_s": NUMBER,
    "end_s": NUMBER,
    "placements": _PLACEMENTS,
    "transfers": several(NUMBER),
    "holds": _HOLDS,
}
_TRANSFER: dict[str, FieldKind[Any]] = {
    "number": NUMBER,
    "image": _IMAGE,
    "nodes": several(TEXT),
    "duration_s": NUMBER,
    "release_s": NUMBER,
    "deadline_s": maybe(NUMBER),
}
_LANES: dict[str, FieldKind[Any]] = {"lanes": several(TEXT)}
"""Of a transfer over several links; on one link they are not written."""
_STANDING: FieldKind[Any] = record(
    dict, has_begun=CLAIM, start_s=maybe(NUMBER), end_s=maybe(NUMBER), left_bytes=maybe(NUMBER)
)
_KEPT_TRANSFER: dict[str, FieldKind[Any]] = {
    "on_disk_s": NUMBER,
    "ready_s": NUMBER,
    "standing": maybe(_STANDING),
    "unwanted": rows(str, int, int, build=tuple, write=list),
}
_LINGERING = record(
    Lingering,
    "an image",
    key=TEXT,
    size_bytes=NUMBER,
    added_s=NUMBER,
    uses=NUMBER,
    last_use_s=NUMBER,
    next_use_s=maybe(NUMBER),
)
_COPY = record(KeptCopy, "a copy", image=_IMAGE, number=NUMBER, ready_s=NUMBER, expires_s=NUMBER)
_POOL: dict[str, FieldKind[Any]] = {
    "node": TEXT,
    "lingering": several(_LINGERING),
    "leaving": several(_COPY),
    "uses": rows(str, int, build=tuple, write=list),
}


def write_reservation(reservation: Reservation) -> str:
    return _dump(write_fields(reservation, _RESERVATION))


def read_reservation(text: str) -> Reservation:
    return Reservation(**_read("a reservation", text, _RESERVATION))


def write_transfer(kept: KeptTransfer) -> str:
    kinds = _TRANSFER | _LANES if kept.transfer.lanes else _TRANSFER
    return _dump(write_fields(kept.transfer, kinds) | write_fields(kept, _KEPT_TRANSFER))


def read_transfer(text: str) -> KeptTransfer:
    kinds = _TRANSFER | _LANES if '"lanes":' in text else _TRANSFER
    found = _read("a transfer", text, kinds | _KEPT_TRANSFER)
    transfer = Transfer(**{name: found.pop(name) for name in kinds})
    if (standing := found.pop("standing")) is not None:
        standing = TransferStanding(transfer=transfer, **standing)
    return KeptTransfer(transfer=transfer, standing=standing, **found)


def write_pool(kept: KeptPool) -> str:
    return _dump(write_fields(kept, _POOL))


def read_pool(text: str) -> KeptPool:
    return KeptPool(**_read("a pool", text, _POOL))


def _dump(fields: dict[str, object]) -> str:
    text = json.dumps({"version": VERSION, **fields}, separators=(",", ":"))
    if len(text) > MOST_CHARACTERS:
        raise TooMuch(f"a document of {len(text)} characters is more than the {MOST_CHARACTERS} that fit")
    return text


def _read(what: str, text: str, kinds: dict[str, FieldKind[Any]]) -> dict[str, Any]:
    try:
        fields = json.loads(text)
        version = NUMBER.read(fields.pop("version", None) if isinstance(fields, dict) else 0, "version", what)
        if version > VERSION:
            raise TooNew(
                f"{what} in the store has version {version}, this program reads {VERSION}: upgrade it"
            )
        return read_fields(fields, what, kinds)
    except ValueError as error:
        raise Damaged(f"{what} in the store cannot be read: put a backup back ({error})") from error
