"""Layers below a running guest's newest one, merged into that by QEMU while the guest runs.

A job of QEMU's own, which outlives whoever began it. It stays when it has ended, until that is noted: the
layers below are needed until then, and a machine that dies meanwhile is lost with or without them.
"""

from __future__ import annotations

from contextlib import suppress

from cachemgr.machines.qemu.monitor import QemuRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.base.clock import Clock
    from cachemgr.machines.qemu.monitor import QemuMonitor
    from cachemgr.machines.record import MachineRecord
    from cachemgr.machines.wish import MachineWish

MERGE = "merge-"
PAUSE_S = 0.05
CANCEL_S = 10.0


def begin_merge(monitor: QemuMonitor, record: MachineRecord) -> None:
    """Merge each disk's layers into its newest one; a merge that is under way or done already stays."""
    there = _jobs(monitor, record.wish)
    for each in record.wish.writable:
        if f"{MERGE}{each.name}" in there:
            continue
        job: dict[str, object] = {
            "job-id": f"{MERGE}{each.name}",
            "device": f"{each.name}-{record.generation}",
        }
        # The image below stays below; an empty disk has none.
        if each.path is not None:
            job["base-node"] = f"{each.name}-0"
        monitor.command("block-stream", {**job, "auto-dismiss": False})


def merge_is_done(monitor: QemuMonitor, wish: MachineWish) -> bool:
    """Whether all disks are merged, without an error. What has failed is forgotten, for another try."""
    there = _jobs(monitor, wish)
    if not there:
        return False
    failed = [name for name, found in there.items() if found.get("error")]
    if all(found.get("status") == "concluded" for found in there.values()):
        if not failed and len(there) == len(wish.writable):
            return True
        for name in there:
            with suppress(QemuRefused):
                monitor.command("job-dismiss", {"id": name})
    return False


def dismiss_merge(monitor: QemuMonitor, wish: MachineWish) -> None:
    for name in _jobs(monitor, wish):
        with suppress(QemuRefused):
            monitor.command("job-dismiss", {"id": name})


def end_merge(monitor: QemuMonitor, wish: MachineWish, clock: Clock, wait_s: float) -> None:
    """Wait for merges so long, then give them up: the layers are as before, or merged."""
    until_s, is_cancelled = clock.monotonic_s() + wait_s, False
    while True:
        left = [name for name, found in _jobs(monitor, wish).items() if found.get("status") != "concluded"]
        if not left:
            return
        if clock.monotonic_s() >= until_s:
            if is_cancelled:
                return
            for name in left:
                with suppress(QemuRefused):
                    monitor.command("block-job-cancel", {"device": name, "force": True})
            until_s, is_cancelled = clock.monotonic_s() + CANCEL_S, True
        clock.sleep(PAUSE_S)


def _jobs(monitor: QemuMonitor, wish: MachineWish) -> dict[str, dict[str, object]]:
    """Merges that QEMU knows, by their names."""
    wanted = {f"{MERGE}{each.name}" for each in wish.writable}
    return {each["id"]: each for each in monitor.command("query-jobs") if each["id"] in wanted}
