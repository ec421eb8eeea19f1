"""What users who ask for one image at once do to each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
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


def test_refused_request_leaves_no_file_open(daemon: Inside, folder: Path) -> None:
    own = folder / "own"
    own.write_bytes(b"x")
    own.chmod(0o644)
    path = daemon.socket

    def work() -> Any:
        with DaemonClient(path) as client, own.open("rb") as file:
            fields = {"uri": f"file://{own}", "digest": "no digest"}
            return client.ask("add", fields, descriptors=[file.fileno()])

    errors = [as_user(ALICE, work)["raises"] for _ in range(3)]

    assert errors == ["BadRequest"] * 3
    eventually("no file of hers is open", lambda: str(own) not in open_files(), open_files)


def open_files() -> str:
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(each))
    return "\n".join(found)


def refused(daemon: Inside, verb: str, **fields: Any) -> str:
    """The name of the error."""
    with pytest.raises(CacheError) as caught:
        daemon.ask(verb, **fields)
    return type(caught.value).__name__


def test_who_waits_for_admission_still_has_to_prove_a_right(
    daemon: Inside, carrier: ScriptedCarrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = carrier.hold(A)
    carrier.contents["http://bob/a"] = b"other" + carrier.contents[A][5:]
    fields = {"digest": sha256(carrier.contents[A]), "private": True}
    begun: list[Any] = []
    look = daemon.node.pool.ingest

    def look_before_alice_begins(key: str) -> Any:
        found = look(key)
        if not begun:
            begun.append(None)
            begun.append(daemon.ask("add", uri=A, **{**fields, "uid": ALICE}))
        return found

    monkeypatch.setattr(daemon.node.pool, "ingest", look_before_alice_begins)
    daemon.ask("add", uri="http://bob/a", uid=BOB, **fields)
    gate.set()
    daemon.settle()

    assert refused(daemon, "find", name=fields["digest"], uid=BOB) == "NotInPool"


def test_readers_who_prove_their_right_at_once_are_both_admitted(
    daemon: Inside, carrier: ScriptedCarrier
) -> None:
    daemon.ask("add", uid=ALICE, uri=A, private=True)
    daemon.settle()
    pool = daemon.node.pool
    image = pool.images()[0]

    pool.allow(image, BOB)
    pool.allow(image, BOB + 1)

    assert pool.image(image.digest).readers.uids == (BOB, BOB + 1)


def test_who_joins_cannot_put_the_deadline_of_another_off(daemon: Inside, carrier: ScriptedCarrier) -> None:
    gate = carrier.hold(A)
    soon_s = CLOCK.now_s() + 100
    name = daemon.ask("add", uid=ALICE, uri=A, deadline_s=soon_s)["transfer"]
    daemon.ask("add", uid=BOB, uri=A)
    later = refused(daemon, "transfer-set", uid=BOB, transfer=name, deadline_s=soon_s + 1)
    sooner = daemon.ask("transfer-set", uid=BOB, transfer=name, deadline_s=soon_s - 1)
    gate.set()

    assert later == "NotAllowed"
    assert sooner["deadline_s"] == soon_s - 1


def test_who_joins_what_another_user_has_paused_gets_it(daemon: Inside, carrier: ScriptedCarrier) -> None:
    gate = carrier.hold(A)
    name = daemon.ask("add", uid=ALICE, uri=A)["transfer"]
    daemon.ask("transfer-set", uid=ALICE, transfer=name, pause=True)
    joined = daemon.ask("add", uid=BOB, uri=A)
    gate.set()

    assert (joined["transfer"], joined["state"]) == (name, "running")
    daemon.settle()


def test_who_joins_what_root_has_paused_waits(daemon: Inside, carrier: ScriptedCarrier) -> None:
    carrier.hold(A)
    name = daemon.ask("add", uri=A)["transfer"]
    daemon.ask("transfer-set", transfer=name, pause=True)

    assert daemon.ask("add", uid=BOB, uri=A)["state"] == "paused"
    daemon.ask("transfer-set", transfer=name, cancel=True)
