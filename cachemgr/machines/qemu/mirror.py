"""What live migration asks of QEMU: a disk written to two places, and how far the memory is."""

from __future__ import annotations

from contextlib import suppress

from cachemgr.base.errors import CacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.machines.qemu.monitor import Answer, QemuMonitor
    from cachemgr.machines.wish import MachineWish

MIRROR, COPY = "mirror-", "copy-"
CANCEL_S = 10.0
LOOK_S = 20.0
JOB_ENDS = ("BLOCK_JOB_COMPLETED", "BLOCK_JOB_CANCELLED")


class TimedOut(CacheError):
    """Nothing was heard of a mirror for as long as was waited."""


def mirror(monitor: QemuMonitor, name: str, node: str, socket: str, rate_bytes_per_s: int) -> None:
    """Write one disk to a server, too, at most so fast. Of its running layer alone: the rest is there."""
    copy: dict[str, object] = {"driver": "nbd", "node-name": f"{COPY}{name}", "export": name}
    monitor.command("blockdev-add", {**copy, "server": {"type": "unix", "path": socket}})
    job: dict[str, object] = {"job-id": f"{MIRROR}{name}", "device": node, "target": f"{COPY}{name}"}
    monitor.command("blockdev-mirror", {**job, "sync": "top", "speed": rate_bytes_per_s})


def gets_less(monitor: QemuMonitor, name: str) -> bool:
    """Wait until both places have the same; False if a guest writes so much that it does not come to that: at
    each look, half of what was left is to be sent."""
    before_bytes = None
    while True:
        with suppress(TimedOut):
            wait_for_mirror(monitor, name, LOOK_S)
            return True
        for each in monitor.command("query-block-jobs"):
            if each["device"] == f"{MIRROR}{name}":
                left_bytes = each["len"] - each["offset"]
                if before_bytes is not None and left_bytes * 2 > before_bytes:
                    return False
                before_bytes = left_bytes


def wait_for_mirror(monitor: QemuMonitor, name: str, wait_s: float) -> None:
    """Both places have the same, and go on having it."""
    _job_event(
        monitor, name, ("BLOCK_JOB_READY", "BLOCK_JOB_ERROR", *JOB_ENDS), wait_s, wanted="BLOCK_JOB_READY"
    )


def end_mirror(monitor: QemuMonitor, name: str, wait_s: float) -> None:
    """Write to one place again; raises if the other one did not get everything."""
    monitor.command("block-job-cancel", {"device": f"{MIRROR}{name}"})
    _job_event(monitor, name, JOB_ENDS, wait_s, wanted="BLOCK_JOB_COMPLETED")


def _job_event(
    monitor: QemuMonitor, name: str, names: tuple[str, ...], wait_s: float, *, wanted: str
) -> None:
    passed = []
    found = monitor.wait_for(names, wait_s)
    while found is not None and found["data"].get("device") != f"{MIRROR}{name}":
        passed.append(found)
        found = monitor.wait_for(names, wait_s)
    # What is said of other disks is theirs to be waited for.
    monitor.events.extend(passed)
    if found is None:
        raise TimedOut(f"disk {name} was not copied within {wait_s:.0f} s")
    data = found["data"]
    if found["event"] != wanted or data.get("error"):
        place = "here" if data.get("operation") == "read" else "at the other end, which may be gone"
        raise CacheError(f"disk {name} could not be copied: {data.get('error', f'an error {place}')}")


def expect_migration(monitor: QemuMonitor, wanted: str, wait_s: float) -> Answer:
    """Wait for a migration to come to this state."""
    found = monitor.wait_for_migration((wanted, "completed", "failed", "cancelled"), wait_s)
    if found.get("status") != wanted:
        reason = found.get("error-desc") or f"it is {found.get('status')} after {wait_s:.0f} s"
        raise CacheError(f"the machine's memory could not be moved: {reason}")
    return found


def let_go_of_mirrors(monitor: QemuMonitor, wish: MachineWish) -> None:
    """End what is left of mirrors, also where nobody answers at the other end."""
    for each in wish.writable:
        node = f"{COPY}{each.name}"
        with suppress(CacheError):
            monitor.command("yank", {"instances": [{"type": "block-node", "node-name": node}]})
        with suppress(CacheError):
            monitor.command("block-job-cancel", {"device": f"{MIRROR}{each.name}", "force": True})
            monitor.wait_for(JOB_ENDS, CANCEL_S)
        with suppress(CacheError):
            monitor.command("blockdev-del", {"node-name": node})
