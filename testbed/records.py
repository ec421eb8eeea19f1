"""What is known of a cluster between commands: one small file in a folder of the cluster's name.

The folder has no process's memory in it, so that the command line, tests and a
demonstration can all work on one cluster; and it outlives what made it, so that the next
caller can remove what a dead one left.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from testbed.hosts import start_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cachemgr.base.clock import Clock

FOLDER = Path("/run/outrider-testbed")
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
VERSION = 1
ENDING_S = 20
POLL_S = 0.01


class TestbedError(Exception):
    """What could not be done on a cluster, and what to do about it."""

    __test__ = False


@dataclass(frozen=True, kw_only=True)
class HostProcess:
    """A process for certain: numbers are used again, but not with the same start."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> HostProcess:
        return cls(pid=pid, start_ticks=start_ticks(pid) or 0)

    def is_alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks and not _is_zombie(self.pid)

    def kill(self) -> None:
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class HostService:
    """A program that runs on a host until it is stopped."""

    name: str
    argv: tuple[str, ...]
    user: str = "root"
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClusterRecord:
    """A cluster as it was last written down; `site` and `hosts` are empty while it is being made."""

    name: str
    kind: str
    tree: str
    owner: HostProcess
    rate_bits_per_s: int | None
    addresses: dict[str, str]
    users: tuple[str, ...]
    # What of the machine each host sees: the path, and whether hosts may write to it.
    binds: tuple[tuple[str, bool], ...]
    site: HostProcess | None = None
    hosts: dict[str, HostProcess] = field(default_factory=dict)
    # What starts again when a host does, in this order.
    services: dict[str, tuple[HostService, ...]] = field(default_factory=dict)
    # Hosts that stand together behind one link, and its rate.
    racks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rack_rate_bits_per_s: int | None = None
    # Settings that not every cluster has, as text: those of a batch system, and the size of pools.
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def pool_bytes(self) -> int | None:
        """Of a file system of its own for each host's pool; None without one."""
        text = self.notes.get("pool_bytes")
        return None if text is None else int(text)

    def rack_of(self, host: str) -> str | None:
        """Where a host stands; None if it is on the cluster's own switch."""
        return next((rack for rack, hosts in self.racks.items() if host in hosts), None)

    def is_kept(self) -> bool:
        """Whether it stays when its owner ends."""
        return (self.folder / "kept").exists()

    def is_alive(self) -> bool:
        if self.site is None:
            return self.owner.is_alive()
        return self.site.is_alive() and (self.is_kept() or self.owner.is_alive())


def write(record: ClusterRecord) -> None:
    beside = record.folder / f"record.{os.getpid()}"
    beside.write_text(_text(record))
    beside.rename(record.folder / "record")


def read(name: str) -> ClusterRecord:
    """Raises TestbedError if there is no such cluster."""
    path = FOLDER / name / "record"
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        names = ", ".join(record.name for record in alive()) or "none"
        raise TestbedError(
            f"there is no testbed called {name} (there are: {names}): make it with up"
        ) from None
    if found.pop("version") != VERSION:
        raise TestbedError(f"{path} is of another version of the testbed: remove it with that one")
    known = {each.name for each in fields(ClusterRecord)}
    return ClusterRecord(
        **{
            **{key: value for key, value in found.items() if key in known},
            "owner": HostProcess(**found["owner"]),
            "site": None if found["site"] is None else HostProcess(**found["site"]),
            "users": tuple(found["users"]),
            "binds": tuple((path, is_writable) for path, is_writable in found["binds"]),
            "hosts": {host: HostProcess(**each) for host, each in found["hosts"].items()},
            "racks": {rack: tuple(hosts) for rack, hosts in found.get("racks", {}).items()},
            "services": {host: tuple(map(_service, each)) for host, each in found["services"].items()},
        }
    )


def alive() -> list[ClusterRecord]:
    """The clusters that stand, by name."""
    found = []
    for path in sorted(FOLDER.glob("*/record")):
        with contextlib.suppress(TestbedError):
            found.append(read(path.parent.name))
    return [record for record in found if record.is_alive()]


def enter(record: ClusterRecord, clock: Clock) -> None:
    """Take a name for a cluster that is about to be made. Raises TestbedError if it is taken."""
    if NAME.fullmatch(record.name) is None:
        raise TestbedError(
            f"{record.name!r} is not a name: 1 to 31 of a-z, 0-9 and '-', beginning with a letter"
        )
    with locked():
        remove_dead(clock)
        if record.folder.exists():
            raise TestbedError(f"a testbed called {record.name} stands: remove it with down, or use --name")
        # Whole or not at all: a folder without a record would belong to nobody.
        beside = FOLDER / ".new"
        shutil.rmtree(beside, ignore_errors=True)
        (beside / "disks").mkdir(parents=True)
        (beside / "record").write_text(_text(record))
        beside.rename(record.folder)


def remove(record: ClusterRecord, clock: Clock) -> None:
    """End every process of a cluster, wait until they are gone, and forget it."""
    if not record.folder.exists():
        return
    for process in _processes(record):
        process.kill()
    until_s = clock.monotonic_s() + ENDING_S
    while record.folder.exists():
        if not any(process.is_alive() for process in _processes(record)):
            shutil.rmtree(record.folder, ignore_errors=True)
        if clock.monotonic_s() > until_s:
            raise TestbedError(
                f"{record.folder} does not go away within {ENDING_S} s of its hosts being killed"
            )
        clock.sleep(POLL_S)


def remove_dead(clock: Clock) -> list[str]:
    """Remove what dead owners left; gives the names."""
    found = []
    for path in sorted(FOLDER.glob("*/record")):
        # What another version of the testbed wrote is left to that one.
        with contextlib.suppress(TestbedError):
            record = read(path.parent.name)
            if not record.is_alive():
                remove(record, clock)
                found.append(record.name)
    return found


@contextmanager
def locked() -> Iterator[None]:
    """One at a time takes and removes names."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def site_written(folder: Path) -> HostProcess | None:
    """The site as its own maker wrote it down, for when that was killed before it could tell."""
    with contextlib.suppress(OSError, ValueError):
        pid, ticks = (folder / "site").read_text().split()
        return HostProcess(pid=int(pid), start_ticks=int(ticks))
    return None


def replaced(record: ClusterRecord, **changes: object) -> ClusterRecord:
    changed = replace(record, **changes)  # type: ignore[arg-type]
    write(changed)
    return changed


def _processes(record: ClusterRecord) -> list[HostProcess]:
    sites = [record.site, site_written(record.folder)]
    return [*record.hosts.values(), *(site for site in sites if site is not None)]


def _service(found: dict[str, object]) -> HostService:
    kept = {key: value for key, value in found.items() if key not in {"argv", "environment"}}
    argv, environment = cast("list[str]", found["argv"]), cast("list[tuple[str, str]]", found["environment"])
    return HostService(
        argv=tuple(argv),
        environment=tuple((key, value) for key, value in environment),
        **cast("dict[str, str]", kept),
    )


def _text(record: ClusterRecord) -> str:
    return json.dumps({"version": VERSION, **asdict(record)}, indent=1)


def _is_zombie(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in {"Z", "X"}
