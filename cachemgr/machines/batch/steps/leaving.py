"""A job's machine that is told to leave its node: alive, if a holder job waits for it, else saved."""

from __future__ import annotations

import sys
from contextlib import closing

from cachemgr.base.errors import CacheError
from cachemgr.machines import states
from cachemgr.machines.batch.remains import remove_machine
from cachemgr.machines.record import read_record
from cachemgr.machines.running import Companions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.machines.batch.steps.marks import Door, SavedMark
    from cachemgr.machines.keeper import MachineStatus
    from cachemgr.machines.machine import Machine

TRIES = 12
PAUSE_S = 5.0
LOOKS, LOOK_S = 20, 0.5


class LeavingMachine(Companions):
    """The only machine of its job."""

    def __init__(self, mark: SavedMark) -> None:
        self._mark = mark

    def suspend(self, machine: Machine) -> MachineStatus:
        door = self._mark.door()
        if door is not None:
            try:
                self._go(machine, door)
                return machine.status()
            except (CacheError, OSError) as error:
                words = f"outrider: it is saved, since it cannot go on at {door.host} at once: {error}"
                print(words, file=sys.stderr)  # noqa: T201 - a program's word
        return machine.suspend()

    def _go(self, machine: Machine, door: Door) -> None:
        # Every job in a machine imports this module, and few need these.
        from cachemgr.base.rate import RateLimit
        from cachemgr.machines.live.crossing import OtherNode
        from cachemgr.machines.live.migration import migrate

        self._mark.write_outputs()
        key, address = bytes.fromhex(door.key), (door.host, door.port)
        for count in range(TRIES):
            try:
                with closing(OtherNode(address, key, RateLimit(door.rate, machine.site.clock))) as target:
                    migrate(machine, target, rate_bytes_per_s=door.rate)
                return
            except (CacheError, OSError):
                # Once it is over there it is said there until it is heard.
                if not _has_left(machine) or count == TRIES - 1:
                    raise
                machine.site.clock.sleep(PAUSE_S)


def clear_after(machine: Machine, mark: SavedMark) -> bool:
    """Whether the machine has gone from here alive. What is left of it goes, once its user's home says where
    it is: the job would begin it anew otherwise."""
    if not _has_left(machine):
        return False
    for _ in range(LOOKS):
        if mark.elsewhere(machine.place):
            remove_machine(machine)
            break
        machine.site.clock.sleep(LOOK_S)
    return True


def _has_left(machine: Machine) -> bool:
    return read_record(machine.site.disk, machine.folder).state == states.MOVED
