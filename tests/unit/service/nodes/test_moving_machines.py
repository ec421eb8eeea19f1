"""A machine brought from one node to another: each step follows from what the nodes say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from outrider.rms.base import Landing, Refused, Unavailable
from outrider.service.nodes.moving import MOST_BUSY, MoveFields, MovesMachines, move_machine
from outrider.service.ports import Move, NodeReport, NodeTrouble, OrderResult, TellNode

FIELDS = MoveFields(job="17", uid=1000, sources=("n1",), targets=("n2",), rate_bytes_per_s=10)
PLACE = "n2:/var/tmp/outrider-1000/job-17"


@dataclass
class TwoNodes:
    """Nodes that do as the real ones, and a batch system beside them."""

    is_brought: bool = False
    holder: str = "n1"
    is_given: bool = False
    away: set[str] = field(default_factory=set)
    code: str = ""
    done: list[str] = field(default_factory=list)
    led_to: str = "n1"

    def tell(self, call: TellNode) -> NodeReport:
        if call.node in self.away:
            raise NodeTrouble(f"{call.node} does not answer")
        (order,) = call.orders
        assert isinstance(order, Move)
        self.done.append(f"{order.step} {call.node}")
        result = OrderResult(order=order, code=self.code, words=self.code or self._told(order, call.node))
        return NodeReport(node=call.node, at_s=0, limit_bytes=1, used_bytes=0, results=(result,))

    def _told(self, order: Move, node: str) -> str:
        if order.step == "give":
            assert (node, order.place, self.is_brought) == ("n1", PLACE, True)
            self.is_given = True
            return f"given {PLACE}"
        if order.step == "drop":
            assert (node, self.holder) == ("n1", "n2")
            return "dropped x"
        assert (node, order.source) == ("n2", "n1")
        if self.is_given:
            self.holder = "n2"
            return f"taken {PLACE}"
        return f"fetched {PLACE}" if self.is_brought else "coming "

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> None:
        assert (job, self.holder) == ("17", *nodes)
        (self.led_to,) = nodes


@dataclass
class Landed(TwoNodes):
    """A batch system whose job's machine has gone alive, or not."""

    has_landed: bool = True

    def land(self, wanted: Landing) -> bool:
        assert (wanted.job, wanted.node, wanted.begins) == ("17", "n2", False)
        return self.has_landed


@pytest.mark.parametrize(("has_landed", "steps"), [(True, []), (False, ["arrive n2"])])
def test_machine_that_has_gone_alive_is_not_carried(*, has_landed: bool, steps: list[str]) -> None:
    nodes = Landed(has_landed=has_landed)
    fields = replace(FIELDS, is_live=True)
    if has_landed:
        move_machine(fields, nodes, cast(MovesMachines, nodes), 0)
    else:
        with pytest.raises(Unavailable):
            move_machine(fields, nodes, cast(MovesMachines, nodes), 0)

    assert nodes.done == steps


def attempt(nodes: TwoNodes, attempts: int = 0) -> None:
    move_machine(FIELDS, nodes, cast(MovesMachines, nodes), attempts)


def test_machine_is_given_when_all_of_it_is_over_there() -> None:
    nodes = TwoNodes()
    with pytest.raises(Unavailable, match="on its way to n2"):
        attempt(nodes)
    nodes.is_brought = True
    attempt(nodes)

    assert nodes.done == ["arrive n2", "arrive n2", "give n1", "arrive n2", "drop n1"]
    assert nodes.led_to == "n2"


@pytest.mark.parametrize("away", ["n1", "n2"])
def test_node_that_is_away_is_waited_for(away: str) -> None:
    nodes = TwoNodes(is_brought=True, away={away})
    with pytest.raises(Unavailable, match="does not answer"):
        attempt(nodes)
    led_to = nodes.led_to
    nodes.away.clear()
    attempt(nodes)

    assert led_to == "n1"
    assert nodes.led_to == "n2"


def test_old_node_that_is_away_after_it_gave_the_machine_holds_up_nothing() -> None:
    nodes = TwoNodes(is_brought=True, is_given=True, away={"n1"})
    attempt(nodes)

    assert nodes.led_to == "n2"


def test_machine_that_cannot_come_stays() -> None:
    nodes = TwoNodes(code="unsuitable")
    with pytest.raises(Refused, match="stays on n1"):
        attempt(nodes)
    nodes.code = "busy"
    with pytest.raises(Unavailable):
        attempt(nodes)
    with pytest.raises(Refused):
        attempt(nodes, MOST_BUSY)

    assert nodes.led_to == "n1"


@dataclass
class FourNodes:
    """Machines of two nodes on their way to two others."""

    brought: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)
    done: list[str] = field(default_factory=list)
    led_to: tuple[str, ...] = ()

    def tell(self, call: TellNode) -> NodeReport:
        (order,) = call.orders
        assert isinstance(order, Move)
        self.done.append(f"{order.step} {call.node}")
        state = "given" if order.step == "give" else "dropped"
        if order.step == "arrive":
            assert order.source == {"n3": "n1", "n4": "n2"}[call.node]
            state = "fetched" if call.node in self.brought else "coming"
            state = "taken" if order.source in self.given else state
        elif order.step == "give":
            assert self.brought == {"n3", "n4"}
            self.given.add(call.node)
        else:
            assert self.led_to == ("n3", "n4")
        result = OrderResult(order=order, words=f"{state} {PLACE}")
        return NodeReport(node=call.node, at_s=0, limit_bytes=1, used_bytes=0, results=(result,))

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> None:
        assert self.given == {"n1", "n2"}
        self.led_to = tuple(nodes)


def test_none_of_several_is_given_before_all_are_brought() -> None:
    nodes = FourNodes()
    fields = replace(FIELDS, sources=("n1", "n2"), targets=("n3", "n4"))
    for brought in (set(), {"n3"}):
        nodes.brought = brought
        with pytest.raises(Unavailable):
            move_machine(fields, nodes, cast(MovesMachines, nodes), 0)
    given_early = set(nodes.given)
    nodes.brought = {"n3", "n4"}
    move_machine(fields, nodes, cast(MovesMachines, nodes), 0)

    assert given_early == set()
    assert nodes.led_to == ("n3", "n4")
    assert nodes.done[-2:] == ["drop n1", "drop n2"]


def test_machine_that_stays_is_not_asked_for_and_its_node_is_led_to() -> None:
    nodes = TwoNodes(is_brought=True)
    led: list[tuple[str, ...]] = []
    nodes.move = lambda job, names, goes_first=False: led.append(tuple(names))  # type: ignore[method-assign,misc]
    nodes.holder = "n1"
    fields = replace(FIELDS, sources=("n0", "n1", "n3"), targets=("n0", "n2", "n3"))
    move_machine(fields, nodes, cast(MovesMachines, nodes), 0)

    assert nodes.done == ["arrive n2", "give n1", "arrive n2", "drop n1"]
    assert led == [("n0", "n2", "n3")]
