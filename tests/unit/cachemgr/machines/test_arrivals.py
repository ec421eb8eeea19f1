"""Machines that come to a node: what was told is told again at once."""

from __future__ import annotations

import threading
from time import sleep

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import CacheError, InUse, SourceFailed
from cachemgr.machines.batch import arrivals
from cachemgr.machines.batch.arrivals import COMING, Arrivals
from cachemgr.protocol import MovedMachine

PATIENCE_S = 20


class Steps:
    """What brings machines, held back for those of some nodes."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.fails = False

    def __call__(self, name: str, owner: str, uid: int, given: str, timeout_s: float | None) -> MovedMachine:
        if given == "slow":
            self.go.wait(PATIENCE_S)
        if self.fails:
            raise SourceFailed("the other node is away")
        return MovedMachine("fetched", f"/{given}")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    monkeypatch.setattr(arrivals, "step_of", made)
    return made


def eventually(node: Arrivals, given: str) -> str:
    """The state, once it is not on its way any more."""
    for _ in range(100 * PATIENCE_S):
        if (state := node.look("job-1", 2001, given).state) != COMING:
            return state
        sleep(0.01)
    raise AssertionError("it is on its way for ever")


def test_machine_that_came_before_another_is_still_there_when_that_has_come(steps: Steps) -> None:
    quick, slow = Arrivals(SystemClock()), Arrivals(SystemClock())
    slow_first = slow.look("job-1", 2001, "slow").state
    before = eventually(quick, "quick")
    steps.go.set()
    after = eventually(slow, "slow")

    assert (slow_first, before, after) == (COMING, "fetched", "fetched")
    assert quick.look("job-1", 2001, "quick").state == "fetched"
    assert slow.look("job-1", 2001, "slow").state == "fetched"


def test_what_went_wrong_is_told_once_and_tried_again(steps: Steps) -> None:
    node = Arrivals(SystemClock())
    steps.fails = True
    with pytest.raises(CacheError, match="the other node is away"):
        eventually(node, "quick")
    steps.fails = False

    assert eventually(node, "quick") == "fetched"


def test_machines_of_one_user_that_never_come_leave_places_to_others(steps: Steps) -> None:
    node = Arrivals(SystemClock(), most=3, most_of_one=2)
    coming = [node.look(f"job-{number}", 2001, "slow").state for number in (1, 2)]
    with pytest.raises(InUse, match="2 machines of that user are coming to this node already"):
        node.look("job-3", 2001, "slow")
    again = node.look("job-2", 2001, "slow").state
    others = node.look("job-4", 2002, "slow").state
    steps.go.set()

    assert [*coming, again, others] == [COMING] * 4
