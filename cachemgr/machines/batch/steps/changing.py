"""A running machine of a virtual node that changes its folder, without being saved.

Virtual nodes have no folders of their own: a job's machine is in one of two, and the other one is free. The
batch system writes an order beside them, which the machine's keeper finds, carries out and answers. A keeper
that is killed meanwhile leaves the engine's states, by which the next one goes on.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass

from cachemgr.base.disk import RealDisk, replace_file
from cachemgr.base.errors import CacheError
from cachemgr.machines import states
from cachemgr.machines.batch.image import ROOT
from cachemgr.machines.batch.kept import OTHER
from cachemgr.machines.batch.remains import remove_machine
from cachemgr.machines.batch.steps.marks import FOLDER_PREFIX
from cachemgr.machines.machine import Machine
from cachemgr.machines.record import has_record, read_record
from cachemgr.machines.running import Companions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.machines.keeper import MachineStatus

CHANGE = "change"
"""How the program is called for it."""
CHANGED, STAYS, GOES = "changed", "stays", "goes"
ORDER, ANSWER = "order-", "answer-"
MOST_BYTES = 8192


@dataclass(frozen=True)
class ChangeOrder:
    """`stamp` tells it from an earlier one. `source`: the folder in which the machine is to be left."""

    stamp: str
    source: str
    image: str
    """Where the image is afterwards."""


def folder_of_machine(above: str, key: str) -> str:
    """The one of its two folders in which a job's machine is; the first if there is none."""
    first, second = folders_of_machine(above, key)
    disk = RealDisk()
    with suppress(CacheError, OSError):
        if has_record(disk, second) and read_record(disk, second).state not in (
            states.ARRIVING,
            states.MOVED,
        ):
            return second
    return first


def folders_of_machine(above: str, key: str) -> tuple[str, str]:
    name = f"{FOLDER_PREFIX}{key}"
    return f"{above}/{name}", f"{above}/{OTHER}/{name}"


def other_folder(machine: Machine) -> Machine:
    """The free one."""
    above, name = os.path.split(machine.folder)
    beside = os.path.dirname(above) if os.path.basename(above) == OTHER else f"{above}/{OTHER}"
    return Machine(f"{beside}/{name}", machine.site)


def ask_for_change(above: str, key: str, stamp: str, image: str) -> str:
    """What has come of that order, which is written if it was not yet."""
    answer = _read(f"{above}/{ANSWER}{key}").partition(" ")
    if answer[0] == stamp:
        return answer[2]
    order = ChangeOrder(stamp, os.path.realpath(folder_of_machine(above, key)), image)
    known = _order(above, key)
    if known is None or known.stamp != stamp:
        replace_file(RealDisk(), f"{above}/{ORDER}{key}", json.dumps(asdict(order)).encode())
    return GOES


def remove_orders(above: str, key: str) -> None:
    for name in (ORDER, ANSWER):
        with suppress(OSError):
            os.unlink(f"{above}/{name}{key}")


def after_change(machine: Machine) -> Machine:
    """The machine where it is by now; what a killed keeper has left of its way is brought to an end."""
    other = other_folder(machine)
    disk = machine.site.disk
    for source, target in ((machine, other), (other, machine)):
        if has_record(disk, source.folder) and read_record(disk, source.folder).state == states.MOVED:
            _migrate(source, target, "")
            remove_machine(source)
            return target
    return machine


class ChangingMachine(Companions):
    """The only machine of its job."""

    def __init__(self, above: str, key: str) -> None:
        self._above, self._key = above, key

    def look(self, machine: Machine) -> MachineStatus | None:
        if not os.path.exists(f"{self._above}/{ORDER}{self._key}"):
            return None
        order = _order(self._above, self._key)
        words = STAYS if order is None else CHANGED
        if order is not None and order.source == machine.folder:
            try:
                _migrate(machine, other_folder(machine), order.image)
            except (CacheError, OSError) as error:
                words = f"{STAYS} {' '.join(str(error).split())}"
        if order is not None:
            answer = f"{order.stamp} {words}"
            replace_file(RealDisk(), f"{self._above}/{ANSWER}{self._key}", answer.encode())
        with suppress(OSError):
            os.unlink(f"{self._above}/{ORDER}{self._key}")
        return machine.status()


def _migrate(source: Machine, target: Machine, image: str) -> None:
    # Every job in a machine imports this module, and few need that.
    from cachemgr.machines.live.migration import OtherFolder, migrate

    beside = os.path.dirname(target.folder)
    with suppress(FileExistsError):
        os.mkdir(beside, 0o700)
    migrate(source, OtherFolder(target, {ROOT: image} if image else {}))


def _order(above: str, key: str) -> ChangeOrder | None:
    with suppress(ValueError, TypeError):
        return ChangeOrder(**json.loads(_read(f"{above}/{ORDER}{key}")))
    return None


def _read(path: str) -> str:
    with suppress(OSError):
        return RealDisk().read(path, MOST_BYTES).decode(errors="replace")
    return ""
