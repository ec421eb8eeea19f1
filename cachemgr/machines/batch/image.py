"""The image of a job as the lowest layer of its machine's disk: the pool's own file, or the job's copy of it.

A job's instance is a copy, or an overlay that names the pool's image below it. The machine has layers of its
own, which outlive the instance; so an overlay is passed over, and what lies below it is the
same file whenever the image is here.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import dataclass, field

from cachemgr.base.errors import BadRequest, NotInPool, Unsuitable
from cachemgr.instances.formats import HEAD_BYTES
from cachemgr.instances.qcow2 import (
    BACKING_FORMAT,
    EXTENSION,
    MAGIC,
    V2_HEADER,
    V3_HEADER_BYTES,
    inspect_qcow2,
)
from cachemgr.machines.wish import MachineDisk
from cachemgr.protocol import FURTHER, JOB_OWNER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cachemgr.base.disk import Disk

ROOT = "root"
"""The disk that a machine boots from, or that its kernel finds first."""

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


@dataclass(frozen=True)
class JobImages:
    """The images of one machine, as they lie on its node."""

    root: BaseImage
    data: Mapping[str, BaseImage] = field(default_factory=dict)
    """By their names in the guest."""

    @property
    def disks(self) -> tuple[MachineDisk, ...]:
        """What it reads and never writes."""
        return tuple(
            MachineDisk(
                name, path=each.path, format=each.format, digest=each.digest or None, is_writable=False
            )
            for name, each in self.data.items()
        )

    @property
    def all(self) -> dict[str, BaseImage]:
        """By the names of their disks."""
        return {ROOT: self.root, **self.data}


def job_images(disk: Disk, key: str, path: str, number: int, data: Sequence[str]) -> JobImages:
    """The images of a job's machine: the first disk is that of `path`, or the further one of that number."""
    if not data and not number:
        return JobImages(base_image(disk, path))
    found = further_paths(key)
    for each in (*range(1, len(data) + 1), number):
        if each and each not in found:
            raise NotInPool(
                f"image {each + 1} of the job is not on {os.uname().nodename}: somebody let the job start "
                "before its images were here; submit it again"
            )
    root = base_image(disk, found[number] if number else path)
    return JobImages(root, {name: base_image(disk, found[n]) for n, name in enumerate(data, 1)})


def further_paths(key: str) -> dict[int, str]:
    """Where the daemon has the images that this job was promised beside its own, by their numbers."""
    # Few jobs have any, and all would wait for the module.
    from cachemgr.network.client import DaemonClient

    with DaemonClient() as daemon:
        listed = daemon.ask("instances")["instances"]
    owner = f"{JOB_OWNER}{key.replace('-', '.')}"
    found = [each for each in listed if each["owner"] == owner and each["state"] == "ready"]
    numbers = [(each["label"].rpartition(FURTHER)[2], each["path"]) for each in found]
    return {int(number): path for number, path in numbers if number.isdigit()}


def base_image(disk: Disk, path: str) -> BaseImage:
    """What a machine's disk stands on. The instance was made by the pool, for this user alone."""
    if not path.startswith("/"):
        raise BadRequest("the job has no image on this node: its prolog has not named one")
    if not os.path.isfile(path):
        raise Unsuitable(f"{path} is not a disk: a machine needs an image in the format qcow2 or raw")
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
        raise Unsuitable(f"{path} stands on {below[:80]!r}, which is not an image of a pool")
    return _named(below, _backing_format(head))


def _named(path: str, kind: str) -> BaseImage:
    found = IN_POOL.fullmatch(path)
    return BaseImage(path, kind, found[1] if found else "")


def _backing_format(head: bytes) -> str:
    """The format below, as the pool has written it into an overlay: it is never guessed."""
    kind, length = EXTENSION.unpack_from(head, V3_HEADER_BYTES)
    name = head[V3_HEADER_BYTES + EXTENSION.size :][:length].decode(errors="replace")
    if kind != BACKING_FORMAT or name not in FORMATS:
        raise Unsuitable(f"an image in the format {name[:20]!r} is not a disk for a machine: qcow2 or raw is")
    return name
