"""What a failed operation on the disk means to whoever runs a machine, and what has no room on it at all."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

from cachemgr.base.errors import BadRequest, CacheError, DiskFailed, NoDaemon, NoRoom
from cachemgr.base.sizes import in_words
from cachemgr.machines.qemu.layers import reserved_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cachemgr.machines.wish import MachineDisk

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def disk_trouble(doing: str) -> Iterator[None]:
    """Say what an operation that failed was for."""
    try:
        yield
    except CacheError:
        raise
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        said = f"{doing} failed: {error.strerror or error}{where}"
        if error.errno in FULL:
            raise NoRoom(f"{said}; make room and try again") from error
        raise DiskFailed(said) from error


def check_room(disks: Sequence[MachineDisk]) -> None:
    """Refuses a disk of which a part is promised to the images of reservations. What is free beside that is
    reserved when the machine is made; without a daemon nothing is promised."""
    if not disks:
        return
    # Few jobs have such a disk, and all would wait for the module.
    from cachemgr.network.client import DaemonClient

    try:
        with DaemonClient() as daemon:
            found = daemon.ask("machine-room")
    except (NoDaemon, BadRequest):
        # Or one that was begun before its programs were replaced, and does not know the question.
        return
    free_bytes, promised_bytes = found["free_bytes"], found["promised_bytes"]
    if not isinstance(free_bytes, int) or not isinstance(promised_bytes, int):
        raise CacheError("the node's daemon does not say how much room there is: is it of another version?")
    wanted_bytes = sum(map(reserved_bytes, disks))
    if wanted_bytes > free_bytes:
        node = os.uname().nodename
        promised = f" beside {in_words(promised_bytes)} that are promised to images" if promised_bytes else ""
        raise NoRoom(
            f"scratch takes {in_words(wanted_bytes)}, and {node} has {in_words(free_bytes)} for it{promised}"
            f": ask for less, or leave the node out with --exclude={node}"
        )
