"""Whoever knows a digest does not get the bytes: neither of another node, nor what is there already."""

from __future__ import annotations

import pytest

from outrider.service.desk.nodes.events import Arrived, News
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.state import Need
from outrider.service.desk.state.agenda import Agenda
from outrider.service.ports import Fetch, NodeImage, NodeReport, OrderResult, Pin, Readers, Relay, TellNode
from outrider.service.settings import Settings

DIGEST = f"sha256:{'ab' * 32}"
EVIL = "http://evil.example.org/image"
SIZE = 1_000


class Office:
    """What nodes are told, and nodes that answer as a test says."""

    def __init__(self, *, is_public: bool) -> None:
        self.now_s = 1_000
        self.node_orders = NodeOrders(Settings(), Agenda())
        self.node_orders.assemble(("n1", "n2"), {"bob-1": ("n1", "n2")}, self.now_s)
        held = NodeImage(digest=DIGEST, size_bytes=SIZE, is_public=is_public)
        self.held: dict[str, tuple[NodeImage, ...]] = {"n1": (held,), "n2": ()}
        for name in self.held:
            self.node_orders.due(name, self.node_orders.statuses[name].due_s or 0)
        for call in self.node_orders.calls(self.now_s):
            self.hear(call)

    def need(self, node: str, *, transfer: int | None = 7, upstream: tuple[str, ...] = ()) -> None:
        wanted = Need(
            owner="bob-1",
            digest=DIGEST,
            uri=EVIL,
            size_bytes=SIZE,
            format="raw",
            readers=Readers(uids=(1002,)),
            until_s=self.now_s + 10_000,
            transfer=transfer,
            upstream=upstream,
        )
        self.node_orders.need(node, wanted, self.now_s)

    def turn(self, code: str, pin_code: str = "missing", node: str = "n2") -> tuple[Fetch, list[News]]:
        """Tell a node what is due; what it was told to fetch, and what follows from its answer."""
        for _ in range(50):
            status = self.node_orders.statuses[node]
            assert status.due_s is not None
            self.now_s = max(self.now_s, status.due_s)
            self.node_orders.due(node, status.due_s)
            for call in self.node_orders.calls(self.now_s):
                fetches = [each for each in call.orders if isinstance(each, Fetch)]
                news = self.hear(call, code=code, pin_code=pin_code)
                if fetches:
                    return fetches[0], news
        raise AssertionError(f"{node} was told to fetch nothing")

    def hear(self, call: TellNode, *, code: str = "", pin_code: str = "") -> list[News]:
        results = tuple(
            OrderResult(order=order, code=pin_code if isinstance(order, Pin) else code)
            for order in call.orders
        )
        heard = NodeReport(
            node=call.node,
            at_s=self.now_s,
            limit_bytes=1,
            used_bytes=1,
            images=self.held[call.node] if call.wants_images else None,
            results=results,
        )
        return self.node_orders.heard(call, heard, "", self.now_s)


def relays(fetch: Fetch) -> list[str]:
    return [each.node for each in fetch.sources if isinstance(each, Relay)]


@pytest.fixture
def private() -> Office:
    return Office(is_public=False)


def test_private_copy_of_another_node_is_no_source(private: Office) -> None:
    private.need("n2")
    asked = [private.turn("source-failed")[0] for _ in range(4)]

    assert [relays(each) for each in asked] == [[], [], [], []]
    assert all(EVIL in each.sources for each in asked)


def test_public_copy_of_another_node_is_a_source_after_a_failure() -> None:
    office = Office(is_public=True)
    office.need("n2")
    first, second = (office.turn("source-failed")[0] for _ in range(2))

    assert (relays(first), relays(second)) == ([], ["n1"])


def test_node_that_refuses_its_private_copy_passes_it_to_nobody_of_that_reservation(private: Office) -> None:
    private.need("n1")
    private.turn("not-allowed", node="n1")
    private.need("n2", upstream=("n1",))

    assert relays(private.turn("source-failed")[0]) == []


def test_private_copy_that_was_only_pinned_is_passed_to_nobody(private: Office) -> None:
    private.need("n1", transfer=None)
    private.need("n2")
    private.node_orders.statuses["n1"].needs["bob-1"].is_there = True
    asked = [private.turn("source-failed")[0] for _ in range(2)]

    assert [relays(each) for each in asked] == [[], []]


def test_image_that_is_refused_is_not_ready_because_it_could_be_pinned(private: Office) -> None:
    private.need("n1")
    _, news = private.turn("not-allowed", pin_code="", node="n1")

    assert not any(isinstance(each, Arrived) for each in news)
    assert not private.node_orders.statuses["n1"].needs["bob-1"].is_there
