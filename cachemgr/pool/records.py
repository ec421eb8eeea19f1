"""What is written beside an image: frozen values, and their form on the disk.

Every file is one JSON object with a version. What cannot be read is damage and says so; it
is never taken for an empty record, because the next write would make the loss permanent.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest, PoolDamaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 1
MOST_BYTES = 1 << 20
MOST_NAME = 4096
DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
FORMATS = ("raw", "qcow2", "squashfs", "sif", "bundle", "file", "layers")
# Who a pin is of decides nothing here; it tells people, and how soon it may be dropped.
PIN_KINDS = ("hold", "expect", "instance")


@dataclass(frozen=True)
class ImageAccess:
    """Who may use an image: everybody, or these users and groups (and always its owner)."""

    is_public: bool = True
    uids: tuple[int, ...] = ()
    gids: tuple[int, ...] = ()


PUBLIC = ImageAccess()


@dataclass(frozen=True)
class PoolImage:
    """An image in the pool. Without a digest it is still arriving and its digest unknown."""

    digest: str
    size_bytes: int
    format: str
    uri: str
    added_s: int
    owner_uid: int
    readers: ImageAccess
    expires_s: int | None = None
    # Other addresses that were found to give these bytes to anybody.
    read_at: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """A name for people: the last part of its address, and the digest's beginning."""
        return f"{self.uri.rpartition('/')[2] or self.uri} ({self.digest[:12] or 'digest unknown'})"

    @property
    def data_mode(self) -> int:
        """The mode of its data: nobody changes them, and private ones are the owner's."""
        return 0o444 if self.readers.is_public else 0o400


@dataclass(frozen=True)
class PoolPin:
    """A lease: its image stays until it expires or is given back.

    `expect` is the weak kind: it says when the image is likely to be needed next, which
    the calendar policy heeds, and does not prevent anything.
    """

    owner: str
    kind: str
    uid: int
    expires_s: int
    from_s: int


@dataclass(frozen=True)
class Alias:
    """A name, most often an address, that stands for a digest."""

    name: str
    digest: str
    expires_s: int | None = None
    # The ordinary user from whose request it comes; None if somebody privileged said so.
    uid: int | None = None


def digest_of(text: str) -> str | None:
    """The 64 digits of a digest, with or without `sha256:`; None if it is none."""
    found = DIGEST.fullmatch(text)
    return found[1] if found else None


def checked_digest(text: str) -> str:
    digest = digest_of(text)
    if digest is None:
        raise BadRequest(f"{text[:100]!r} is not a sha256 digest: write sha256: and 64 digits 0-9a-f")
    return digest


def checked_name(text: str, what: str) -> str:
    """A name that people give: printable, of a bounded length. It never becomes a path."""
    if not text or len(text) > MOST_NAME or not text.isprintable():
        raise BadRequest(f"{what} must have 1 to {MOST_NAME} printable characters, not {text[:60]!r}")
    return text


def is_ingest_key(name: str) -> bool:
    """Whether an ingest can be called so: by a digest or, while that is unknown, an address."""
    return re.fullmatch("u?[0-9a-f]{64}", name) is not None


def is_instance_key(name: str) -> bool:
    return re.fullmatch("[0-9a-f]{32}", name) is not None


def is_alias_file(name: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{64}\.json", name) is not None


def file_name(*names: str) -> str:
    """The name under which something called like that lies on the disk."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()


def encode(value: PoolImage | PoolPin | Alias | dict[str, Any]) -> bytes:
    plain = value if isinstance(value, dict) else dataclasses.asdict(value)
    return json.dumps({"version": VERSION, **plain}, sort_keys=True).encode() + b"\n"


def decode(data: bytes, path: str, remedy: str = "run `cachemgr check --fix`") -> dict[str, Any]:
    """The object in a file of ours, without its version."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise PoolDamaged(f"{path} is torn or was edited by hand: {remedy}") from error
    if not isinstance(found, dict) or not isinstance(found.get("version"), int):
        raise PoolDamaged(f"{path} has no version: {remedy}")
    if found.pop("version") > VERSION:
        raise PoolDamaged(f"{path} was written by a newer cachemgr: install that version or a later one")
    return found


def decode_image(data: bytes, path: str) -> PoolImage:
    found = decode(data, path)
    try:
        readers = ImageAccess(
            is_public=bool(found["readers"]["is_public"]),
            uids=tuple(int(uid) for uid in found["readers"]["uids"]),
            gids=tuple(int(gid) for gid in found["readers"]["gids"]),
        )
        return PoolImage(
            digest=str(found["digest"]),
            size_bytes=int(found["size_bytes"]),
            format=str(found["format"]),
            uri=str(found["uri"]),
            added_s=int(found["added_s"]),
            owner_uid=int(found["owner_uid"]),
            readers=readers,
            expires_s=_optional(found["expires_s"]),
            read_at=tuple(str(each) for each in found.get("read_at", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PoolDamaged(f"{path} lacks {error}: run `cachemgr check --fix`") from error


def decode_pin(data: bytes, path: str) -> PoolPin:
    found = decode(data, path)
    try:
        return PoolPin(
            owner=str(found["owner"]),
            kind=str(found["kind"]),
            uid=int(found["uid"]),
            expires_s=int(found["expires_s"]),
            from_s=int(found["from_s"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PoolDamaged(f"{path} lacks {error}: run `cachemgr check --fix`") from error


def decode_alias(data: bytes, path: str) -> Alias:
    found = decode(data, path)
    try:
        return Alias(
            name=str(found["name"]),
            digest=str(found["digest"]),
            expires_s=_optional(found["expires_s"]),
            # Earlier versions wrote none.
            uid=_optional(found.get("uid")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PoolDamaged(f"{path} lacks {error}: run `cachemgr check --fix`") from error


def _optional(value: object) -> int | None:
    return None if value is None else int(str(value))
