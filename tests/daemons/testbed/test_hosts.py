"""Hosts as namespaces: reachable, limited, cut, and gone without a trace."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.hosts import FOLDER, Hosts, HostsError, remove_leftovers, start_ticks
from tests.repository import ROOT

RATE_BITS_PER_S = 80_000_000
LISTEN = (
    "import socket, sys; server = socket.create_server((sys.argv[1], 5000)); print('ready', flush=True);\n"
    "while True:\n  sock, _ = server.accept()\n  sock.sendall(bytes(int(sys.argv[2]))); sock.close()"
)
FETCH = (
    "import socket, sys, time\nsock = socket.create_connection((sys.argv[1], 5000), timeout=2)\n"
    "begin = time.monotonic(); size = 0\nwhile more := sock.recv(1 << 20): size += len(more)\n"
    "sock.close(); print(size, time.monotonic() - begin)"
)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        if os.environ.get("CI"):
            pytest.fail("hosts need root and iproute2, and in CI both must be there")
        pytest.skip("hosts need root and iproute2")
    with Hosts(3, RATE_BITS_PER_S) as made:
        yield made


@contextmanager
def serving(hosts: Hosts, host: int, size_bytes: int) -> Iterator[None]:
    """A host that sends so many bytes to whoever connects."""
    argv = [sys.executable, "-c", LISTEN, hosts.address(host), str(size_bytes)]
    process = hosts.start(host, argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()
            process.wait(timeout=240)


def fetched(hosts: Hosts, host: int, other: int) -> tuple[int, float]:
    """How many bytes came from another host, and in how many seconds."""
    size, duration_s = hosts.run(host, [sys.executable, "-c", FETCH, hosts.address(other)], 30).split()
    return int(size), float(duration_s)


def first_fetched(hosts: Hosts, host: int, other: int) -> int:
    """The same, once the neighbours have found each other again."""
    for _ in range(20):
        with contextlib.suppress(HostsError):
            return fetched(hosts, host, other)[0]
    return 0


def test_link_carries_its_rate_and_no_more_in_either_direction(hosts: Hosts) -> None:
    with serving(hosts, 1, 3_000_000):
        size, full_s = fetched(hosts, 0, 1)
        hosts.set_rate(0, RATE_BITS_PER_S // 4)
        _, receiver_s = fetched(hosts, 0, 1)
        hosts.set_rate(1, RATE_BITS_PER_S // 8)
        _, sender_s = fetched(hosts, 2, 1)

    assert size == 3_000_000
    # Ten megabytes a second, save a bucketful that goes through at once; a busy machine takes longer.
    assert 0.27 < full_s < 1.1
    assert 1.1 < receiver_s < 2.2
    assert 2.2 < sender_s < 5


def test_cut_link_is_silent_until_it_is_mended(hosts: Hosts) -> None:
    with serving(hosts, 1, 1000):
        hosts.cut(1)
        with pytest.raises(HostsError, match=r"timed out|No route"):
            fetched(hosts, 0, 1)
        hosts.mend(1)
        size = first_fetched(hosts, 0, 1)

    assert size == 1000


def test_removed_hosts_leave_neither_namespace_nor_process(hosts: Hosts) -> None:
    process = hosts.start(2, ["sleep", "1000"])
    names = [hosts.namespace(host) for host in range(3)]

    hosts.remove()

    assert process.wait(timeout=240) == -9
    assert [name for name in names if (FOLDER / name).exists()] == []


def test_leftovers_of_a_killed_process_are_removed_and_living_ones_stay(hosts: Hosts) -> None:
    program = "from testbed.hosts import Hosts; import os; Hosts(2, 10**8).__enter__(); os._exit(9)"
    killed = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    killed.wait(timeout=240)
    left = [path.name for path in FOLDER.glob(f"outrider-{killed.pid}-*")]

    removed = remove_leftovers()

    assert len(left) == 3
    assert set(left) <= set(removed)
    assert (FOLDER / hosts.namespace(0)).exists()


def test_start_time_tells_a_process_from_a_later_one_of_its_number() -> None:
    assert start_ticks(os.getpid()) == start_ticks(os.getpid())
    assert start_ticks(2**22 + 1) is None
