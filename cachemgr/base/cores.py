"""What a process knows stays in it: no core file has it, and no other process of its user reads it."""

from __future__ import annotations

import ctypes
import resource

_SET_DUMPABLE = 4


def forbid_cores() -> None:
    """Leave no core file, whatever the system does with them, here or in what is started from here.

    The limit alone is not enough: where the kernel hands cores to a program, it counts for nothing.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
