"""The end of a job's machine on its node: its files go, and the folder that was made for it."""

from __future__ import annotations

import os
from contextlib import suppress

from cachemgr.base.errors import CacheError
from cachemgr.machines.qemu.process import BUSY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.machines.machine import Machine


def end_machine(machine: Machine, but: Sequence[str] = ()) -> None:
    """End a machine, whatever it does, and remove what it has left; not one in one of these states."""
    with suppress(CacheError, OSError):
        if machine.status().record.state in but:
            return
    with suppress(CacheError, OSError):
        machine.stop(0)
    remove_machine(machine)


def remove_machine(machine: Machine) -> None:
    """A machine that is over, with its folder; the lock of whoever works on it is the last file there."""
    with suppress(CacheError, OSError):
        machine.remove()
        os.unlink(f"{machine.folder}/{BUSY}")
        os.rmdir(machine.folder)
