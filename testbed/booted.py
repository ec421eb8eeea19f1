"""A machine of its own on this one, whose first process is a real systemd: for units as a site runs them.

Its root is an overlay over a tree (this machine's own, or another suite's) whose upper layer lies in
memory. It has no network but `lo` (`testbed.bootedcluster` joins several), reads the kernel's variables
and cannot set them, and nothing of it is left when it has ended. Needs root and a kernel with control
groups of version 2.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cachemgr.base.clock import SystemClock
from testbed.records import TestbedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

SYSTEMD = "lib/systemd/systemd"
GROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
BOOT_S = 240
STOP_S = 20
COMMAND_S = 60
PAUSE_S = 0.05
# What no machine shares with this one, whatever is asked for.
OWN = {
    *(
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/lib",
        "/lib64",
        "/proc",
        "/run",
        "/sbin",
        "/sys",
        "/tmp",
    ),
    *("/usr", "/var"),
}
MACHINE_ID = "0123456789abcdef0123456789abcdef"
# Arguments: the tree, a folder for what is made, a control group of its own, then words: -PATH is empty in
# the machine, rSOURCE=PATH is read there, wSOURCE=PATH is written to as well.
OUTER = """
tree=$1 folder=$2 group=$3 root=$2/root; shift 3
mount --make-rprivate /
mount -t tmpfs -o mode=0755 outrider-testbed "$folder"
mkdir "$folder/upper" "$folder/scratch" "$root"
layers="lowerdir=$tree,upperdir=$folder/upper,workdir=$folder/scratch"
mount -t overlay -o "$layers" outrider-testbed "$root"
for word; do
    case $word in
    -*) rm -rf "$root${word#-}"; mkdir -p "$root${word#-}" ;;
    *)
        kind=${word%"${word#?}"} at=$root${word#*=} word=${word#?}
        mkdir -p "$at"
        mount --bind "${word%%=*}" "$at"
        [ $kind = w ] || mount -o remount,bind,ro "$at"
        ;;
    esac
done
echo $$ >"$group/cgroup.procs"
exec unshare --cgroup sh -euc "$INNER" sh "$root"
"""
# Nothing is written, and no systemd begins, where another file system than an overlay is the root.
INNER = """
cd "$1"
[ "$(stat --file-system --format=%T .)" = overlayfs ]
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=0755 tmpfs dev
for name in null zero full random urandom tty; do touch dev/$name; mount --bind /dev/$name dev/$name; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ip link set lo up
rm -f etc/machine-id
echo $MACHINE_ID >etc/machine-id
mkdir .before
pivot_root . .before
umount --lazy /.before
rmdir /.before
exec env -i container=outrider PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    /lib/systemd/systemd --unit=basic.target --log-target=console --show-status=no
"""


class BootedMachine:
    """
    Boots when it is entered. `shared` are folders that it reads where this machine has them, `elsewhere` some
    that it sees at another path and writes to, `empty` those in which it finds nothing of the tree's.
    """

    def __init__(
        self,
        tree: Path = Path("/"),
        shared: Sequence[Path] = (),
        *,
        elsewhere: Mapping[Path, str] | None = None,
        empty: Sequence[str] = (),
    ) -> None:
        self._tree = tree
        read = [("r", path, str(path)) for path in shared]
        written = [("w", path, at) for path, at in (elsewhere or {}).items()]
        for _, path, at in (*read, *written):
            if os.path.realpath(path) in OWN or os.path.normpath(at) in OWN:
                raise TestbedError(
                    f"{path} cannot be {at} of a machine, which has its own: name a folder below"
                )
        self._places = [f"-{path}" for path in empty] + [
            f"{kind}{path}={at}" for kind, path, at in (*read, *written)
        ]
        self._clock = SystemClock()
        self._folder = Path()
        self._group = Path()
        self._first: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __enter__(self) -> BootedMachine:
        if not (self._tree / SYSTEMD).exists():
            raise TestbedError(f"there is no systemd in {self._tree}: apt install systemd")
        self._folder = Path(tempfile.mkdtemp(prefix="outrider-booted-"))
        try:
            self._group = _control_group(self._folder.name)
            self._boot()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def pid(self) -> int:
        """Of its systemd, by which its namespaces are entered."""
        return self._pid

    @property
    def root(self) -> Path:
        """Its files, as this machine sees them."""
        return Path("/proc", str(self._pid), "root")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def run(
        self, argv: Sequence[str], *, user: str | None = None, check: bool = True, timeout_s: int = COMMAND_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end, as root or as a user of the machine's."""
        as_user = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        command = ["nsenter", f"--target={self._pid}", "--all", "--root", "--wd=/", *as_user, *argv]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and done.returncode != 0:
            raise TestbedError(f"{shlex.join(argv)} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def journal(self, unit: str) -> str:
        """What a unit has said."""
        return self.run(["journalctl", "--no-pager", "--output=cat", f"--unit={unit}"], check=False).stdout

    def _boot(self) -> None:
        paths = [str(self._tree), str(self._folder), str(self._group), *self._places]
        kinds = ["--mount", "--pid", "--fork", "--net", "--uts", "--ipc"]
        log = (self._folder / "console").open("wb")
        with log:
            self._first = subprocess.Popen(
                [
                    "setpriv",
                    "--pdeathsig=KILL",
                    "unshare",
                    *kinds,
                    "--kill-child",
                    "sh",
                    "-euc",
                    OUTER,
                    "sh",
                    *paths,
                ],
                env={**os.environ, "INNER": INNER, "MACHINE_ID": MACHINE_ID},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until_s = self._clock.monotonic_s() + BOOT_S
        state = ""
        while state not in ("running", "degraded"):
            if self._clock.monotonic_s() > until_s or self._first.poll() is not None:
                said = (self._folder / "console").read_text(errors="replace")[-2000:]
                raise TestbedError(f"systemd of {self._tree} has not booted (it is {state!r}): {said}")
            self._clock.sleep(PAUSE_S)
            state = self._state()

    def _state(self) -> str:
        """What systemd says of itself; nothing before it can be asked."""
        assert self._first is not None
        if not self._pid:
            children = Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children").read_text().split()
            if not children or Path(f"/proc/{children[0]}/comm").read_text().strip() != "systemd":
                return ""
            self._pid = int(children[0])
        return self.run(["systemctl", "is-system-running"], check=False).stdout.strip()

    def _end(self) -> None:
        if self._first is not None:
            self._first.kill()
            self._first.wait(STOP_S)
        if self._group.parts:
            (self._group / "cgroup.kill").write_text("1")
        until_s = self._clock.monotonic_s() + STOP_S
        while self._group.parts and self._group.is_dir():
            _remove_groups(self._group)
            if self._clock.monotonic_s() > until_s:
                raise TestbedError(f"{self._group} cannot be removed: something of the machine still runs")
            self._clock.sleep(PAUSE_S)
        if self._folder.parts:
            (self._folder / "console").unlink(missing_ok=True)
            self._folder.rmdir()


def _control_group(name: str) -> Path:
    for root in GROUPS:
        if (root / "cgroup.procs").exists() and (root / "cgroup.controllers").exists():
            group = root / name
            group.mkdir()
            return group
    raise TestbedError(f"no control groups of version 2 in {' or '.join(map(str, GROUPS))}")


def _remove_groups(group: Path) -> None:
    for path in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
        _remove_group(path)
    _remove_group(group)


def _remove_group(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return
