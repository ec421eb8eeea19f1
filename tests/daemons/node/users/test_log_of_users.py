"""What users cause in the log is bounded, and said with their names."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from cachemgr.base.errors import CacheError
from cachemgr.daemon.log import MOST_AT_ONCE, WINDOW_S, DaemonLog
from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import Inside, ScriptedCarrier, as_user, eventually, needs_root

Start = Callable[..., Inside]
ALICE, BOB = 2001, 2002
A = "http://x/a"


class Hands:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def now_s(self) -> int:
        return int(self.at_s)

    def monotonic_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def text() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(hands: Hands, text: io.StringIO) -> DaemonLog:
    made = DaemonLog(text)
    made.bound(1000, hands)
    return made


def test_one_culprit_causes_so_much_in_a_minute_and_is_named(log: DaemonLog, text: io.StringIO) -> None:
    for number in range(10_000):
        log.info("image pinned", culprit=7, number=number)
    log.info("image pinned", culprit=8)
    log.info("daemon serves")

    lines = text.getvalue().splitlines()
    assert len(text.getvalue()) < 1500
    assert "warning log lines are left out user=7 bytes_per_minute=1000 option=user_log" in lines
    assert lines[-2:] == ["info image pinned", "info daemon serves"]


def test_what_was_left_out_is_told_when_the_minute_is_over(
    log: DaemonLog, text: io.StringIO, hands: Hands
) -> None:
    for _ in range(100):
        log.info("x" * 100, culprit=7)
    hands.at_s += WINDOW_S
    log.tell_left_out()
    log.info("again", culprit=7)

    assert text.getvalue().splitlines()[-2:] == [
        "warning log lines were left out user=7 lines=90 bytes=9000",
        "info again",
    ]


def test_many_culprits_together_are_bounded(log: DaemonLog, text: io.StringIO) -> None:
    for host in range(1000):
        for _ in range(20):
            log.info("x" * 90, culprit=f"2001:db8::{host}")

    lines = [line for line in text.getvalue().splitlines() if line.startswith("info")]
    assert len(lines) * 90 <= MOST_AT_ONCE * 1000


def test_user_who_adds_and_pins_without_end_fills_no_log(inside: Start, carrier: ScriptedCarrier) -> None:
    needs_root()
    carrier.contents = {A: b"a" * 1000}
    daemon = inside(user_log="4KiB")
    daemon.ask("add", uri=A)
    daemon.settle()
    path, until_s = daemon.socket, daemon.node.clock.now_s() + 600

    def pin_again_and_again() -> None:
        with DaemonClient(path) as client:
            for number in range(300):
                client.ask("pin", {"name": A, "owner": f"o{number % 3}", "until_s": until_s + number})
                with suppress(CacheError):
                    client.ask("find", {"name": "x" * 1000})

    before = len(daemon.log())
    as_user(ALICE, pin_again_and_again)
    written = daemon.log()[before:]
    daemon.ask("pin", name=A, owner="root", until_s=until_s)

    assert len(written) < 8 << 10
    assert f"log lines are left out user={ALICE}" in written
    assert "owner=root" in daemon.log()


def test_strangers_at_the_relay_fill_no_log(inside: Start, folder: Path) -> None:
    (folder / "key").write_bytes(b"k" * 32 + b"\n")
    daemon = inside(relay_listen="127.0.0.1:0", relay_key=str(folder / "key"), user_log="2KiB")
    port = daemon.daemon.relay.port if daemon.daemon and daemon.daemon.relay else 0
    before = len(daemon.log())
    for _ in range(100):
        with closing(socket.create_connection(("127.0.0.1", port), timeout=240)) as sock:
            sock.sendall(b"GET /" + b"x" * 200 + b" HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert sock.recv(12) == b"HTTP/1.1 404"

    eventually("it is said", lambda: "left out user=127.0.0.1" in daemon.log(), daemon.log)
    assert len(daemon.log()) - before < 4 << 10
