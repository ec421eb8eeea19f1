"""How a guest and its node talk about a job: by disks that are read and ports that end in files.

A disk for what goes in and files for what comes out have no connection that a saved machine
would lose. The one socket is for signals, each of which the guest answers by a word in a file.
"""

from __future__ import annotations

from contextlib import closing, suppress

from cachemgr.base.errors import BadRequest, InUse
from cachemgr.instances.context import LABEL, checked_context, contents
from cachemgr.instances.iso9660 import iso9660
from cachemgr.machines.guest.archive import pack
from cachemgr.machines.guest.runner import RUNNER, VENDOR_DATA, quoted
from cachemgr.machines.network.place import LOGIN_ADDRESS, LOGIN_MAC, LOGIN_MTU, MTU
from cachemgr.machines.qemu.command import CONSOLE_LOG, CONTROL, ERR, OUT, WORK
from cachemgr.machines.qemu.monitor import connected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.base.clock import Clock
    from cachemgr.base.disk import Disk
    from cachemgr.machines.network.place import ClusterPlace
    from cachemgr.machines.wish import MachineJob, MachineWish

MONITOR, SIGNALS, CONSOLE = "monitor.sock", "signals.sock", "console.sock"
JOB_DISK, WORK_DISK, SEED_DISK = "job.iso", "work.tar", "seed.iso"
FILES = {"job": JOB_DISK, "work": WORK_DISK, "seed": SEED_DISK}
OUT_FILE, ERR_FILE, CONTROL_FILE, WORK_FILE = "out", "err", "control", "work.out"
JOB_LABEL = "outrider"
LOGIN = "login"
BACK, WAITS = "brings-back", "waits"
READY = "ready"
GO = "GO"
"""To a script that waits for it."""
SIGNAL_NAMES = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "CONT", "STOP", "KILL", "WINCH", "ALRM")
CONNECT_S = 5.0
SIGNAL_S = 30.0
LOOK_S = 0.02
MOST_CONTROL_BYTES = 1 << 16


def sockets(wish: MachineWish) -> dict[str, str]:
    """The sockets of a machine in its folder, by what QEMU calls them."""
    found = {"monitor": MONITOR, "console": CONSOLE}
    return found if wish.job is None else {**found, "signals": SIGNALS}


def outputs(folder: str, wish: MachineWish) -> dict[str, str]:
    """Where each port of the guest ends."""
    if wish.job is None:
        return {}
    found = {OUT: wish.job.out or f"{folder}/{OUT_FILE}", ERR: wish.job.err or f"{folder}/{ERR_FILE}"}
    found[CONTROL] = f"{folder}/{CONTROL_FILE}"
    return found if wish.job.folder is None else {**found, WORK: f"{folder}/{WORK_FILE}"}


def extra_disks(folder: str, wish: MachineWish) -> list[tuple[str, str]]:
    """Disks that are made here, by their names in the guest."""
    found = [] if wish.job is None else ["job"]
    if wish.job is not None and wish.job.folder is not None:
        found.append("work")
    if has_seed(wish):
        found.append("seed")
    return [(name, f"{folder}/{FILES[name]}") for name in found]


def outputs_here(wish: MachineWish) -> list[str]:
    """Of the files to which the guest's words are appended, those in the machine's own folder."""
    paths = outputs(".", wish).values()
    return sorted([CONSOLE_LOG, *(path[2:] for path in paths if path.startswith("./"))])


def kept_files(wish: MachineWish) -> list[str]:
    """What belongs to a saved machine beside its memory and layers."""
    return sorted([FILES[name] for name, _ in extra_disks(".", wish)] + outputs_here(wish))


def has_login(wish: MachineWish) -> bool:
    """Whether its user can come in by ssh."""
    return wish.cluster is not None and bool(wish.cluster.private_key)


def has_seed(wish: MachineWish) -> bool:
    """A guest that is booted from its disk learns of its job by cloud-init, or of what its user wants."""
    return wish.context is not None or (wish.job is not None and wish.kernel is None)


def prepare(disk: Disk, folder: str, wish: MachineWish) -> None:
    """Make the disks of a new machine, and its outputs as empty files."""
    if wish.job is not None:
        write(disk, f"{folder}/{JOB_DISK}", job_disk(wish.job, wish.cluster, wish.context))
        if wish.job.folder is not None:
            pack(disk, wish.job.folder, f"{folder}/{WORK_DISK}", but=folder, left_out=wish.job.left_out)
    if has_seed(wish):
        write(disk, f"{folder}/{SEED_DISK}", seed_disk(wish))
    for name in outputs_here(wish):
        write(disk, f"{folder}/{name}", b"")


def write(disk: Disk, path: str, data: bytes) -> None:
    with suppress(FileNotFoundError):
        disk.remove(path)
    with closing(disk.create(path, 0o600)) as handle:
        handle.write_at(0, data)
        handle.sync()


def job_disk(
    job: MachineJob, cluster: ClusterPlace | None = None, context: Mapping[str, object] | None = None
) -> bytes:
    """The script, its environment and the program that runs it, as a disk that every kernel reads."""
    lines = []
    for name, value in job.environment:
        if name.isascii() and name.isidentifier():
            # Programs of the guest are where the guest has them, whatever the node's path is.
            lines.append(f"export {name}={quoted(value)}" + (":$PATH" if name == "PATH" else ""))
    left_out = sorted(name for name, _ in job.environment if not (name.isascii() and name.isidentifier()))
    files = {
        "run": RUNNER.encode(),
        "script": job.script.encode(),
        "environment": "\n".join([*lines, ""]).encode(),
        "arguments": (" ".join(["set", "--", *map(quoted, job.arguments)]) + "\n").encode(),
        # A shell cannot set these: the guest's words in the job's errors say so.
        "left-out": "".join(f"{name}\n" for name in left_out).encode(),
    }
    if context is not None and "user_data" in context:
        files["user-data"] = checked_context(context).user_data.encode()
    if job.folder is not None:
        files["folder"] = f"{job.folder}\n".encode()
    if job.data:
        files["data"] = "".join(f"{name}\n" for name in job.data).encode()
    files.update({name: b"" for name, is_so in ((BACK, job.brings_back), (WAITS, job.waits)) if is_so})
    if cluster is not None:
        files["place"] = f"{cluster.name}\n".encode()
        cards = [f"{cluster.mac} {cluster.interface} {MTU}"]
        files["hosts"] = cluster.hosts.encode()
        if cluster.private_key:
            cards.append(f"{LOGIN_MAC} {LOGIN_ADDRESS}/24 {LOGIN_MTU}")
            files["key"], files["key.pub"] = cluster.private_key.encode(), cluster.public_key.encode()
        files["cards"] = "".join(f"{card}\n" for card in cards).encode()
        files["names"] = "".join(f"{name}\n" for name in cluster.names).encode()
    return iso9660(JOB_LABEL, files, {})


def seed_disk(wish: MachineWish) -> bytes:
    """What cloud-init reads: the user's data, and beside it how the job is begun."""
    context = checked_context(wish.context or {})
    files = contents(context, wish.name)
    if wish.job is not None:
        files["vendor-data"] = VENDOR_DATA.encode()
    own = {name: text.encode() for name, text in context.files.items()}
    return iso9660(LABEL, files, {"files": own} if own else {})


def words(disk: Disk, folder: str) -> list[list[str]]:
    """What the guest has said of its job, line by line; an unfinished line is not said yet."""
    try:
        data = disk.read(f"{folder}/{CONTROL_FILE}", MOST_CONTROL_BYTES)
    except FileNotFoundError:
        return []
    lines = data.decode(errors="replace").split("\n")[:-1]
    return [line.split() for line in lines if line.strip()]


def exit_status(disk: Disk, folder: str) -> int | None:
    """The script's exit status, once everything that it has written is out of the guest."""
    for line in words(disk, folder):
        if line[0] == "exit" and len(line) == 2 and line[1].isdigit() and int(line[1]) <= 255:
            return int(line[1])
    return None


def has_said(disk: Disk, folder: str, word: str) -> bool:
    return [word] in words(disk, folder)


def is_copied(disk: Disk, folder: str) -> bool:
    """Whether the guest says that its working folder came out whole."""
    return has_said(disk, folder, "copied")


def send_signal(disk: Disk, folder: str, name: str, clock: Clock, *, wait_s: float = SIGNAL_S) -> None:
    """Pass a signal on to the job, and wait until the guest says that it has done so.

    The connection is kept until then: what a guest has not read yet is lost when it is closed.
    """
    if name not in (*SIGNAL_NAMES, GO):
        raise BadRequest(f"there is no signal {name[:20]!r} for a job: {', '.join(SIGNAL_NAMES)}")
    before = words(disk, folder).count(["signalled", name])
    until_s = clock.monotonic_s() + wait_s
    with closing(connected(folder, SIGNALS, CONNECT_S)) as connection:
        connection.sendall(f"{name}\n".encode())
        while words(disk, folder).count(["signalled", name]) == before:
            if exit_status(disk, folder) is not None:
                return
            if clock.monotonic_s() >= until_s:
                raise InUse(f"the guest did not pass {name} on to its job within {wait_s:.0f} s: it may hang")
            clock.sleep(LOOK_S)
