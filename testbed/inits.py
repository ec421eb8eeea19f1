"""The first process of each host: makes the host's namespaces and file system, then waits for its end.

A program of its own, run by `testbed.host_maker` with a description on standard input, because
it needs no imports beyond the standard library and forks safely. Each host sees one tree
(the machine's own, or another suite's) through an overlay whose upper layer lies in memory,
so that a host can change any file and the machine keeps its own. When the process that owns
the cluster dies in whatever way, or the cluster's site does, the first process of each host
ends, and the kernel ends all others of that host and drops its network and mounts.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
PR_SET_PDEATHSIG = 1
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "riscv64": 41, "s390x": 217}
COMMAND_S = 60
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fuse")
LOOPS = 64
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    # The interpreter is isolated, and finds nothing beside this file by itself.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # Who asked for hosts may be killed: then nobody goes on making them.
    _checked(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    wanted = json.load(sys.stdin)
    os.umask(0o022)
    folder = os.open(wanted["folder"], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    owner = _process(wanted["owner"])
    made: dict[str, int] = {}
    try:
        _make(wanted, folder, owner, made)
    except BaseException:
        for number in made.values():
            os.kill(number, signal.SIGKILL)
        raise
    json.dump(made, sys.stdout)
    return 0


def _make(wanted: Any, folder: int, owner: int, made: dict[str, int]) -> None:
    from testbed.calls import CallServer

    site = wanted["site"]
    if site is None:
        site = made["site"] = _born(lambda: _make_site(wanted), folder, [owner], CLONE_NEWNS | CLONE_NEWNET)
        _note_site(folder, site)
    watched = [owner, _process(site)]
    space = os.open(f"/proc/{site}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    kinds = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    for host in wanted["hosts"]:
        with CallServer.listener(host["door"]) as listener:
            made[host["name"]] = _born(
                lambda host=host: _make_host(wanted, host), folder, watched, kinds, space, listener
            )


def _note_site(folder: int, site: int) -> None:
    """Written at once: with the site, every host ends, even those of which nobody knows yet."""
    with open(f"/proc/{site}/stat") as file:
        start_ticks = file.read().rpartition(")")[2].split()[19]
    descriptor = os.open("site", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644, dir_fd=folder)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{site} {start_ticks}\n")


def _process(number: int) -> int:
    """A descriptor that becomes readable when the process has ended."""
    try:
        return os.pidfd_open(number)
    except OSError as error:
        raise SystemExit(f"process {number}, on which the hosts depend, is gone: {error.strerror}") from error


def _born(
    make: Any,
    folder: int,
    watched: list[int],
    kinds: int,
    space: int | None = None,
    listener: socket.socket | None = None,
) -> int:
    """Fork a process into new namespaces; gives its number once it is made, or says why it is not."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        _guarded(writer, lambda: _midwife(make, folder, watched, kinds, space, listener, writer))
    os.close(writer)
    with os.fdopen(reader) as told:
        lines = told.read().splitlines()
    os.wait()
    # The child and its parent write one line each, in either order; anything else is a complaint.
    numbers = [int(line) for line in lines if line.isdigit()]
    others = [line for line in lines if not line.isdigit()]
    if others != ["made"] or len(numbers) != 1:
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        raise SystemExit("\n".join(others) or "a host's first process ended without a word")
    return numbers[0]


def _midwife(
    make: Any,
    folder: int,
    watched: list[int],
    kinds: int,
    space: int | None,
    listener: socket.socket | None,
    writer: int,
) -> NoReturn:
    """Enter the namespaces, and fork once more: only children are in a new namespace of processes."""
    _checked(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    os.setsid()
    if space is not None:
        _checked(LIBC.setns(space, CLONE_NEWNS), "setns")
    _checked(LIBC.unshare(kinds), "unshare")
    child = os.fork()
    if child:
        os.write(writer, f"{child}\n".encode())
        os._exit(0)
    _guarded(writer, lambda: _live(make, folder, watched, listener, writer))


def _guarded(writer: int, action: Any) -> NoReturn:
    try:
        action()
    except BaseException as error:  # noqa: BLE001 - the outermost frame of a fork: whatever it is, it is told
        os.write(writer, f"{type(error).__name__}: {error}\n".encode())
    os._exit(1)


def _live(
    make: Any, folder: int, watched: list[int], listener: socket.socket | None, writer: int
) -> NoReturn:
    """Make the host, say so, and wait for what ends it; bury its dead children, and take calls, meanwhile."""
    from testbed.calls import CallServer

    make()
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    silence = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    os.write(writer, b"made\n")
    os.close(writer)
    poll = select.poll()
    for descriptor in (woken, *watched):
        poll.register(descriptor, select.POLLIN)
    calls = None if listener is None else CallServer(listener, poll)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == woken:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 512)
            elif descriptor == watched[0] and os.access("kept", os.F_OK, dir_fd=folder):
                # The owner has left the cluster standing, on purpose.
                poll.unregister(descriptor)
            elif calls is None or not calls.is_about(descriptor):
                os._exit(0)
        with contextlib.suppress(ChildProcessError):
            while (child := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if calls is not None:
                    calls.ended(*child)


def _make_site(wanted: Any) -> None:
    """The place of the cluster's switch, and of the hosts' disks, which outlive a reboot."""
    _mount("none", "/", "", MS_REC | MS_PRIVATE)
    _mount("outrider-testbed", wanted["disks"], "tmpfs", MS_NOSUID, "mode=0755")
    os.mkdir(wanted["disks"] + wanted["homes"])


def _make_host(wanted: Any, host: Any) -> None:
    socket.sethostname(host["name"])
    _mount("none", "/", "", MS_REC | MS_PRIVATE)
    disk = os.path.join(wanted["disks"], host["name"])
    is_new = not os.path.isdir(disk)
    if is_new:
        # Not with its parents: if these have gone meanwhile, so shall this.
        os.mkdir(disk)
        for part in ("upper", "scratch", "merged"):
            os.mkdir(os.path.join(disk, part))
        for path in wanted["private"]:
            _make_empty(os.path.join(disk, "upper"), path)
    root = os.path.join(disk, "merged")
    layers = f"lowerdir={wanted['tree']},upperdir={disk}/upper,workdir={disk}/scratch"
    _mount("outrider-testbed", root, "overlay", 0, layers)
    _mount_system(root)
    if wanted["pool_bytes"] is not None:
        _mount_pool(os.path.join(disk, wanted["name"] + ".xfs"), root + wanted["pool"], wanted["pool_bytes"])
    homes = {"path": wanted["disks"] + wanted["homes"], "at": wanted["homes"], "is_writable": True}
    for bind in [homes, *wanted["binds"]]:
        _bind(bind["path"], root + bind["at"], is_writable=bind["is_writable"])
    os.chdir(root)
    number = SYS_PIVOT_ROOT[os.uname().machine]
    _checked(LIBC.syscall(number, b".", b"."), "pivot_root")
    _checked(LIBC.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")
    for entry in host["folders"]:
        os.makedirs(entry["path"], exist_ok=True)
        os.chown(entry["path"], entry["uid"], entry["gid"])
        os.chmod(entry["path"], entry["mode"])
    if is_new:
        for entry in host["files"]:
            _write(entry)
        for path in wanted["passable"]:
            _make_passable(path)


def _make_empty(upper: str, path: str) -> None:
    """Let a folder hide what the tree has there; it and its parents are root's, and readable by all."""
    os.makedirs(upper + path, mode=0o755)
    os.setxattr(upper + path, "trusted.overlay.opaque", b"y")


def _mount_system(root: str) -> None:
    """What a kernel gives to a booted machine: processes, devices, folders that start empty."""
    for path in ("proc", "sys", "dev", "run", "tmp"):
        os.makedirs(os.path.join(root, path), exist_ok=True)
    _mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _mount("sysfs", root + "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    _mount("run", root + "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    _mount("tmp", root + "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    _mount("dev", root + "/dev", "tmpfs", MS_NOSUID, "mode=0755")
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            _make_device(f"/dev/{name}", f"{root}/dev/{name}")
    for name, kind, options in (
        ("pts", "devpts", "newinstance,ptmxmode=0666,mode=620"),
        ("shm", "tmpfs", "mode=1777"),
    ):
        os.mkdir(f"{root}/dev/{name}")
        _mount(name, f"{root}/dev/{name}", kind, MS_NOSUID, options)
    os.mkdir(f"{root}/dev/mqueue")
    with contextlib.suppress(OSError):  # Not every kernel has it.
        _mount("mqueue", f"{root}/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name, target in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
    ):
        os.symlink(target, f"{root}/dev/{name}")
    os.symlink("fd/2", f"{root}/dev/stderr")
    _make_loops(root + "/dev")


def _make_device(path: str, target: str) -> None:
    """The host's own: who changes the owner or mode of one that is the machine's changes the machine's."""
    about = os.stat(path)
    try:
        os.mknod(target, stat.S_IFMT(about.st_mode) | 0o666, about.st_rdev)
        os.chmod(target, 0o666)
    except PermissionError:
        # A container that may make none; its devices are its own anyway.
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o666))
        _mount(path, target, "", MS_BIND)


def _make_loops(folder: str) -> None:
    """For mounts of image files; of loop devices, the whole machine has one set."""
    with contextlib.suppress(PermissionError):
        os.mknod(f"{folder}/loop-control", 0o600 | stat.S_IFCHR, os.makedev(10, 237))
        for number in range(LOOPS):
            os.mknod(f"{folder}/loop{number}", 0o600 | stat.S_IFBLK, os.makedev(7, number))


def _mount_pool(image: str, target: str, size_bytes: int) -> None:
    """A file system that shares blocks between files, as a site's pools have it, in a file in memory."""
    if not os.path.exists(image):
        with open(image, "wb") as file:
            file.truncate(size_bytes)
        _told("mkfs.xfs", "-q", image)
    # The kernel gives the loop device back with the mount, and that with the host.
    _told("mount", "-t", "xfs", "-o", "loop", image, target)


def _told(*argv: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except FileNotFoundError as error:
        raise SystemExit(f"no {argv[0]} on this machine: apt install xfsprogs mount") from error
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")


def _bind(path: str, target: str, *, is_writable: bool) -> None:
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(path, target, "", MS_BIND)
    if not is_writable:
        _mount("none", target, "", MS_BIND | MS_REMOUNT | MS_RDONLY)


def _make_passable(path: str) -> None:
    """Let every user of the host walk down to a path, also where the machine's own users may not."""
    while path != "/":
        path = os.path.dirname(path)
        mode = os.stat(path).st_mode
        if not mode & stat.S_IXOTH:
            os.chmod(path, stat.S_IMODE(mode) | stat.S_IXOTH)


def _write(entry: Any) -> None:
    os.makedirs(os.path.dirname(entry["path"]), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(entry["path"]).st_mode):
            os.unlink(entry["path"])
    descriptor = os.open(entry["path"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(base64.b64decode(entry["content"]))
        os.fchown(descriptor, entry["uid"], entry["gid"])
        os.fchmod(descriptor, entry["mode"])


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    _checked(LIBC.mount(*words, ctypes.c_ulong(flags), options.encode() or None), f"mount {kind} {target}")


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main())
