"""What users take is seen: by root all of it, by users their own; and connections leave some to others."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from cachemgr.base.errors import CacheError
from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import CLOCK, Inside, ScriptedCarrier, as_user, needs_root

Start = Callable[..., Inside]
ALICE, BOB = 2001, 2002
A = "http://x/a"


@pytest.fixture(autouse=True)
def root() -> None:
    needs_root()


def dialled_as(uid: int, path: str) -> socket.socket:
    """A connection of that user: the kernel notes who it is when it is made."""
    os.seteuid(uid)
    try:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(20)
        made.connect(path)
        return made
    finally:
        os.seteuid(0)


def is_served(connection: socket.socket) -> bool:
    connection.sendall(b'{"v":1,"do":"ping"}\n')
    return bool(json.loads(connection.recv(4096))["ok"])


@pytest.mark.parametrize("users", [1, 10])
def test_users_who_open_all_connections_they_can_leave_some_to_others(inside: Start, users: int) -> None:
    daemon = inside()
    path = daemon.socket

    def crowd() -> list[Any]:
        held = [dialled_as(3000 + uid, path) for uid in range(users) for _ in range(40)]
        of_bob = [is_served(dialled_as(BOB, path)) for _ in range(3)]
        of_root = [is_served(dialled_as(0, path)) for _ in range(20)]
        return [len(held), of_bob, of_root]

    held, of_bob, of_root = as_user(0, crowd)["gives"]

    assert held == 40 * users
    assert of_bob == [True] * 3
    assert of_root == [True] * 20


@pytest.fixture
def busy(inside: Start, carrier: ScriptedCarrier) -> Any:
    carrier.contents = {f"http://slow/{number}": b"x" * 10 for number in range(4)} | {A: b"a"}
    gates = [carrier.hold(uri) for uri in carrier.contents if uri != A]
    daemon = inside(user_transfers_waiting="3")
    daemon.ask("add", uri=A)
    daemon.settle()
    path, until_s = daemon.socket, CLOCK.now_s() + 600

    def take(most: int) -> None:
        with DaemonClient(path) as client:
            for number in range(most):
                try:
                    client.ask("add", {"uri": f"http://slow/{number}"})
                except CacheError:
                    continue
            client.ask("pin", {"name": A, "owner": "o", "until_s": until_s})

    as_user(ALICE, lambda: take(4))
    as_user(BOB, lambda: take(1))
    yield daemon
    for gate in gates:
        gate.set()


def test_root_sees_who_takes_what_and_was_refused_more(busy: Inside) -> None:
    rows = busy.ask("shares")["shares"]
    found = {(each["thing"], each["user"]): each for each in rows}

    assert found["transfers", str(ALICE)] == {
        "thing": "transfers",
        "unit": "places",
        "user": str(ALICE),
        "held": 3,
        "most": 3,
        "refused": 1,
    }
    assert found["running transfers", str(ALICE)]["held"] == 2
    assert found["pins", str(ALICE)]["held"] == 1
    assert found["pins", str(BOB)]["held"] == 1
    assert found["images", str(ALICE)]["held"] == 3
    assert found["images", "0"]["held"] == 1
    assert ("connections", "0") in found
    assert found["log of a minute", str(ALICE)]["unit"] == "bytes"


def test_users_see_what_they_take_themselves(busy: Inside) -> None:
    path = busy.socket

    def ask() -> Any:
        with DaemonClient(path) as client:
            return client.ask("shares")["shares"]

    rows = as_user(BOB, ask)["gives"]

    assert {each["user"] for each in rows} == {str(BOB)}
    assert {"connections", "pins"} <= {each["thing"] for each in rows}


def test_metrics_tell_refusals_and_the_largest_share_by_thing(busy: Inside) -> None:
    lines = busy.ask("metrics")["text"].splitlines()

    assert 'outrider_share_refused_total{thing="transfers"} 1' in lines
    assert 'outrider_share_largest_ratio{thing="transfers"} 1' in lines
    assert 'outrider_share_largest_ratio{thing="pins"} 0.004' in lines
    assert not any(str(ALICE) in line for line in lines)


def test_answer_is_bounded(inside: Start) -> None:
    daemon = inside()
    for uid in range(200):
        daemon.node.transfers.places.transfers.take(uid)

    rows = daemon.ask("shares")["shares"]

    assert sum(each["thing"] == "transfers" for each in rows) == 50
