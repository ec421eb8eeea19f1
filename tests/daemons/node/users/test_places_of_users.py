"""Users who take all transfers that they can get: others, root and the service still have theirs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.errors import CacheError
from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import (
    CLOCK,
    MIB,
    Inside,
    ScriptedCarrier,
    add_file,
    as_user,
    eventually,
    needs_root,
    sha256,
)

Start = Callable[..., Inside]
HOSTILE = list(range(3001, 3011))
BOB = 2002
WANTED = "http://x/wanted"
PROMISED = "http://x/promised"


@pytest.fixture(autouse=True)
def root() -> None:
    needs_root()


def endless(uid: int, number: int) -> str:
    return f"http://slow/{uid}/{number}"


@pytest.fixture
def siege(inside: Start, carrier: ScriptedCarrier) -> Any:
    """A daemon, and sources of hostile users that deliver nothing until the test is over."""
    each = 60
    carrier.contents = {endless(uid, number): bytes(1000) for uid in HOSTILE for number in range(each)}
    gates = [carrier.hold(uri) for uri in carrier.contents]
    carrier.contents |= {WANTED: b"w" * MIB, PROMISED: b"p" * MIB}
    daemon = inside(transfers_waiting="64", transfers_kept="16", user_transfers_waiting="16", user_turn="1s")
    yield daemon
    for gate in gates:
        gate.set()


def fill(daemon: Inside, uid: int, most: int = 60, **more: Any) -> tuple[int, str]:
    """How many transfers a user gets, and what is said of the next."""
    path = daemon.socket

    def work() -> tuple[int, str]:
        with DaemonClient(path) as client:
            for number in range(most):
                try:
                    client.ask("add", {"uri": endless(uid, number), "deadline_s": 0, **more})
                except CacheError as error:
                    return number, str(error)
        return most, ""

    return tuple(as_user(uid, work)["gives"])


def begin(daemon: Inside, uid: int, **fields: Any) -> Any:
    path = daemon.socket

    def work() -> Any:
        with DaemonClient(path) as client:
            return client.ask("add", fields)

    return as_user(uid, work)


def state_of(daemon: Inside, name: str) -> dict[str, Any]:
    table = daemon.ask("transfers")["transfers"]
    return next(each for each in table if each["transfer"] == name)


def comes(daemon: Inside, name: str) -> None:
    eventually(f"{name} is here", lambda: state_of(daemon, name)["state"] == "done", daemon.log)


@pytest.mark.parametrize("crowd", [HOSTILE[:1], HOSTILE])
def test_users_who_fill_the_queue_refuse_nobody_else(siege: Inside, crowd: list[int]) -> None:
    taken = [fill(siege, uid) for uid in crowd]
    other = begin(siege, BOB, uri=WANTED)
    promised = siege.ask("add", uri=PROMISED, deadline_s=CLOCK.now_s() + 60)

    assert all(0 < count <= 16 and said for count, said in taken)
    assert sum(count for count, _ in taken) < 4 + 64 - 16
    comes(siege, other["gives"]["transfer"])
    comes(siege, promised["transfer"])


def test_refusal_names_what_the_user_has_and_the_option(inside: Start, carrier: ScriptedCarrier) -> None:
    carrier.contents = {endless(HOSTILE[0], number): b"x" for number in range(4)}
    gates = [carrier.hold(uri) for uri in carrier.contents]
    daemon = inside(user_transfers_waiting="3")

    count, said = fill(daemon, HOSTILE[0], most=4)

    assert count == 3
    assert said.startswith("you have 3 transfers and may have 3: ")
    assert "ask the administrator for user_transfers_waiting" in said
    for gate in gates:
        gate.set()


def test_root_has_its_kept_places_in_a_queue_that_users_have_filled(siege: Inside, carrier: Any) -> None:
    crowd = [f"http://root/{number}" for number in range(16)]
    carrier.contents |= dict.fromkeys(crowd, b"r" * 10)
    for uid in HOSTILE:
        fill(siege, uid)

    begun = [siege.ask("add", uri=uri)["transfer"] for uri in crowd]

    for name in begun:
        comes(siege, name)
    assert len(begun) == 16


def test_user_with_one_transfer_does_not_wait_for_all_of_one_with_many(siege: Inside) -> None:
    count, _ = fill(siege, HOSTILE[0])
    begun = begin(siege, BOB, uri=WANTED)

    comes(siege, begun["gives"]["transfer"])
    states = [each["state"] for each in siege.ask("transfers")["transfers"]]
    assert count >= 10
    assert states.count("running") + states.count("waiting") + states.count("paused") == count


def test_ten_users_whose_transfers_never_end_take_turns_with_another(siege: Inside) -> None:
    for uid in HOSTILE:
        fill(siege, uid, most=3)
    begun = begin(siege, BOB, uri=WANTED)["gives"]["transfer"]

    comes(siege, begun)
    assert state_of(siege, begun)["error"] is None


def test_deadline_of_a_user_does_not_overtake_a_promise(siege: Inside, carrier: ScriptedCarrier) -> None:
    promises = [f"http://p/{number}" for number in range(4)]
    carrier.contents |= dict.fromkeys(promises, b"p" * 10)
    gates = [carrier.hold(uri) for uri in promises]
    fill(siege, HOSTILE[0], most=5)
    begun = [siege.ask("add", uri=uri, deadline_s=CLOCK.now_s() + 3600)["transfer"] for uri in promises]

    try:
        assert [state_of(siege, name)["state"] for name in begun] == ["running"] * 4
    finally:
        for gate in gates:
            gate.set()


def test_user_who_joins_with_an_early_deadline_moves_no_promise_before_another(
    siege: Inside, carrier: ScriptedCarrier
) -> None:
    promises = [f"http://p/{number}" for number in range(5)]
    carrier.contents |= dict.fromkeys(promises, b"p" * 10)
    gates = [carrier.hold(uri) for uri in promises]
    now_s = CLOCK.now_s()
    begun = [
        siege.ask("add", uri=uri, deadline_s=now_s + 100 * (number + 1))["transfer"]
        for number, uri in enumerate(promises)
    ]
    begin(siege, HOSTILE[0], uri=promises[4], deadline_s=0)

    try:
        assert [state_of(siege, name)["state"] for name in begun] == ["running"] * 4 + ["waiting"]
    finally:
        for gate in gates:
            gate.set()


def test_slow_rate_that_a_user_names_does_not_bind_those_who_join(
    siege: Inside, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(PROMISED)
    begun = begin(siege, HOSTILE[0], uri=PROMISED, rate_bytes_per_s=1)["gives"]["transfer"]
    before = state_of(siege, begun)["limit_bytes_per_s"]
    siege.ask("add", uri=PROMISED, deadline_s=CLOCK.now_s() + 60)

    assert before == 1
    assert state_of(siege, begun)["limit_bytes_per_s"] is None
    gate.set()


def test_rate_that_root_has_set_stays_when_users_join(siege: Inside, carrier: ScriptedCarrier) -> None:
    gate = carrier.hold(PROMISED)
    begun = siege.ask("add", uri=PROMISED)["transfer"]
    siege.ask("transfer-set", transfer=begun, rate_bytes_per_s=1000)
    begin(siege, BOB, uri=PROMISED)

    assert state_of(siege, begun)["limit_bytes_per_s"] == 1000
    gate.set()


def test_place_of_a_transfer_that_the_service_joins_is_the_services(
    siege: Inside, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(PROMISED)
    begin(siege, BOB, uri=PROMISED)
    before = siege.node.transfers.places.transfers.held_by(BOB)
    siege.ask("add", uri=PROMISED)

    assert (before, siege.node.transfers.places.transfers.held_by(BOB)) == (1, 0)
    gate.set()
    eventually("the place is free", lambda: siege.node.transfers.places.transfers.in_all == 0, siege.log)


def test_files_that_a_user_hands_over_for_one_image_are_few(
    inside: Start, carrier: ScriptedCarrier, folder: Path
) -> None:
    data = b"f" * 1000
    carrier.contents = {f"file://{folder}/f{number}": data for number in range(20)}
    gates = [carrier.hold(uri) for uri in carrier.contents]
    for number in range(20):
        (folder / f"f{number}").write_bytes(data)
        (folder / f"f{number}").chmod(0o644)
    daemon = inside(user_files="8")
    path = daemon.socket
    open_before = len(os.listdir("/proc/self/fd"))

    def hand_over() -> list[str]:
        told = []
        with DaemonClient(path) as client:
            for number in range(20):
                try:
                    add_file(client, folder / f"f{number}", {"digest": sha256(data)})
                except CacheError as error:
                    told.append(str(error))
        return told

    told = as_user(HOSTILE[0], hand_over)["gives"]
    held = len(os.listdir("/proc/self/fd")) - open_before

    assert len(told) == 12
    assert "8 open files" in told[0]
    assert "user_files" in told[0]
    assert held < 16
    for gate in gates:
        gate.set()
    daemon.settle()
    eventually("they are closed", lambda: daemon.node.transfers.places.files.in_all == 0, daemon.log)


def test_ended_transfers_of_one_user_do_not_push_out_those_of_others(
    siege: Inside, carrier: ScriptedCarrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begin(siege, BOB, uri=WANTED)["gives"]["transfer"]
    comes(siege, begun)
    path = siege.socket
    carrier.contents |= {f"http://none/{number}": b"n" for number in range(150)}
    carrier.broken |= {f"http://none/{number}": 0 for number in range(150)}

    def fail() -> None:
        with DaemonClient(path) as client:
            for number in range(150):
                try:
                    client.ask("add", {"uri": f"http://none/{number}"}, on_progress=lambda told: None)
                except CacheError:
                    continue

    as_user(HOSTILE[0], fail)
    table = siege.ask("transfers")["transfers"]

    assert begun in [each["transfer"] for each in table]
    assert len(table) <= 101


def test_transfer_of_users_alone_ends_some_time(
    siege: Inside, carrier: ScriptedCarrier, inside: Start
) -> None:
    begun = begin(siege, HOSTILE[0], uri=endless(HOSTILE[0], 0))["gives"]["transfer"]
    carrier.hold(PROMISED)
    promised = siege.ask("add", uri=PROMISED)["transfer"]
    for each in siege.node.transfers.all():
        each.begun_s -= siege.config.user_transfer_time_s

    siege.node.transfers.end_overdue()

    eventually("it has ended", lambda: state_of(siege, begun)["state"] == "cancelled", siege.log)
    assert "user_transfer_time" in state_of(siege, begun)["message"]
    assert state_of(siege, promised)["state"] == "running"
    carrier.gates[PROMISED][1].set()
