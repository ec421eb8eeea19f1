"""Room on the node for the disks that are made for a job's machine, before the machine is begun."""

from __future__ import annotations

import os

from cachemgr.base.errors import CacheError, NoDaemon, NoRoom
from cachemgr.base.sizes import in_words
from cachemgr.machines.qemu.layers import reserved_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.machines.wish import MachineDisk


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
    except NoDaemon:
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
