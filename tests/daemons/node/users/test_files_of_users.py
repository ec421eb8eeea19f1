"""Small files that users have made in the pool: names and pins. Each user has so many."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from cachemgr.base.errors import CacheError, NotAllowed
from cachemgr.daemon.transfers.tally import AGAIN_S, Tally
from cachemgr.network.client import DaemonClient
from cachemgr.pool.records import Alias, decode_alias, encode
from tests.daemons.node.daemons import CLOCK, Inside, ScriptedCarrier, as_user, eventually, needs_root

Start = Callable[..., Inside]
ALICE, BOB = 2001, 2002
A = "http://x/a"


def names_of(daemon: Inside) -> list[str]:
    return sorted(alias.name for alias in daemon.node.pool.aliases())


def adds(daemon: Inside, uid: int, *uris: str) -> list[str]:
    """Brings each of them, one after the other; what was refused."""
    path = daemon.socket

    def work() -> list[str]:
        told = []
        with DaemonClient(path) as client:
            for uri in uris:
                try:
                    client.ask("add", {"uri": uri}, on_progress=lambda progress: None)
                except CacheError as error:
                    told.append(str(error))
        return told

    return list(as_user(uid, work)["gives"])


def test_names_of_one_user_are_few_and_the_oldest_make_way(inside: Start, carrier: ScriptedCarrier) -> None:
    needs_root()
    same = [f"http://x/same{number}" for number in range(20)]
    carrier.contents = dict.fromkeys([*same, A], b"s" * 100)
    daemon = inside(user_names="8")
    daemon.ask("add", uri=A)
    daemon.settle()
    of_bob = adds(daemon, BOB, "http://x/same0")
    told = adds(daemon, ALICE, *same[1:])

    assert (of_bob, told) == ([], [])
    assert names_of(daemon) == sorted([A, "http://x/same0", *same[12:]])


def test_names_of_one_user_are_counted_across_restarts(inside: Start, carrier: ScriptedCarrier) -> None:
    needs_root()
    same = [f"http://x/same{number}" for number in range(12)]
    carrier.contents = dict.fromkeys(same, b"s" * 100)
    first = inside(user_names="8")
    adds(first, ALICE, *same[:8])
    first.stop()
    second = inside(user_names="8")
    adds(second, ALICE, *same[8:])

    assert len(names_of(second)) == 8
    assert set(same[8:]) <= set(names_of(second))


def test_name_of_another_is_not_taken_for_an_old_one_of_ones_own(
    inside: Start, carrier: ScriptedCarrier
) -> None:
    needs_root()
    carrier.contents = {uri: uri.encode() for uri in (A, "http://x/b", "http://x/c")}
    daemon = inside(user_names="1")
    adds(daemon, ALICE, A)
    daemon.node.pool.add_alias(Alias(A, daemon.ask("find", name=A)["digest"][7:], None, BOB))
    adds(daemon, ALICE, "http://x/b", "http://x/c")

    assert names_of(daemon) == [A, "http://x/c"]


def test_record_of_a_name_says_whose_it_is_and_an_older_one_says_nothing() -> None:
    old = encode({"name": "n", "digest": "0" * 64, "expires_s": None})

    assert decode_alias(old, "x").uid is None
    assert decode_alias(encode(Alias("n", "0" * 64, 5, 7)), "x") == Alias("n", "0" * 64, 5, 7)


def test_pins_of_a_user_on_all_images_are_few(inside: Start, carrier: ScriptedCarrier) -> None:
    needs_root()
    images = [f"http://x/{number}" for number in range(4)]
    carrier.contents = {uri: uri.encode() for uri in images}
    daemon = inside(user_pins="10")
    for uri in images:
        daemon.ask("add", uri=uri)
    daemon.settle()
    path, until_s = daemon.socket, CLOCK.now_s() + 600

    def pin(rounds: int = 4) -> list[str]:
        told = []
        with DaemonClient(path) as client:
            for number in range(rounds):
                for uri in images:
                    try:
                        client.ask("pin", {"name": uri, "owner": f"o{number}", "until_s": until_s})
                    except NotAllowed as error:
                        told.append(str(error))
        return told

    told = as_user(ALICE, pin)["gives"]
    of_bob = as_user(BOB, lambda: pin(1))["gives"]
    daemon.ask("pin", name=images[0], owner="root", until_s=until_s)

    assert len(told) == 6
    assert told[0].startswith("you have 10 pins and may have 10: give some back")
    assert of_bob == []


def test_pin_that_is_renewed_is_no_new_one(inside: Start, carrier: ScriptedCarrier) -> None:
    needs_root()
    carrier.contents = {A: b"a"}
    daemon = inside(user_pins="2")
    daemon.ask("add", uri=A)
    daemon.settle()
    path, until_s = daemon.socket, CLOCK.now_s() + 600

    def renew() -> int:
        with DaemonClient(path) as client:
            for number in range(20):
                client.ask("pin", {"name": A, "owner": f"o{number % 2}", "until_s": until_s + number})
        return 20

    assert as_user(ALICE, renew)["gives"] == 20


class Hands:
    def __init__(self) -> None:
        self.at_s = 100.0

    def now_s(self) -> int:
        return int(self.at_s)

    def monotonic_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds


def test_folders_are_read_again_only_when_it_may_matter() -> None:
    hands, there = Hands(), {7: 0}
    reads: list[int] = []

    def count() -> dict[int, int]:
        reads.append(1)
        return dict(there)

    tally: Any = Tally("pins", 3, count, hands, option="user_pins", remedy="give some back")
    for _ in range(3):
        tally.check(7)
        there[7] += 1
    for _ in range(5):
        with pytest.raises(NotAllowed):
            tally.check(7)
    at_once = len(reads)
    there[7], hands.at_s = 1, hands.at_s + AGAIN_S
    tally.check(7)

    assert (at_once, len(reads)) == (1, 2)


class GatedMaker:
    """The daemon's own maker, whose copies wait for a gate."""

    def __init__(self, maker: Any) -> None:
        self._maker = maker
        self.gate = threading.Event()
        self.begun = 0
        self.choose, self.taken_bytes, self.remove = maker.choose, maker.taken_bytes, maker.remove
        self.hand_over = maker.hand_over

    def make(self, wish: Any, image_path: str, folder: str) -> Any:
        self.begun += 1
        assert self.gate.wait(60)
        return self._maker.make(wish, image_path, folder)


def test_instances_that_a_user_asks_for_at_once_are_counted(inside: Start, carrier: ScriptedCarrier) -> None:
    needs_root()
    carrier.contents = {A: b"a" * 1000}
    daemon = inside(user_instances="2")
    daemon.ask("add", uri=A)
    daemon.settle()
    maker = daemon.node.maker = GatedMaker(daemon.node.maker)
    path, until_s = daemon.socket, CLOCK.now_s() + 600

    def ask_at_once() -> list[str]:
        def ask(number: int) -> None:
            with DaemonClient(path) as client:
                fields = {"name": A, "owner": f"o{number}", "until_s": until_s, "method": "copy"}
                try:
                    told.append(str(client.ask("instance", fields)["state"]))
                except NotAllowed as error:
                    told.append(str(error))

        told: list[str] = []
        asking = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
        for each in asking:
            each.start()
        for each in asking:
            each.join()
        return sorted(told)

    crowd = threading.Thread(target=lambda: found.extend(as_user(ALICE, ask_at_once)["gives"]))
    found: list[str] = []
    crowd.start()
    eventually("one is being made", lambda: maker.begun, daemon.log)
    of_root = threading.Thread(
        target=lambda: daemon.ask("instance", name=A, owner="job", until_s=until_s, method="copy")
    )
    of_root.start()
    eventually("root's does not wait for it", lambda: maker.begun == 2, daemon.log)
    maker.gate.set()
    crowd.join(60)
    of_root.join(60)

    assert found == ["ready"] * 2 + ["you have 2 instances and may have 2: release some"] * 3
