"""A chain of nodes, along which an image is passed on while it arrives, begins as one."""

from __future__ import annotations

from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.state import Need
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.ports import Arriving, Fetch, NodeReport, OrderResult, Pin
from outrider.service.settings import Settings

NODES = tuple(f"n{number}" for number in range(1, 9))
DIGEST = f"sha256:{'cd' * 32}"


class Nodes:
    """What nodes are told, and nodes that take on whatever they are told to fetch."""

    def __init__(self) -> None:
        self.agenda = Agenda()
        self.node_orders = NodeOrders(Settings(), self.agenda)
        self.told: list[tuple[str, int]] = []
        self.node_orders.assemble(NODES, {"job-1": NODES}, 1_000)
        self.turn(1_000)

    def turn(self, now_s: int) -> None:
        """All that is due at an instant, and what follows from the answers."""
        while True:
            while (entry := self.agenda.take(now_s)) is not None:
                at_s, topic, node = entry
                assert topic is Topic.NODE
                self.node_orders.due(node, at_s)
            calls = list(self.node_orders.calls(now_s))
            if not calls:
                return
            for call in calls:
                self.told += [(call.node, now_s) for order in call.orders if isinstance(order, Fetch)]
                results = tuple(
                    OrderResult(order=order, code="missing" if isinstance(order, Pin) else "")
                    for order in call.orders
                )
                images = () if call.wants_images else None
                report = NodeReport(
                    node=call.node,
                    at_s=now_s,
                    limit_bytes=1,
                    used_bytes=1,
                    images=images,
                    arriving=(Arriving(digest=DIGEST, size_bytes=1_000, arrived_bytes=1),),
                    results=results,
                )
                self.node_orders.heard(call, report, "", now_s)

    def need(self, place: int, now_s: int) -> None:
        need = Need(
            owner="job-1",
            digest=DIGEST,
            uri="http://images/a",
            size_bytes=1_000,
            format="raw",
            readers=None,
            until_s=now_s + 1_000,
            transfer=1,
            upstream=tuple(reversed(NODES[:place])),
        )
        self.node_orders.need(NODES[place], need, now_s)


def test_whole_chain_is_told_within_one_second_and_each_node_after_the_one_before_it() -> None:
    nodes = Nodes()
    for place in range(len(NODES)):
        nodes.need(place, 1_010)

    nodes.turn(1_010)

    assert nodes.told == [(node, 1_010) for node in NODES]


def test_node_whose_job_is_gone_is_not_told_after_the_one_before_it() -> None:
    nodes = Nodes()
    for place in range(3):
        nodes.need(place, 1_010)
    nodes.node_orders.drop("n2", "job-1", 1_010)

    nodes.turn(1_010)

    assert "n2" not in [node for node, _ in nodes.told]
