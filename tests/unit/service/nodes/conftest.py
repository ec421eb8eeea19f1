"""The fixtures with which the daemon's own tests start it: here the service tells it what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outrider.service.nodes.daemons import SocketNodes
from outrider.service.ports import NodeReport, Order, TellNode
from tests.daemons.node.conftest import carrier, folder, inside
from tests.daemons.node.daemons import Inside, ScriptedCarrier
from tests.unit.service.nodes.telling import CLOCK, CONTENT, A, Tell

__all__ = ["carrier", "folder", "inside"]


@pytest.fixture
def node(inside: Callable[..., Inside], carrier: ScriptedCarrier) -> Inside:
    carrier.contents = {A: CONTENT}
    return inside()


@pytest.fixture
def tell(node: Inside) -> Tell:
    nodes = SocketNodes({"n1": node.socket}, clock=CLOCK)

    def ask(*orders: Order, wants_images: bool = True) -> NodeReport:
        return nodes.tell(TellNode(node="n1", orders=orders, wants_images=wants_images))

    return ask
