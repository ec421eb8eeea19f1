"""Images in layers: what nodes are to keep of them before the rest is brought."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.model import ImagePart
from outrider.service.answers.decision import Decision
from outrider.service.ports import Fetch, NodeReport, Order, Pin, TellNode
from tests.unit.service.desk.sandbox import RATE, Sandbox, digest_of, show, wanted

COMMON = ImagePart(key=digest_of("common"), size_bytes=9 * RATE)


@pytest.fixture
def told(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """What nodes are told."""
    orders: list[Order] = []
    tell = sandbox.tell

    def noted(call: TellNode) -> NodeReport:
        orders.extend(call.orders)
        return tell(call)

    monkeypatch.setattr(sandbox, "tell", noted)
    return orders


def reserve(sandbox: Sandbox, image: str, start: str, *, nodes: int = 1, duration: str = "1h") -> Decision:
    """An image of the layer that all have, and of one of its own."""
    own = ImagePart(key=digest_of(f"{image} alone"), size_bytes=RATE)
    request = wanted(sandbox, name=image, image=image, nodes=nodes, start=start, duration=duration)
    answer = sandbox.ask(replace(request, image=replace(request.image, parts=(COMMON, own), format="layers")))
    assert isinstance(answer, Decision), answer
    return answer


def test_node_keeps_what_is_counted_on_and_no_more_until_the_rest_is_brought(
    sandbox: Sandbox, told: list[Order]
) -> None:
    """What else is there of the image may be in the way of what others were promised meanwhile."""
    first = reserve(sandbox, "ubuntu", "now+10minutes", nodes=4, duration="20m")
    sandbox.sleep(600)
    state = show(sandbox, first.name).reservation.state
    later = reserve(sandbox, "debian", "now+1hours")
    sandbox.sleep(30)
    orders = [order for order in told if getattr(order, "owner", "") == later.name]

    assert state == "active"
    assert [each.layers for each in orders if isinstance(each, Pin)] == [(COMMON.key,)]
    assert not any(isinstance(each, Fetch) for each in orders)


def test_node_keeps_nothing_of_an_image_that_it_is_to_be_sent_whole(
    sandbox: Sandbox, told: list[Order]
) -> None:
    later = reserve(sandbox, "ubuntu", "now+2hours")
    sandbox.sleep(30)

    assert not [order for order in told if getattr(order, "owner", "") == later.name]


def test_reservation_is_ready_again_once_its_node_says_that_only_another_image_of_the_layer_is_gone(
    sandbox: Sandbox,
) -> None:
    first = reserve(sandbox, "ubuntu", "now+10minutes", nodes=4, duration="1h")
    sandbox.sleep(600)
    name = reserve(sandbox, "debian", "now+1hours").name
    sandbox.sleep(3580)
    before = show(sandbox, name).reservation
    assert first.image is not None
    assert first.image.digest is not None
    del sandbox.pools[before.nodes].images[first.image.digest]
    reserve(sandbox, "ubuntu", "now+3hours", nodes=4)
    sandbox.turn()
    lost = show(sandbox, name).reservation
    sandbox.sleep(5)
    after = show(sandbox, name).reservation

    assert (before.state, lost.state, after.state) == ("ready", "preparing", "ready")
