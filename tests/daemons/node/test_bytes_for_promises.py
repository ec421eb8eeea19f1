"""Bytes that are promised to reservations, and what users may hold beside them, asked of daemons."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.errors import CacheError
from cachemgr.daemon.verbs import quota
from cachemgr.machines.batch import kept
from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import (
    CLOCK,
    MIB,
    Inside,
    Outside,
    ScriptedCarrier,
    as_user,
    eventually,
    make_pool,
    needs_root,
)

Start = Callable[..., Inside]
ALICE, BOB = 2001, 2002
POOL_BYTES = 64 * MIB
"""Of the pool that `inside` makes."""
FREE = {"user_bytes": "0", "users_bytes": "0"}
"""Users are bound by promises alone."""


@pytest.fixture(autouse=True)
def root() -> None:
    needs_root()


def asks(socket: str, who: int, verb: str, /, **fields: Any) -> Any:
    """The result, or the error's name and its words."""

    def work() -> Any:
        with DaemonClient(socket) as client:
            try:
                on_progress = (lambda progress: None) if fields.pop("wait", False) else None
                return client.ask(verb, fields, on_progress=on_progress)
            except CacheError as error:
                return [type(error).__name__, str(error)]

    return as_user(who, work)["gives"]


def until(hours: int = 1) -> int:
    return CLOCK.now_s() + 3600 * hours


def image(carrier: ScriptedCarrier, name: str, mib: int) -> str:
    uri = f"http://x/{name}"
    carrier.contents[uri] = name.encode()[:1] * (mib * MIB)
    return uri


def brings(daemon: Inside, uri: str, **fields: Any) -> dict[str, Any]:
    """The service brings an image to the pool."""
    with DaemonClient(daemon.socket) as client:
        return client.ask("add", {"uri": uri, **fields}, on_progress=lambda progress: None)


def others(daemon: Inside) -> list[tuple[int, bool]]:
    """What is held beside promises: bytes, and whether its digest is known."""
    return [(each["size_bytes"] // MIB, bool(each["digest"])) for each in daemon.ask("promise")["others"]]


def test_promised_bytes_are_not_a_users_although_none_has_come(
    inside: Start, carrier: ScriptedCarrier
) -> None:
    daemon = inside(**FREE)
    large, small = image(carrier, "large", 40), image(carrier, "small", 20)
    daemon.ask("promise", size_bytes=30 * MIB, until_s=until())

    refused = asks(daemon.socket, ALICE, "add", uri=large, wait=True)
    taken = asks(daemon.socket, ALICE, "add", uri=small, wait=True)
    brought = brings(daemon, image(carrier, "promised", 30))

    assert refused[0] == "NoRoom"
    assert "30.0 MiB are promised to reservations" in refused[1]
    assert "you hold nothing" in refused[1]
    assert taken["size_bytes"] == 20 * MIB
    assert brought["size_bytes"] == 30 * MIB


def test_pin_of_an_image_that_is_here_passes_no_promise(inside: Start, carrier: ScriptedCarrier) -> None:
    daemon = inside(**FREE)
    uri = image(carrier, "cached", 40)
    digest = brings(daemon, uri)["digest"]
    daemon.ask("promise", size_bytes=30 * MIB, until_s=until())

    pinned = asks(daemon.socket, ALICE, "pin", name=digest, owner="o", until_s=until())
    added = asks(daemon.socket, ALICE, "add", uri=uri, pin={"owner": "o", "until_s": until()})
    instance = asks(daemon.socket, ALICE, "instance", name=digest, owner="o", until_s=until())
    brings(daemon, image(carrier, "promised", 30))

    assert [each[0] for each in (pinned, added, instance)] == ["NoRoom"] * 3
    assert daemon.ask("promise")["others"] == []
    assert not daemon.ask("transfers")["transfers"][-1]["error"]


def test_pin_is_not_made_longer_against_a_promise(inside: Start, carrier: ScriptedCarrier) -> None:
    daemon = inside(**FREE)
    uri, end_s = image(carrier, "own", 40), until()
    added = asks(daemon.socket, ALICE, "add", uri=uri, wait=True, pin={"owner": "o", "until_s": end_s})
    daemon.ask("promise", size_bytes=30 * MIB, until_s=until(48))

    longer = asks(daemon.socket, ALICE, "pin", name=added["digest"], owner="o", until_s=end_s + 60)
    other = asks(daemon.socket, ALICE, "pin", name=added["digest"], owner="other", until_s=end_s + 60)
    same = asks(daemon.socket, ALICE, "pin", name=added["digest"], owner="o", until_s=end_s)

    assert (longer[0], other[0], same["digest"]) == ("NoRoom", "NoRoom", added["digest"])
    assert "cannot be held for longer" in longer[1]
    assert [each["until_s"] for each in daemon.ask("promise")["others"]] == [end_s]


def test_what_service_has_pinned_is_within_what_it_promised(inside: Start, carrier: ScriptedCarrier) -> None:
    daemon = inside(**FREE)
    pin = {"owner": "reservation:r-1", "until_s": until(), "kind": "hold"}
    brings(daemon, image(carrier, "promised", 30), pin=pin)
    daemon.ask("promise", size_bytes=30 * MIB, until_s=until())

    taken = asks(daemon.socket, ALICE, "add", uri=image(carrier, "own", 34), wait=True)

    assert taken["size_bytes"] == 34 * MIB
    assert others(daemon) == []


def test_hold_outlives_the_daemon_and_ends_by_itself(inside: Start, carrier: ScriptedCarrier) -> None:
    first = inside(**FREE)
    uri = image(carrier, "large", 40)
    first.ask("promise", size_bytes=30 * MIB, until_s=CLOCK.now_s() + 3)
    first.stop()
    daemon = inside(**FREE)

    eventually("the daemon has counted", lambda: daemon.ask("promise")["promised_bytes"] == 30 * MIB)
    refused = asks(daemon.socket, ALICE, "add", uri=uri)

    assert refused[0] == "NoRoom"
    eventually("it has expired", lambda: daemon.ask("promise")["promised_bytes"] == 0)
    assert asks(daemon.socket, ALICE, "add", uri=uri, wait=True)["size_bytes"] == 40 * MIB


def test_torn_record_of_promises_refuses_users_until_the_service_has_spoken(
    inside: Start, carrier: ScriptedCarrier
) -> None:
    daemon = inside(**FREE)
    path = Path(daemon.pool) / "promised.json"
    path.write_text('{"version": 1, "size_by')
    uri = image(carrier, "own", 10)

    refused = asks(daemon.socket, ALICE, "add", uri=uri)
    daemon.ask("promise", size_bytes=0, until_s=until())

    assert refused[0] == "PoolDamaged"
    assert "the service writes it again" in refused[1]
    assert asks(daemon.socket, ALICE, "add", uri=uri, wait=True)["size_bytes"] == 10 * MIB


def test_record_is_written_when_it_says_something_else(inside: Start) -> None:
    daemon = inside()
    path = Path(daemon.pool) / "promised.json"
    end_s = until(24)
    daemon.ask("promise", size_bytes=5, until_s=end_s)
    first = path.stat().st_ino

    daemon.ask("promise", size_bytes=5, until_s=end_s + 60)
    second = path.stat().st_ino
    daemon.ask("promise", size_bytes=6, until_s=end_s)

    assert first == second
    assert path.stat().st_ino != second
    assert json.loads(path.read_text()) == {"version": 1, "size_bytes": 6, "expires_s": end_s}
    assert daemon.ask("check")["findings"] == []


@pytest.mark.parametrize("fields", [{"size_bytes": 1}, {"until_s": 5}, {"size_bytes": 1, "until_s": 1 << 40}])
def test_promise_that_makes_no_sense_is_refused(inside: Start, fields: dict[str, int]) -> None:
    daemon = inside()

    with pytest.raises(CacheError, match="promis"):
        daemon.ask("promise", **fields)
    assert not (Path(daemon.pool) / "promised.json").exists()


def test_users_promise_nothing(inside: Start) -> None:
    assert asks(inside().socket, ALICE, "promise", size_bytes=1, until_s=until())[0] == "NotAllowed"


def test_everything_that_cannot_leave_is_reported_by_its_end(inside: Start, carrier: ScriptedCarrier) -> None:
    daemon = inside(**FREE, methods="copy")
    cached, pinned = image(carrier, "cached", 4), image(carrier, "pinned", 8)
    arriving, root = image(carrier, "arriving", 6), image(carrier, "root", 3)
    brings(daemon, cached)
    asks(daemon.socket, ALICE, "add", uri=pinned, wait=True, pin={"owner": "o", "until_s": until()})
    carrier.hold(arriving, MIB)
    asks(daemon.socket, BOB, "add", uri=arriving)
    brings(daemon, root, pin={"owner": "by-hand", "until_s": until(2)})
    daemon.ask("instance", name=cached, owner="job-1", until_s=until(400), uid=ALICE)

    found = daemon.ask("promise")

    held = sorted((each["size_bytes"] // MIB, each["until_s"]) for each in found["others"])
    assert [size for size, _ in held] == [3, 4, 4, 6, 8]
    assert dict(held)[8] <= until() < dict(held)[3] <= until(2)
    assert dict(held)[4] <= until()
    assert (found["limit_bytes"], found["capacity_bytes"]) == (POOL_BYTES, POOL_BYTES)


def test_one_user_holds_a_share_and_is_told_what(inside: Start, carrier: ScriptedCarrier) -> None:
    daemon = inside()
    first, second = image(carrier, "first", 10), image(carrier, "second", 7)
    pin = {"owner": "o", "until_s": until()}
    asks(daemon.socket, ALICE, "add", uri=first, wait=True, pin=pin)

    refused = asks(daemon.socket, ALICE, "add", uri=second, wait=True)
    others = asks(daemon.socket, BOB, "add", uri=second, wait=True)
    asks(daemon.socket, ALICE, "unpin", name=first, owner="o")
    third = asks(daemon.socket, ALICE, "add", uri=image(carrier, "third", 16), wait=True)

    assert refused[0] == "NotAllowed"
    assert "you may hold 16.0 MiB" in refused[1]
    assert "first" in refused[1]
    assert "unpin or release" in refused[1]
    assert others["size_bytes"] == 7 * MIB
    assert third["size_bytes"] == 16 * MIB
    [share, *_] = [each for each in quota.shares(daemon.node) if each.user == str(ALICE)]
    assert (share.thing, share.held, share.most, share.refused) == ("bytes of the pool", 0, 16 * MIB, 1)


def test_all_users_together_leave_half_of_the_pool(inside: Start, carrier: ScriptedCarrier) -> None:
    daemon = inside(users_bytes="50%")
    uris = [image(carrier, f"{number}-x", 16) for number in range(3)]
    pin = {"owner": "o", "until_s": until()}

    found = [
        asks(daemon.socket, 2001 + number, "add", uri=uri, wait=True, pin=pin)
        for number, uri in enumerate(uris)
    ]

    assert [isinstance(each, dict) for each in found] == [True, True, False]
    assert found[2][0] == "NoRoom"
    assert "all users together may hold 32.0 MiB" in found[2][1]
    assert "you hold nothing" in found[2][1]


def test_instances_count_for_a_users_share(inside: Start, carrier: ScriptedCarrier) -> None:
    daemon = inside(methods="copy")
    digest = brings(daemon, image(carrier, "public", 10))["digest"]

    copy = asks(daemon.socket, ALICE, "instance", name=digest, owner="o", until_s=until())
    daemon.ask("instance", name=digest, owner="job-7", until_s=until(), uid=BOB)

    assert copy[0] == "NotAllowed"
    assert "20.0 MiB" in copy[1]
    assert quota.shares(daemon.node)[0].user == str(ALICE)
    assert quota.shares(daemon.node)[0].held == 0


def test_two_pins_at_once_hold_no_more_than_one_after_the_other(
    inside: Start, carrier: ScriptedCarrier
) -> None:
    daemon = inside(**FREE)
    digests = [brings(daemon, image(carrier, f"{number}-x", 14))["digest"] for number in range(4)]
    daemon.ask("promise", size_bytes=24 * MIB, until_s=until())

    def work() -> Any:
        found: list[Any] = []

        def pin(digest: str) -> None:
            with DaemonClient(daemon.socket) as client:
                try:
                    found.append(client.ask("pin", {"name": digest, "owner": "o", "until_s": until()}))
                except CacheError as error:
                    found.append(type(error).__name__)

        threads = [threading.Thread(target=pin, args=(digest,)) for digest in digests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(isinstance(each, dict) for each in found)

    assert as_user(ALICE, work)["gives"] == 2
    assert len(others(daemon)) == 2


def test_reservation_of_bytes_that_receives_none_is_given_up(inside: Start, carrier: ScriptedCarrier) -> None:
    daemon = inside(**FREE, user_stall="1s", sweep_interval="1s")
    uri = image(carrier, "nothing", 60)
    carrier.hold(uri)
    asks(daemon.socket, ALICE, "add", uri=uri, pin={"owner": "o", "until_s": until(700)})
    held = others(daemon)

    eventually("its bytes are free", lambda: others(daemon) == [], daemon.log)

    assert held == [(60, False)]
    [transfer] = daemon.ask("transfers")["transfers"]
    assert transfer["state"] == "cancelled"
    assert "almost nothing has come for 1 s" in transfer["message"]
    assert brings(daemon, image(carrier, "promised", 60))["size_bytes"] == 60 * MIB


def test_promised_image_waits_for_a_source_that_sends_nothing(
    inside: Start, carrier: ScriptedCarrier
) -> None:
    daemon = inside(**FREE, user_stall="1s", sweep_interval="1s")
    uri, other = image(carrier, "promised", 10), image(carrier, "users", 5)
    pin = {"owner": "reservation:r-1", "until_s": until()}
    gate = carrier.hold(uri)
    carrier.hold(other)
    asks(daemon.socket, ALICE, "add", uri=uri)
    daemon.ask("add", uri=uri, pin=pin)
    asks(daemon.socket, ALICE, "add", uri=other)

    eventually("the user's is given up", lambda: "ingest given up" in daemon.log(), daemon.log)
    gate.set()
    daemon.settle()

    assert daemon.ask("find", name=uri)["size_bytes"] == 10 * MIB


def test_who_waits_for_a_slot_keeps_the_reservation(inside: Start, carrier: ScriptedCarrier) -> None:
    daemon = inside(**FREE, user_stall="3s", sweep_interval="1s", transfers="1")
    slow, waiting = image(carrier, "slow", 10), image(carrier, "waiting", 5)
    gate = carrier.hold(slow)
    daemon.ask("add", uri=slow)
    asks(daemon.socket, ALICE, "add", uri=waiting)
    since_s = CLOCK.monotonic_s()
    eventually("time has passed", lambda: CLOCK.monotonic_s() - since_s > 4.5)

    gate.set()
    daemon.settle()

    assert daemon.ask("find", name=waiting)["size_bytes"] == 5 * MIB


def test_service_needs_no_room_that_is_kept_for_nobody(inside: Start, carrier: ScriptedCarrier) -> None:
    daemon = inside()
    broken = image(carrier, "broken", 40)
    carrier.broken[broken] = MIB
    daemon.ask("add", uri=broken, digest="sha256:" + "0" * 64, size_bytes=40 * MIB)
    daemon.settle()

    kept = daemon.ask("ls")["arriving"]
    brought = brings(daemon, image(carrier, "promised", 40))

    assert [each["size_bytes"] for each in kept] == [40 * MIB]
    assert others(daemon) == []
    assert brought["size_bytes"] == 40 * MIB


def test_full_disk_is_said_with_what_the_pool_can_hold(
    inside: Start, carrier: ScriptedCarrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = inside(**FREE)
    brings(daemon, image(carrier, "here", 10))
    monkeypatch.setattr(daemon.node.pool.disk, "free_bytes", lambda path: 6 * MIB, raising=False)
    uri = image(carrier, "own", 8)
    daemon.ask("promise", size_bytes=9 * MIB, until_s=until())

    found = daemon.ask("promise")
    refused = asks(daemon.socket, ALICE, "add", uri=uri)

    assert (found["limit_bytes"], found["capacity_bytes"]) == (POOL_BYTES, 15 * MIB)
    assert refused[0] == "NoRoom"
    assert "its disk has no room for that" in refused[1]


@pytest.mark.parametrize("is_beside", [True, False])
def test_machines_may_take_what_is_promised_to_nobody(
    inside: Start, carrier: ScriptedCarrier, monkeypatch: pytest.MonkeyPatch, is_beside: bool
) -> None:
    daemon = inside(**FREE)
    brings(daemon, image(carrier, "here", 10))
    daemon.ask("promise", size_bytes=30 * MIB, until_s=until())
    monkeypatch.setattr(daemon.node.pool.disk, "free_bytes", lambda path: 50 * MIB, raising=False)
    monkeypatch.setattr(kept, "FOLDER", daemon.node.pool.layout.root if is_beside else "/proc")

    found = asks(daemon.socket, ALICE, "machine-room")

    # Of the 30 MiB, 20 have still to come.
    promised = 20 * MIB if is_beside else 0
    assert found == {"free_bytes": 50 * MIB - promised, "promised_bytes": promised}


def test_pool_of_an_older_version_is_read_and_gets_a_hold(tmp_path: Path) -> None:
    make_pool(tmp_path / "pool")
    first = Outside(tmp_path)
    before = first.ask("promise")
    first.ask("promise", size_bytes=MIB, until_s=until())
    first.end(signal.SIGKILL)
    second = Outside(tmp_path)

    after = second.ask("promise")
    second.end()

    assert (before["promised_bytes"], after["promised_bytes"]) == (0, MIB)


def test_what_arrives_for_a_promise_is_nobody_elses(inside: Start, carrier: ScriptedCarrier) -> None:
    daemon = inside(**FREE)
    uri = image(carrier, "promised", 30)
    gate = carrier.hold(uri, MIB)
    daemon.ask("add", uri=uri, pin={"owner": "reservation:r-1", "until_s": until()})
    daemon.ask("promise", size_bytes=30 * MIB, until_s=until())

    during = others(daemon)
    taken = asks(daemon.socket, ALICE, "add", uri=image(carrier, "own", 34), wait=True)
    gate.set()
    daemon.settle()

    assert (during, taken["size_bytes"]) == ([], 34 * MIB)
    assert others(daemon) == []


def test_bytes_that_a_user_has_left_half_way_count_for_that_user_alone(
    inside: Start, carrier: ScriptedCarrier
) -> None:
    daemon = inside()
    uri = image(carrier, "left", 16)
    carrier.hold(uri, MIB)
    transfer = asks(daemon.socket, ALICE, "add", uri=uri)["transfer"]
    asks(daemon.socket, ALICE, "transfer-set", transfer=transfer, cancel=True)
    daemon.settle()

    more = asks(daemon.socket, ALICE, "add", uri=image(carrier, "more", 2))
    brought = brings(daemon, image(carrier, "promised", 60))

    assert more[0] == "NotAllowed"
    assert others(daemon) == []
    assert brought["size_bytes"] == 60 * MIB
    assert daemon.ask("ls")["arriving"] == []
