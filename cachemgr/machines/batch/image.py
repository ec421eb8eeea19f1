"""The image of a job as the lowest layer of its machine's disk: the pool's own file, or the job's copy of it.

A job's instance is a copy, or an overlay that names the pool's image below it. The machine has layers of its
own, which outlive the instance; so an overlay is passed over, and what lies below it is the
same file whenever the image is here.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest, Unsuitable
from cachemgr.instances.formats import HEAD_BYTES
from cachemgr.instances.qcow2 import (
    BACKING_FORMAT,
    EXTENSION,
    MAGIC,
    V2_HEADER,
    V3_HEADER_BYTES,
    inspect_qcow2,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.base.disk import Disk

IN_POOL = re.compile(r".*/images/([0-9a-f]{64})(?:/.*)?")
MOST_PATH = 1023
FORMATS = ("raw", "qcow2")


@dataclass(frozen=True)
class BaseImage:
    """A disk that a machine reads and never writes."""

    path: str
    format: str
    digest: str = ""
    """Of the image, where its path in the pool tells it."""


def base_image(disk: Disk, path: str) -> BaseImage:
    """What a machine's disk stands on. The instance was made by the pool, for this user alone."""
    if not path.startswith("/"):
        raise BadRequest("the job has no image on this node: its prolog has not named one")
    if not os.path.isfile(path):
        raise Unsuitable(f"{path} is no disk: a machine needs an image in the format qcow2 or raw")
    with closing(disk.open(path)) as handle:
        head = handle.read_at(0, HEAD_BYTES)
    if not head.startswith(MAGIC):
        return _named(path, "raw")
    backing_at, backing_bytes = V2_HEADER.unpack_from(head)[2:4]
    if not backing_bytes:
        inspect_qcow2(head)
        return _named(path, "qcow2")
    if backing_bytes > MOST_PATH or backing_at + backing_bytes > len(head):
        raise Unsuitable(f"{path} names no file of the pool below it")
    below = head[backing_at : backing_at + backing_bytes].decode(errors="replace")
    if IN_POOL.fullmatch(below) is None:
        raise Unsuitable(f"{path} stands on {below[:80]!r}, which is no image of a pool")
    return _named(below, _backing_format(head))


def _named(path: str, kind: str) -> BaseImage:
    found = IN_POOL.fullmatch(path)
    return BaseImage(path, kind, found[1] if found else "")


def _backing_format(head: bytes) -> str:
    """The format below, as the pool has written it into an overlay: it is never guessed."""
    kind, length = EXTENSION.unpack_from(head, V3_HEADER_BYTES)
    name = head[V3_HEADER_BYTES + EXTENSION.size :][:length].decode(errors="replace")
    if kind != BACKING_FORMAT or name not in FORMATS:
        raise Unsuitable(f"an image in the format {name[:20]!r} is no disk for a machine: qcow2 or raw is")
    return name
