"""Hosts on one machine: network namespaces on a bridge, with links of a limited rate.

The bridge is in a namespace of its own, so that nothing of the machine's own network is
touched, and removing the namespaces removes everything. Their names carry the process that
made them and its start time; `remove_leftovers` takes away what dead processes left.
Needs root and iproute2.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import IO

FOLDER = Path("/run/netns")
NAME = re.compile(r"outrider-(\d+)-(\d+)-(?:bridge|h\d+)")
MOST_HOSTS = 250
COMMAND_S = 60
# A jumbo frame's headers take 0.7 % of a link, those of an ordinary frame 4.4 %.
JUMBO_BYTES = 9000
# What a tc bucket lets through at once: above one segment that the kernel has not cut yet.
BURST_BYTES = 128 * 1024
QUEUE_MS = 50


class HostsError(Exception):
    """A command of iproute2 failed; the message quotes it."""


@dataclass(frozen=True)
class NamespaceOwner:
    """The process to which namespaces belong. Process numbers are used again; start times tell them apart."""

    pid: int
    start_ticks: int

    def prefix(self) -> str:
        return f"outrider-{self.pid}-{self.start_ticks}-"

    def is_alive(self) -> bool:
        return start_ticks(self.pid) == self.start_ticks


class Hosts:
    """Some hosts, numbered from 0, with the addresses 10.99.0.1 and on. Use in a with statement."""

    def __init__(self, number: int, rate_bits_per_s: int, mtu_bytes: int = JUMBO_BYTES) -> None:
        if not 1 <= number <= MOST_HOSTS:
            raise ValueError(f"{number} hosts: there can be 1 to {MOST_HOSTS}")
        self.number = number
        self._rate_bits_per_s = rate_bits_per_s
        self._mtu_bytes = mtu_bytes
        pid = os.getpid()
        self._prefix = NamespaceOwner(pid, start_ticks(pid) or 0).prefix()

    def __enter__(self) -> Hosts:
        try:
            self._make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def address(self, host: int) -> str:
        return f"10.99.0.{host + 1}"

    def namespace(self, host: int) -> str:
        return f"{self._prefix}h{host}"

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """The argument list that runs a command on a host."""
        return ["nsenter", f"--net={FOLDER / self.namespace(host)}", "--", *argv]

    def run(self, host: int, argv: Sequence[str], timeout_s: float) -> str:
        """Run a command on a host to its end; gives what it printed."""
        return run(self.command(host, argv), timeout_s)

    def start(
        self,
        host: int,
        argv: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | IO[bytes] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a command on a host; whoever starts it ends it."""
        return subprocess.Popen(self.command(host, argv), stdin=stdin, stdout=stdout)

    def set_rate(self, host: int, rate_bits_per_s: int) -> None:
        """Another rate for a host's link, in both directions, at once."""
        run(["tc", "-n", self._bridge, *limit("change", f"h{host}", rate_bits_per_s)])
        run(["tc", "-n", self.namespace(host), *limit("change", "eth0", rate_bits_per_s)])

    def cut(self, host: int) -> None:
        """Pull the cable: from now on silence, not a reset."""
        run(["ip", "-n", self._bridge, "link", "set", f"h{host}", "down"])

    def mend(self, host: int) -> None:
        run(["ip", "-n", self._bridge, "link", "set", f"h{host}", "up"])

    def remove(self) -> None:
        """End what still runs there and remove everything; harmless when repeated."""
        for name in _names(self._prefix):
            _remove(name)

    @property
    def _bridge(self) -> str:
        return f"{self._prefix}bridge"

    def _make(self) -> None:
        remove_leftovers()
        names = [self._bridge, *(self.namespace(host) for host in range(self.number))]
        batch(["ip"], [f"netns add {name}" for name in names])
        lines = ["link add name switch type bridge", f"link set switch mtu {self._mtu_bytes} up"]
        for host in range(self.number):
            peer = f"peer name eth0 netns {self.namespace(host)} mtu {self._mtu_bytes}"
            lines.append(f"link add name h{host} mtu {self._mtu_bytes} type veth {peer}")
            lines.append(f"link set h{host} master switch up")
        batch(["ip", "-n", self._bridge], lines)
        limits = [" ".join(limit("add", f"h{host}", self._rate_bits_per_s)) for host in range(self.number)]
        batch(["tc", "-n", self._bridge], limits)
        for host in range(self.number):
            address = f"addr add {self.address(host)}/24 dev eth0"
            batch(["ip", "-n", self.namespace(host)], ["link set lo up", address, "link set eth0 up"])
            run(["tc", "-n", self.namespace(host), *limit("add", "eth0", self._rate_bits_per_s)])


def remove_leftovers() -> list[str]:
    """Remove the namespaces of processes that are gone; gives their names."""
    found = []
    for name in _names("outrider-"):
        match = NAME.fullmatch(name)
        if match is not None and not NamespaceOwner(int(match[1]), int(match[2])).is_alive():
            _remove(name)
            found.append(name)
    return found


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name before may have spaces and parentheses of its own.
    return int(text.rpartition(")")[2].split()[19])


def run(argv: Sequence[str], timeout_s: float = COMMAND_S, given: str = "") -> str:
    done = subprocess.run(
        list(argv), input=given, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if done.returncode != 0:
        raise HostsError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def batch(argv: list[str], lines: list[str]) -> None:
    """Many commands of iproute2 in one process."""
    run([*argv, "-batch", "-"], given="\n".join(lines) + "\n")


def limit(verb: str, device: str, rate_bits_per_s: int) -> list[str]:
    """The arguments of tc for a link's rate."""
    place = ["qdisc", verb, "dev", device, "root", "tbf"]
    burst = max(BURST_BYTES, rate_bits_per_s // 8 // 250)
    return [*place, "rate", f"{rate_bits_per_s}bit", "burst", str(burst), "latency", f"{QUEUE_MS}ms"]


def _names(prefix: str) -> list[str]:
    return sorted(path.name for path in FOLDER.glob(f"{prefix}*"))


def _remove(name: str) -> None:
    """End the processes in a namespace, and remove it."""
    with contextlib.suppress(HostsError):
        for pid in run(["ip", "netns", "pids", name]).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
    with contextlib.suppress(HostsError):
        run(["ip", "netns", "delete", name])
