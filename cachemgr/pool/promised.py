"""Bytes that the service has promised to reservations on this node: held for them before any has come.

One small file in the pool's folder says how many, and until when. The service says it again with
every call, so that what it holds ends by itself when it is gone, as pins do. The bytes of promised
images that are here or arriving are part of the number: it is what all promises take together at
their worst instant, and not what is still to come. So nothing has to be changed here when an image
arrives or leaves, and a call that is lost, late or doubled is no special case.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachemgr.base.disk import replace_file
from cachemgr.base.errors import BadRequest, PoolDamaged
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.pins import LONGEST_LEASE_S
from cachemgr.pool.records import MOST_BYTES, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.pool.pool import Pool

FILE = "promised.json"
REMEDY = "delete it; the service writes it again within minutes"


@dataclass(frozen=True)
class Promised:
    """So many bytes of the pool are promised, until then."""

    size_bytes: int = 0
    expires_s: int = 0


def read_promised(pool: Pool) -> Promised:
    """What is promised now: nothing, if it was never said or has expired."""
    path = f"{pool.layout.root}/{FILE}"
    with disk_errors(f"reading {path}"):
        try:
            found = decode(pool.disk.read(path, MOST_BYTES), path, REMEDY)
        except FileNotFoundError:
            return Promised()
    try:
        promised = Promised(int(found["size_bytes"]), int(found["expires_s"]))
    except (KeyError, TypeError, ValueError) as error:
        raise PoolDamaged(f"{path} lacks {error}: {REMEDY}") from error
    return promised if promised.expires_s > pool.clock.now_s() else Promised()


def promise(pool: Pool, size_bytes: int, expires_s: int) -> None:
    """Hold so many bytes until then, from the return on and over a power cut.

    It is said every few seconds while an image arrives. Written is what differs: another number,
    or an end that is later by more than a quarter of what is left.
    """
    now_s = pool.clock.now_s()
    if expires_s > now_s + LONGEST_LEASE_S:
        raise BadRequest(f"bytes can be promised for {LONGEST_LEASE_S // 86_400} days: say it again then")
    try:
        there = read_promised(pool)
    except PoolDamaged:
        there = Promised(-1)
    has_long = there.expires_s - now_s >= (expires_s - now_s) * 3 // 4
    if there.size_bytes == size_bytes and (has_long or not size_bytes):
        return
    path = f"{pool.layout.root}/{FILE}"
    with disk_errors(f"writing {path}"):
        data = encode({"size_bytes": size_bytes, "expires_s": expires_s})
        replace_file(pool.disk, path, data)
