"""What a job's machine has left on its node: it goes on, begins anew, or goes."""

from __future__ import annotations

import os
from contextlib import suppress

from cachemgr.base.errors import CacheError, NotInPool, WrongBytes
from cachemgr.machines import states
from cachemgr.machines.batch.image import ROOT
from cachemgr.machines.qemu.process import BUSY
from cachemgr.machines.record import has_record, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.machines.batch.image import JobImages
    from cachemgr.machines.batch.system import BatchJob
    from cachemgr.machines.machine import Machine
    from cachemgr.machines.record import MachineRecord
    from cachemgr.machines.wish import MachineWish


def continued(
    machine: Machine, job: BatchJob, images: JobImages, *, has_others: bool = False
) -> MachineRecord | None:
    """The machine that is here already, with its images where they are now; None if it begins anew.

    A machine that was lost, with the node or by a kill, begins anew when the batch system has
    started its job once more: that is what its user has agreed to. So does one that was told to end, as
    the batch system does when it sends the job back. One of several goes on only from where all of them
    were suspended: its others are gone, if they were not left to this keeper by one that was killed.
    """
    if not has_record(machine.site.disk, machine.folder):
        return None
    try:
        machine.status()
    except NotInPool:
        # Nothing of it had run.
        return None
    record = read_record(machine.site.disk, machine.folder)
    if record.state == states.MOVED:
        # It goes on elsewhere, or is about to: here it never begins anew.
        return None
    # Only of one that did not end by itself it is said why it has ended.
    was_ended = record.state == states.ENDED and bool(record.reason)
    if (record.state == states.LOST or was_ended) and job.attempt > 0:
        machine.remove()
        return None
    if job.nodes > 1 and not has_others and not (record.state == states.SUSPENDED and record.together):
        end_machine(machine)
        return None
    moved = images_here(job.key, record.wish, images)
    if moved and record.state == states.SUSPENDED:
        machine.relocate(moved)
        record = read_record(machine.site.disk, machine.folder)
    return record


def images_here(key: str, wish: MachineWish, images: JobImages) -> dict[str, str]:
    """Where the images of its disks are now that lay elsewhere before."""
    found: dict[str, str] = {}
    for disk in wish.disks:
        image = images.all.get(disk.name)
        if image is None:
            continue
        if disk.digest and image.digest and disk.digest != image.digest:
            what = "the image" if disk.name == ROOT else f"data image {disk.name}"
            raise WrongBytes(
                f"{what} has changed since the machine of job {key} began: sha256:{disk.digest[:12]} is "
                f"now sha256:{image.digest[:12]}; bring the earlier one back, or submit the job again"
            )
        if disk.path != image.path:
            found[disk.name] = image.path
    return found


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
