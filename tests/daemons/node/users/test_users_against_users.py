"""What one user does to another's addresses, digests, pins and places, or tries to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cachemgr.base.errors import NotAllowed
from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import (
    CLOCK,
    MIB,
    Inside,
    ScriptedCarrier,
    as_user,
    eventually,
    needs_root,
    sha256,
)

Start = Callable[..., Inside]
ALICE, BOB = 2001, 2002
A, B = "http://x/a", "http://x/b"


@pytest.fixture(autouse=True)
def root() -> None:
    needs_root()


@pytest.fixture
def daemon(inside: Start, carrier: ScriptedCarrier) -> Inside:
    carrier.contents = {uri: uri[-1:].encode() * MIB for uri in (A, B)}
    return inside()


def asks(daemon: Inside, who: int, verb: str, **fields: Any) -> Any:
    """The result, or the error's name."""
    path = daemon.socket

    def work() -> Any:
        with DaemonClient(path) as client:
            on_progress = (lambda progress: None) if verb == "add" else None
            return client.ask(verb, fields, on_progress=on_progress)

    found = as_user(who, work)
    return found["gives"] if "gives" in found else found["raises"]


def lease_s() -> int:
    return CLOCK.now_s() + 600


def test_what_came_with_a_password_is_that_users_name_alone(inside: Start, carrier: ScriptedCarrier) -> None:
    of_alice, of_bob, bare = (f"https://{who}h/home/image" for who in ("alice:x@", "bob:y@", ""))
    carrier.contents = {of_alice: b"a" * MIB, of_bob: b"b" * MIB}
    daemon = inside()
    digest = f"sha256:{sha256(b'a' * MIB)}"

    theirs = asks(daemon, ALICE, "add", uri=of_alice)["digest"]
    mine = asks(daemon, BOB, "add", uri=of_bob)["digest"]

    assert (theirs, mine) == (digest, f"sha256:{sha256(b'b' * MIB)}")
    assert asks(daemon, 2003, "find", name=bare) == "NotInPool"
    assert asks(daemon, ALICE, "find", name=bare)["digest"] == digest
    assert asks(daemon, ALICE, "forget", alias=bare) == {"was_known": True}


def test_own_password_for_the_same_address_proves_a_right(inside: Start, carrier: ScriptedCarrier) -> None:
    of_alice, of_bob = (f"https://{who}@h/image" for who in ("alice:x", "bob:y"))
    carrier.contents = {of_alice: b"a" * MIB, of_bob: b"a" * MIB}
    daemon = inside()
    digest = asks(daemon, ALICE, "add", uri=of_alice, private=True)["digest"]

    assert asks(daemon, BOB, "add", uri=of_bob, digest=digest)["digest"] == digest
    assert asks(daemon, BOB, "find", name=digest)["digest"] == digest


def test_pins_of_a_user_on_one_image_are_few(daemon: Inside) -> None:
    daemon.ask("add", uri=A)
    daemon.settle()
    path, until_s, most = daemon.socket, lease_s(), daemon.config.user_image_pins

    def pin_again_and_again() -> list[str]:
        told = []
        with DaemonClient(path) as client:
            for number in range(most + 1):
                try:
                    client.ask("pin", {"name": A, "owner": f"o{number}", "until_s": until_s})
                except NotAllowed as error:
                    told.append(str(error))
            client.ask("pin", {"name": A, "owner": "o0", "until_s": until_s})
            try:
                pin = {"owner": "another", "until_s": until_s}
                client.ask("add", {"uri": A, "pin": pin})
            except NotAllowed as error:
                told.append(str(error))
        return told

    told = as_user(ALICE, pin_again_and_again)["gives"]

    assert len(told) == 2
    assert "give some back" in told[0]
    assert len(daemon.ask("show", name=A)["pin_list"]) == most
    assert asks(daemon, BOB, "pin", name=A, owner="o", until_s=until_s)["size_bytes"] == MIB


def test_source_that_changed_after_a_failure_is_brought_anew(inside: Start, carrier: ScriptedCarrier) -> None:
    carrier.contents, carrier.broken = {A: b"a" * MIB}, {A: 100}
    daemon = inside()
    failed = asks(daemon, ALICE, "add", uri=A)
    carrier.contents, carrier.broken = {A: b"b" * 2 * MIB}, {}

    found = asks(daemon, BOB, "add", uri=A)

    assert failed == "SourceFailed"
    assert found["digest"] == f"sha256:{sha256(b'b' * 2 * MIB)}"


def test_users_endless_transfers_leave_room_for_roots(inside: Start, carrier: ScriptedCarrier) -> None:
    endless = [f"http://x/endless{number}" for number in range(3)]
    carrier.contents = {uri: bytes(MIB) for uri in endless} | {A: b"a" * MIB}
    gates = [carrier.hold(uri) for uri in endless]
    daemon = inside(transfers="2")
    path = daemon.socket

    def begin() -> None:
        with DaemonClient(path) as client:
            for uri in endless:
                client.ask("add", {"uri": uri, "deadline_s": 0})

    as_user(ALICE, begin)
    begun = daemon.ask("add", uri=A)

    def state() -> str:
        table = daemon.ask("transfers")["transfers"]
        return next(str(each["state"]) for each in table if each["transfer"] == begun["transfer"])

    try:
        eventually("root's image is here", lambda: state() == "done", daemon.log)
    finally:
        for gate in gates:
            gate.set()
        daemon.settle()

    assert daemon.ask("find", name=A)["size_bytes"] == MIB


@pytest.mark.parametrize("claim", [{"private": True}, {}])
@pytest.mark.parametrize("size_bytes", [MIB, 2 * MIB])
def test_users_claim_on_a_digest_stops_nobody_else(
    inside: Start, carrier: ScriptedCarrier, claim: dict[str, Any], size_bytes: int
) -> None:
    slow = "http://slow/a"
    carrier.contents = {slow: b"a" * size_bytes, A: b"a" * MIB, B: b"b" * MIB}
    gate = carrier.hold(slow)
    daemon = inside()
    path, digest = daemon.socket, sha256(b"a" * MIB)

    def begin() -> None:
        with DaemonClient(path) as client:
            client.ask("add", {"uri": slow, "digest": digest, **claim})

    as_user(ALICE, begin)
    try:
        forged = asks(daemon, BOB, "add", uri=B, digest=digest)
        found = asks(daemon, BOB, "add", uri=A, digest=digest)
        visible = asks(daemon, BOB, "find", name=digest)
    finally:
        gate.set()
        daemon.settle()

    assert forged == "WrongBytes"
    assert asks(daemon, BOB, "find", name=B) == "NotInPool"
    assert (found["digest"], found["is_public"]) == (f"sha256:{digest}", True)
    assert visible["uri"] == A
    assert daemon.ask("ls")["arriving"] == []
