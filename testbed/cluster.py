"""A cluster of hosts on one machine: made, worked on, rebooted, taken away. No batch system.

Each host has its own network, name, processes and file system (see `testbed.inits`). A
batch system's cluster derives from this class and adds its files and daemons.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cachemgr.base.clock import SystemClock
from testbed import commands, host_maker, records
from testbed.calls import Call, NobodyThere
from testbed.commands import CommandFailed
from testbed.host_maker import Folder, InitialFile
from testbed.people import USERS, People, Person
from testbed.preloaded import preloaded
from testbed.records import ClusterRecord, HostProcess, HostService, TestbedError
from testbed.waiting import awaited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from cachemgr.base.clock import Clock

REPOSITORY = Path(__file__).resolve().parents[1]
COMMAND_S = 60
TOOLS = ("ip", "tc", "nsenter", "setpriv")
WAIT_S = 120
HOST = re.compile(r"[a-z][a-z0-9-]{0,12}")
POLL_S = 0.05
LOG_LINES = 40
DEVICES_BEFORE = "devices"
NSSWITCH = b"passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\nservices: files\n"


class Cluster:
    """Hosts by name. Use in a with statement; or `up`, `keep`, and later `attached` and `down`."""

    kind = "hosts"

    def __init__(
        self,
        addresses: Mapping[str, str],
        *,
        name: str | None = None,
        rate_bits_per_s: int | None = None,
        pool_bytes: int | None = None,
        racks: Mapping[str, Sequence[str]] | None = None,
        rack_rate_bits_per_s: int | None = None,
        tree: Path = Path("/"),
        users: Sequence[str] = USERS,
        shared: Sequence[Path] = (),
        writable: Sequence[Path] = (),
        notes: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """
        `shared` and `writable` name what of the machine the hosts see; the repository is always shared,
        and so is the interpreter that runs this, if it lies where hosts have something of their own.
        `racks` are hosts behind a link of their own, each with that rate.
        """
        wrong = [host for host in addresses if HOST.fullmatch(host) is None]
        if wrong:
            raise TestbedError(
                f"{wrong[0]!r} is not a host: 1 to 13 of a-z, 0-9 and '-', beginning with a letter"
            )
        shown = [
            (REPOSITORY, False),
            *((path, False) for path in [*_interpreter(tree), *shared]),
            *((path, True) for path in writable),
        ]
        self._use(
            ClusterRecord(
                name=name or f"t-{secrets.token_hex(4)}",
                kind=self.kind,
                tree=str(tree),
                owner=HostProcess.of(os.getpid()),
                rate_bits_per_s=rate_bits_per_s,
                addresses=dict(addresses),
                users=tuple(users),
                racks={rack: tuple(hosts) for rack, hosts in (racks or {}).items()},
                rack_rate_bits_per_s=rack_rate_bits_per_s,
                binds=tuple((str(path.resolve()), is_writable) for path, is_writable in shown),
                notes={**(notes or {}), **({} if pool_bytes is None else {"pool_bytes": str(pool_bytes)})},
            ),
            clock or SystemClock(),
        )

    @classmethod
    def attached(cls, name: str, clock: Clock | None = None) -> Self:
        """A cluster that somebody else made and keeps."""
        record = records.read(name)
        if record.kind != cls.kind or not record.is_alive():
            raise TestbedError(
                f"testbed {name} ({record.kind}) cannot be worked on: it is ended, or not {cls.kind}"
            )
        cluster = cls.__new__(cls)
        cluster._use(record, clock or SystemClock())
        return cluster

    def _use(self, record: ClusterRecord, clock: Clock) -> None:
        self.record = record
        self.clock = clock
        self.people = People(Path(record.tree), record.users)

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def hosts(self) -> list[str]:
        return list(self.record.addresses)

    @property
    def python(self) -> str:
        """
        The interpreter with which the repository's head side runs on the hosts, for every user; the
        repository lies at its own path, `REPOSITORY`, and goes into PYTHONPATH.
        """
        return sys.executable if self.record.tree == "/" else "/usr/bin/python3"

    def address(self, host: str) -> str:
        return self.record.addresses[host]

    def up(self) -> None:
        """Make the hosts and boot them; if that fails, nothing is left."""
        if os.geteuid() != 0 or not all(map(shutil.which, TOOLS)):
            raise TestbedError("a testbed needs root, iproute2 and util-linux: sudo, apt install iproute2")
        self.record = dataclasses.replace(
            self.record, notes={**self.record.notes, DEVICES_BEFORE: host_maker.devices()}
        )
        records.enter(self.record, self.clock)
        try:
            self._make(self.hosts)
            self.run(self.hosts[0], ["/bin/sh", "-c", self._homes()])
            self.boot(self.hosts)
        except BaseException:
            self.down()
            raise

    def keep(self) -> None:
        """Let the cluster stand when this process ends."""
        (self.record.folder / "kept").touch()

    def down(self) -> None:
        """
        End everything that runs there and remove it; harmless when repeated. Raises TestbedError if devices
        of the machine are not as they were.
        """
        self._refresh()
        with records.locked():
            records.remove(self.record, self.clock)
            records.remove_dead(self.clock)
        before, now = self.record.notes.get(DEVICES_BEFORE, ""), host_maker.devices()
        if before and before != now:
            raise TestbedError(
                f"devices of this machine have been changed, from {before} to {now}: mend them"
            )

    def command(
        self,
        host: str,
        argv: Sequence[str],
        *,
        user: str = "root",
        environment: Mapping[str, str] | None = None,
    ) -> tuple[list[str], dict[str, str]]:
        """The argument list and environment that run a command on a host from this machine."""
        person = self.people.of(user)
        words = commands.entering(self._first(host), person, argv)
        return words, commands.environment(person, environment)

    def run(
        self,
        host: str,
        argv: Sequence[str],
        *,
        user: str = "root",
        environment: Mapping[str, str] | None = None,
        given: str = "",
        timeout_s: float = COMMAND_S,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end. Raises CommandFailed, unless told not to check."""
        _, variables = self.command(host, argv, user=user, environment=environment)
        try:
            done = self._called(host, self.people.of(user), argv, variables, given.encode(), timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TestbedError(f"{' '.join(argv)} on {host} takes longer than {timeout_s} s") from error
        if check and done.returncode != 0:
            raise CommandFailed(host, argv, done)
        return done

    def _called(
        self,
        host: str,
        person: Person,
        argv: Sequence[str],
        variables: Mapping[str, str],
        given: bytes = b"",
        timeout_s: float = COMMAND_S,
    ) -> subprocess.CompletedProcess[str]:
        """A command that the host's first process runs to its end, where that is the testbed's own."""
        first = self._first(host)
        try:
            words = commands.as_person(person, argv)
            with Call(host_maker.door(self.record, host), words, variables, given) as call:
                done = call.done(timeout_s, self.clock)
        except NobodyThere:
            words = commands.entering(first, person, argv)
            done = subprocess.run(
                words, env=dict(variables), input=given, capture_output=True, timeout=timeout_s, check=False
            )
        # What programs print may hold what users have put into names and variables.
        output, error = (
            text.decode(errors="backslashreplace").replace("\r\n", "\n")
            for text in (done.stdout, done.stderr)
        )
        return subprocess.CompletedProcess(list(argv), done.returncode, output, error)

    def run_everywhere(self, hosts: Sequence[str], argv: Sequence[str], timeout_s: float = COMMAND_S) -> None:
        """Run a command on many hosts at once. Raises CommandFailed of the first that fails."""
        begun = {host: self.command(host, argv)[0] for host in hosts}
        commands.together(begun, commands.environment(self.people.of("root")), argv, timeout_s)

    def start(
        self,
        host: str,
        argv: Sequence[str],
        *,
        name: str,
        user: str = "root",
        environment: Mapping[str, str] | None = None,
        at_boot: bool = False,
    ) -> None:
        """Start a program that goes on; its output is in `log`. `at_boot`: again after each reboot."""
        service = HostService(
            name=name, argv=tuple(argv), user=user, environment=tuple((environment or {}).items())
        )
        self._start(host, service)
        if at_boot:
            others = [each for each in self.record.services.get(host, ()) if each.name != name]
            self._record(services={**self.record.services, host: (*others, service)})

    def start_preloaded(
        self, host: str, options: Sequence[str], *, name: str, environment: Mapping[str, str]
    ) -> None:
        """Start outriderd as `start` does, without its imports."""
        if self.is_running(host, name):
            raise TestbedError(f"{name} runs on {host} already: kill it first")
        variables = commands.environment(self.people.of("root"), environment)
        preloaded().begin(self._first(host).pid, name, options, variables)

    def is_running(self, host: str, name: str) -> bool:
        return self._signal(host, name, "0")

    def kill(self, host: str, name: str, signal: str = "KILL") -> None:
        """Send a signal to a program that `start` started; after KILL and TERM wait until it is gone."""
        if self._signal(host, name, signal) and signal in {"KILL", "TERM"}:
            self.wait_for(f"the end of {name} on {host}", lambda: not self.is_running(host, name))

    def log(self, host: str, name: str, lines: int = LOG_LINES) -> str:
        """The end of what a program that `start` started has said."""
        return self.run(host, ["tail", "-n", str(lines), f"/var/log/testbed/{name}.log"], check=False).stdout

    def programs(self, host: str) -> list[str]:
        """The names of what runs on a host, beside its first process."""
        first = self._first(host).pid
        space = os.readlink(f"/proc/{first}/ns/pid")
        found = set()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(path / "ns/pid") == space and int(path.name) != first:
                    found.add((path / "comm").read_text().strip())
        return sorted(found)

    def write(
        self, host: str, path: str, text: str | bytes, *, mode: int = 0o644, owner: str = "root:root"
    ) -> None:
        """Write a file of a host, whole or not at all."""
        content = text.encode() if isinstance(text, str) else text
        words = [*commands.WRITTEN, path, f"{mode:o}", owner]
        root = self.people.of("root")
        done = self._called(host, root, words, commands.environment(root), content)
        if done.returncode != 0:
            raise TestbedError(f"{path} of {host} cannot be written: {done.stderr.strip()}")

    def read(self, host: str, path: str) -> str:
        return self.run(host, ["cat", path]).stdout

    def reboot(self, host: str) -> None:
        """As by the power button: every process dies at once, disks stay, /run and /tmp are empty."""
        self.power_off(host)
        self.power_on(host)

    def power_off(self, host: str) -> None:
        process = self._first(host)
        process.kill()
        self.wait_for(f"the end of {host}", lambda: not process.is_alive())
        host_maker.part(self.record, host)

    def power_on(self, host: str) -> None:
        self._make([host])
        self.boot([host])
        for service in self.record.services.get(host, ()):
            self._start(host, service)

    def set_rate(self, host: str, rate_bits_per_s: int) -> None:
        """Another rate for a host's link, in both directions, until its next boot."""
        host_maker.set_rate(self.record, host, rate_bits_per_s)

    def rack_bytes(self, rack: str) -> tuple[int, int]:
        """What a rack's link has carried into it and out of it, with all headers."""
        return host_maker.rack_bytes(self.record, rack)

    def cut(self, host: str) -> None:
        """Pull the cable: from now on silence, not a reset."""
        host_maker.set_link(self.record, host, is_up=False)

    def mend(self, host: str) -> None:
        host_maker.set_link(self.record, host, is_up=True)

    def wait_for(
        self,
        what: str,
        condition: Callable[[], bool],
        timeout_s: float = WAIT_S,
        logs: Callable[[], str] | None = None,
    ) -> None:
        """
        Ask until it is so. Raises TestbedError with the logs when it has not become so in time.

        Most questions are commands on hosts.
        """
        if not awaited(condition, timeout_s, POLL_S, clock=self.clock):
            told = "" if logs is None else f"\n{logs()}"
            raise TestbedError(f"waited {timeout_s} s for {what}{told}")

    def boot(self, hosts: Sequence[str]) -> None:
        """What a batch system starts on hosts that have just come up."""

    def files(self, host: str) -> list[InitialFile]:
        """What a host has from its first boot, beside its tree."""
        names = [f"{address} {name}\n" for name, address in self.record.addresses.items()]
        return [
            InitialFile(path="/etc/hosts", content=("127.0.0.1 localhost\n" + "".join(names)).encode()),
            InitialFile(path="/etc/hostname", content=f"{host}\n".encode()),
            InitialFile(path="/etc/nsswitch.conf", content=NSSWITCH),
            InitialFile(path="/etc/resolv.conf", content=b""),
            InitialFile(path="/etc/passwd", content=self.people.passwd()),
            InitialFile(path="/etc/group", content=self.people.group()),
        ]

    def folders(self) -> list[Folder]:
        """What a host has after each boot."""
        # Where systemd runs, its tmpfiles.d would make the second one.
        return [
            Folder(path="/run/lock", mode=0o1777),
            Folder(path="/run/outrider"),
            Folder(path="/var/log/testbed"),
        ]

    def _make(self, hosts: Sequence[str]) -> None:
        files = {host: self.files(host) for host in hosts}
        site, made = host_maker.make(self.record, hosts, files, self.folders())
        self._record(site=site, hosts={**self.record.hosts, **made})
        host_maker.join(self.record, hosts)

    def _homes(self) -> str:
        """The command that makes homes, which all hosts share, for users."""
        users = [f"install -d -m 755 -o {each.uid} -g {each.gid} {each.home}" for each in self.people.users]
        return " && ".join(users) or "true"

    def _start(self, host: str, service: HostService) -> None:
        if self.is_running(host, service.name):
            raise TestbedError(f"{service.name} runs on {host} already: kill it first")
        person = self.people.of(service.user)
        words = commands.starting(person, service.name, service.argv)
        variables = commands.environment(person, dict(service.environment))
        done = self._called(host, self.people.of("root"), words, variables)
        if done.returncode != 0:
            raise CommandFailed(host, service.argv, done)

    def _signal(self, host: str, name: str, signal: str) -> bool:
        return self.run(host, [*commands.SIGNALLED, name, signal], check=False).returncode == 0

    def from_outside(self, host: str, path: str) -> str:
        """How this machine names what a host calls `path`, a socket, too."""
        return str(Path("/proc", str(self._first(host).pid), "root", path.lstrip("/")))

    def _first(self, host: str) -> HostProcess:
        """A host's first process, by which its namespaces are entered."""
        if host not in self.record.addresses:
            raise TestbedError(f"no host {host} in {self.name}: there are {' '.join(self.hosts)}")
        process = self.record.hosts.get(host)
        if process is None or not process.is_alive():
            self._refresh()
            process = self.record.hosts.get(host)
        if process is None or not process.is_alive():
            raise TestbedError(f"host {host} of {self.name} is off: power it on, or remove all with down")
        return process

    def _refresh(self) -> None:
        """Another process may have rebooted a host meanwhile."""
        with contextlib.suppress(TestbedError):
            self.record = records.read(self.name)

    def _record(self, **changes: object) -> None:
        self.record = records.replaced(self.record, **changes)


def _interpreter(tree: Path) -> list[Path]:
    """The folders of this interpreter that hosts with this machine's own tree do not see there."""
    if tree != Path("/"):
        return []
    found = dict.fromkeys(Path(each).resolve() for each in (sys.prefix, sys.base_prefix))
    return [path for path in found if any(path.is_relative_to(each) for each in host_maker.HIDDEN)]
