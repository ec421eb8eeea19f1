"""Where things lie in a pool: the folders, and what makes a path of a digest or a name."""

from __future__ import annotations

import errno
import json
from contextlib import contextmanager

from cachemgr.base.errors import BadRequest, CacheError, DiskFailed, NotInPool, PoolDamaged
from cachemgr.pool.policies import POLICIES
from cachemgr.pool.records import MOST_BYTES, decode, file_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cachemgr.base.disk import Disk

FORMAT = "outrider-pool"
FOLDERS = ("images", "ingest", "aliases", "instances", "trash")
# Users of the node reach what they may use by its path, and can list nothing.
SEARCHABLE = 0o711
PRIVATE = 0o700


class PoolLayout:
    """The paths of one pool."""

    __slots__ = ("root",)

    def __init__(self, root: str) -> None:
        if not root.startswith("/"):
            raise BadRequest(f"the pool {root!r} must be an absolute path")
        self.root = root.rstrip("/") or "/"

    @property
    def lock(self) -> str:
        return f"{self.root}/lock"

    @property
    def clock(self) -> str:
        return f"{self.root}/clock.json"

    @property
    def settings(self) -> str:
        return f"{self.root}/pool.json"

    @property
    def index(self) -> str:
        return f"{self.root}/index.sqlite"

    def folder(self, name: str) -> str:
        return f"{self.root}/{name}"

    def image(self, digest: str) -> str:
        return f"{self.root}/images/{digest}"

    def ingest(self, key: str) -> str:
        return f"{self.root}/ingest/{key}"

    def alias(self, name: str) -> str:
        return f"{self.root}/aliases/{file_name(name)}.json"

    def instance(self, key: str) -> str:
        return f"{self.root}/instances/{key}"

    def trash(self, name: str) -> str:
        return f"{self.root}/trash/{name}"


class PoolSettings:
    """What `init` was told of a pool: its limit and which image leaves first."""

    __slots__ = ("limit_bytes", "policy")

    def __init__(self, *, limit_bytes: int, policy: str) -> None:
        if limit_bytes <= 0:
            raise BadRequest(f"a pool of {limit_bytes} bytes holds nothing: give a limit above 0")
        if policy not in POLICIES:
            raise BadRequest(f"there is no policy {policy!r}: choose one of {', '.join(sorted(POLICIES))}")
        self.limit_bytes = limit_bytes
        self.policy = policy

    def encode(self) -> bytes:
        plain = {"format": FORMAT, "version": 1, "limit_bytes": self.limit_bytes, "policy": self.policy}
        return json.dumps(plain).encode() + b"\n"


REMEDY = "write it again with `cachemgr init --limit SIZE --policy POLICY`; the images stay"


def read_settings(disk: Disk, layout: PoolLayout) -> PoolSettings:
    try:
        data = disk.read(layout.settings, MOST_BYTES)
    except FileNotFoundError as error:
        raise NotInPool(
            f"{layout.root} is not a pool: make one with `cachemgr --pool {layout.root} init --limit SIZE`"
        ) from error
    found = decode(data, layout.settings, remedy=REMEDY)
    if found.get("format") != FORMAT:
        raise PoolDamaged(f"{layout.settings} does not describe a pool: {REMEDY}")
    try:
        return PoolSettings(limit_bytes=int(found["limit_bytes"]), policy=str(found["policy"]))
    except (KeyError, TypeError, ValueError) as error:
        raise PoolDamaged(f"{layout.settings} lacks {error}: {REMEDY}") from error


NOT_OURS = "permission denied: run this as the pool's user or as root, and let all in the pool be that user's"

MEANINGS = {
    errno.ENOSPC: "the disk is full: remove files, or lower the pool's limit",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is mounted read-only: repair it and mount it writable",
    errno.EIO: "the disk reports a fault: look at the kernel's log",
    errno.EACCES: NOT_OURS,
    errno.EPERM: NOT_OURS,
    errno.EMFILE: "too many open files: raise LimitNOFILE",
}


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Say what a failed operation on the disk was for, and what to do about it."""
    try:
        yield
    except CacheError:
        raise
    except OSError as error:
        meaning = MEANINGS.get(error.errno or 0, error.strerror or str(error))
        where = f" ({error.filename})" if error.filename else ""
        raise DiskFailed(f"{doing} failed: {meaning}{where}") from error
