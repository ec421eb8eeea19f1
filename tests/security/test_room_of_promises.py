"""Users who fill a node's pool: what they hold is promised to nobody, and what is promised is not theirs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemons.node.daemons import CLOCK, needs_root
from tests.security.siege import ALICE, BOB, Siege, Web, eventually, image_of, siege, workspace

MB = 1_000_000
BARE = {
    "pool: 50MB": "pool: 50MB, user_percent: 100, users_percent: 100",
    "reserve: at-once": "reserve: 5s",
    "reconcile: 30s": "reconcile: 10s",
}
"""A site that has given its users everything that is not promised."""


@pytest.fixture
def bare() -> Iterator[Siege]:
    needs_root()
    with siege(nodes="n1", changes=BARE) as made:
        yield made


@pytest.fixture
def node() -> Iterator[Siege]:
    """As sites are by default."""
    needs_root()
    with siege(nodes="n1") as made:
        yield made


def until(seconds: int) -> int:
    return CLOCK.now_s() + seconds


def takes(service: Siege, uid: int, web: Web, path: str = "/image", seconds: int = 3600) -> dict[str, Any]:
    """A user reserves bytes of the node's pool, with a pin."""
    pin = {"owner": "mine", "until_s": until(seconds)}
    return service.node(uid, "n1", "add", uri=web.uri(path), pin=pin)  # type: ignore[no-any-return]


def refused_words(found: dict[str, Any]) -> str:
    assert found["raises"] in ("NoRoom", "NotAllowed"), found
    return str(found["message"])


def wanted(service: Siege, name: str, size_bytes: int, start: str) -> str:
    """Bob's workspace with an image of so many bytes."""
    path = service.folder / f"{name}.img"
    digest = image_of(BOB, path, hashlib.sha256(name.encode()).digest() * (size_bytes // 32), 0o644)
    return workspace(f"file://{path}", name=name, digest=digest, start=start)


def await_report(service: Siege) -> None:
    """Until the service has asked the node once more."""
    since_s = CLOCK.now_s()

    def has_spoken() -> bool:
        nodes = service.ask(0, "GET", "/v1/nodes")[1]["nodes"]
        return all((each["reported_s"] or 0) > since_s for each in nodes)

    eventually(has_spoken, "a report of the node", service.log.read_text)


def test_what_a_user_pins_is_promised_to_nobody_and_the_earliest_start_is_kept(bare: Siege) -> None:
    content = b"p" * (40 * MB)
    with Web(len(content), get=200, body=content) as web:
        pinned_s = until(25)
        assert "gives" in takes(bare, ALICE, web, seconds=25)
        eventually(lambda: "gives" in bare.node(0, "n1", "find", name=web.uri()), "the image", str)
    await_report(bare)

    status, refused = bare.reserve(BOB, wanted(bare, "pinned", 25 * MB, "now+10s"))
    earliest_s = refused["earliest_start_s"]

    assert (status, refused["result"], refused["cause"]) == (200, "refused", "pool")
    assert "40 MB of its 50 MB are held there by users' images and copies" in refused["reason"]
    assert "games" not in str(refused)
    assert "uid" not in refused["reason"]
    assert pinned_s <= earliest_s <= pinned_s + 180


def test_address_that_sends_nothing_holds_no_promise_up(bare: Siege) -> None:
    gate = threading.Event()
    with Web(45 * MB, get=200) as web:
        web.handler.do_GET = lambda handler: gate.wait(60)
        assert "gives" in takes(bare, ALICE, web)
        await_report(bare)

        status, refused = bare.reserve(BOB, wanted(bare, "silent", 25 * MB, "now+20s"))
        gate.set()

    assert (status, refused["cause"]) == (200, "pool")
    assert "45 MB of its 50 MB" in refused["reason"]


def test_user_who_comes_after_the_promise_is_refused_and_it_is_kept(bare: Siege) -> None:
    with Web(45 * MB, get=200) as web:
        await_report(bare)
        accepted = bare.accepted(BOB, wanted(bare, "first", 25 * MB, "now+12s"))
        eventually(
            lambda: bare.node(0, "n1", "promise")["gives"]["promised_bytes"] >= 25 * MB,
            "the promise being held",
            bare.log.read_text,
        )

        words = refused_words(takes(bare, ALICE, web))
        bare.await_state(accepted["name"], "active")

    assert "promised to reservations" in words
    assert "you hold nothing" in words


def test_defaults_leave_half_of_every_pool_to_reservations(node: Siege) -> None:
    gate = threading.Event()
    with Web(12 * MB, get=200) as web, Web(40 * MB, get=200) as large:
        web.handler.do_GET = large.handler.do_GET = lambda handler: gate.wait(60)
        found = [takes(node, uid, web, f"/{uid}") for uid in (ALICE, 5001, 5002)]
        greedy = refused_words(takes(node, ALICE, large))
        accepted = node.accepted(BOB, wanted(node, "half", 25 * MB, "now+30s"))
        node.await_state(accepted["name"], "ready")
        gate.set()

    assert ["gives" in each for each in found] == [True, True, False]
    assert "all users together may hold 23.8 MiB" in refused_words(found[2])
    assert "user_bytes" in greedy
