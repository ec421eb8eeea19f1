"""Images in layers on a node: a blob that several have comes once, as fast as the most urgent of them."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from cachemgr.pool import layered as layered_pool
from outrider.service.ports import Fetch, Pin, Unpin
from tests.daemons.node.daemons import MIB, Inside, ScriptedCarrier, eventually, sha256
from tests.unit.service.nodes.telling import CLOCK, OWNER, Tell, codes, fetch

COMMON = b"what both have. " * (MIB // 4)
ONE, OTHER = "relay://one:1", "relay://other:1"


def serve(carrier: ScriptedCarrier, address: str) -> str:
    """An image of two layers, whose first is everybody's, at that address; its digest."""
    own = f"{address} alone has this".encode() * 10_000
    config = f"{address} is configured".encode()
    blobs = {f"sha256:{sha256(each)}": each for each in (COMMON, own, config)}
    common, layer, settings = ({"digest": digest, "size": len(blobs[digest])} for digest in blobs)
    manifest = json.dumps({"config": settings, "layers": [common, layer]}).encode()
    digest = f"sha256:{sha256(manifest)}"
    carrier.contents |= {f"{address}/{name}": content for name, content in blobs.items()}
    carrier.contents[f"{address}/{digest}"] = manifest
    return digest


def layered(address: str, digest: str, **more: Any) -> Fetch:
    uri = f"{address}/{digest}"
    return fetch(digest=digest, uri=uri, sources=(uri,), format="layers", **more)


@pytest.fixture
def stuck(node: Inside, carrier: ScriptedCarrier, tell: Tell) -> tuple[str, threading.Event]:
    """Best effort brings an image from an address that has stopped in the middle of the common layer."""
    digest = serve(carrier, ONE)
    gate = carrier.hold(f"{ONE}/sha256:{sha256(COMMON)}", MIB)
    assert codes(tell(layered(ONE, digest, owner="job-1"))) == [""]
    eventually("a MiB of it is there", lambda: transfer(node)["bytes"] >= MIB, node.log)
    return digest, gate


def transfer(node: Inside) -> dict[str, Any]:
    found: dict[str, Any] = node.ask("transfers")["transfers"][0]
    return found


def there(tell: Tell) -> set[str]:
    return {each.digest for each in tell().images or ()}


def test_deadline_does_not_wait_for_the_source_of_best_effort(
    node: Inside, carrier: ScriptedCarrier, tell: Tell, stuck: tuple[str, threading.Event]
) -> None:
    digest = serve(carrier, OTHER)
    before = len(carrier.started_at)
    tell(layered(OTHER, digest, deadline_s=CLOCK.now_s() + 600))
    eventually("the other image is there", lambda: digest in there(tell), node.log)
    began = dict(carrier.started_at[before:])
    stuck[1].set()
    eventually("the first one is there, too", lambda: stuck[0] in there(tell), node.log)

    common = f"sha256:{sha256(COMMON)}"
    assert began[f"{OTHER}/{common}"] == MIB, "it goes on with the bytes that are there"
    assert [uri for uri, _ in carrier.started_at].count(f"{ONE}/{common}") == 1


def test_deadline_that_joins_later_does_not_wait_either(
    node: Inside, carrier: ScriptedCarrier, tell: Tell, stuck: tuple[str, threading.Event]
) -> None:
    digest = serve(carrier, OTHER)
    tell(layered(OTHER, digest, owner="job-2"))
    eventually("both are under way", lambda: len(node.ask("transfers")["transfers"]) == 2, node.log)
    waits = digest in there(tell)
    tell(layered(OTHER, digest, deadline_s=CLOCK.now_s() + 600))
    eventually("the other image is there", lambda: digest in there(tell), node.log)

    assert not waits
    stuck[1].set()
    node.settle()


def test_best_effort_waits_for_what_a_deadline_brings(
    node: Inside, carrier: ScriptedCarrier, tell: Tell
) -> None:
    first, second = serve(carrier, ONE), serve(carrier, OTHER)
    common = f"sha256:{sha256(COMMON)}"
    gate = carrier.hold(f"{ONE}/{common}", MIB)
    tell(layered(ONE, first, deadline_s=CLOCK.now_s() + 600))
    eventually("a MiB of it is there", lambda: transfer(node)["bytes"] >= MIB, node.log)
    tell(layered(OTHER, second, owner="job-1"))
    eventually("both are under way", lambda: len(node.ask("transfers")["transfers"]) == 2, node.log)
    gate.set()
    eventually("both are there", lambda: {first, second} <= there(tell), node.log)

    assert f"{OTHER}/{common}" not in [uri for uri, _ in carrier.started_at]


def test_layers_that_are_counted_on_are_held_and_others_of_the_image_are_not(
    node: Inside, carrier: ScriptedCarrier, tell: Tell
) -> None:
    """Its reservation holds all of it, and is moved: until its transfer begins it counts on one layer."""
    digest = serve(carrier, ONE)
    order = layered(ONE, digest)
    tell(order)
    eventually("the image is there", lambda: digest in there(tell), node.log)
    blobs = [part.digest for part in layered_pool.parts_of(pool_of(node), pool_of(node).find(digest))]
    kept = f"sha256:{sha256(COMMON)}"
    layers = (kept, "sha256:" + 64 * "0")
    hold = Pin(digest=digest, owner=OWNER, until_s=order.until_s, uri=order.uri, layers=layers)
    tell(hold)
    before = {blob for blob in blobs if holders_of(node, blob)}
    held = tell(Unpin(digest=digest, owner=OWNER), hold)

    assert before == set(blobs), "one that is told late takes nothing away"
    assert codes(held) == ["", "missing"]
    assert [f"sha256:{blob}" for blob in blobs if holders_of(node, blob)] == [kept]
    assert not holders_of(node, digest.removeprefix("sha256:"))


def pool_of(node: Inside) -> Any:
    return node.node.pool


def holders_of(node: Inside, digest: str) -> list[str]:
    return [pin.owner for pin in pool_of(node).pins(digest)]


def test_deadline_waits_for_an_earlier_one_only_until_that_has_passed(
    node: Inside, carrier: ScriptedCarrier, tell: Tell
) -> None:
    first, second = serve(carrier, ONE), serve(carrier, OTHER)
    gate = carrier.hold(f"{ONE}/sha256:{sha256(COMMON)}", MIB)
    tell(layered(ONE, first, deadline_s=CLOCK.now_s() + 3))
    eventually("a MiB of it is there", lambda: transfer(node)["bytes"] >= MIB, node.log)
    tell(layered(OTHER, second, deadline_s=CLOCK.now_s() + 600))
    eventually("both are under way", lambda: len(node.ask("transfers")["transfers"]) == 2, node.log)
    eventually("the later one is there", lambda: second in there(tell), node.log)
    is_first_there = first in there(tell)
    gate.set()
    eventually("the first one is there, too", lambda: first in there(tell), node.log)

    assert not is_first_there


def test_deadline_does_not_wait_for_an_earlier_one_whose_source_gives_nothing(
    node: Inside, carrier: ScriptedCarrier, tell: Tell
) -> None:
    first, second = serve(carrier, ONE), serve(carrier, OTHER)
    gate = carrier.hold(f"{ONE}/sha256:{sha256(COMMON)}", MIB)
    tell(layered(ONE, first, deadline_s=CLOCK.now_s() + 300))
    eventually("a MiB of it is there", lambda: transfer(node)["bytes"] >= MIB, node.log)
    tell(layered(OTHER, second, deadline_s=CLOCK.now_s() + 600, rate_bytes_per_s=MIB))
    eventually("the later one is there", lambda: second in there(tell), node.log)
    is_first_there = first in there(tell)
    gate.set()
    eventually("the first one is there, too", lambda: first in there(tell), node.log)

    assert not is_first_there
    common = f"sha256:{sha256(COMMON)}"
    assert [uri for uri, _ in carrier.started_at].count(f"{ONE}/{common}") == 1, "it takes nothing back"
