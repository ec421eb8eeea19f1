"""A node dies minutes before a reservation on it starts: it is moved, or said to be endangered, in time."""

from __future__ import annotations

import pytest

from outrider.rms.base import RmsJob
from outrider.rms.twin.rules import Hooks, NotReady
from outrider.service.answers.nodes import NodeList
from outrider.service.desk.jobs.in_reservation import MOST_TRIES
from outrider.service.ports import NodeReport, TellNode
from outrider.service.requests import ListNodes
from tests.unit.service.desk.sandbox import ADMIN, Sandbox, reserve, show

START_S = 600
LEFT_S = 37
"""Before the start, when the node dies."""
NOTICED_S = 26


def state(sandbox: Sandbox, name: str = "render-1") -> str:
    return show(sandbox, name).reservation.state


def why(sandbox: Sandbox, name: str = "render-1") -> str:
    return show(sandbox, name).reservation.why


def nodes_of(sandbox: Sandbox, name: str = "render-1") -> tuple[str, ...]:
    (found,) = [each for each in sandbox.rms.look().reservations if each.name == name]
    return found.nodes


def node_state(sandbox: Sandbox, name: str) -> str:
    answer = sandbox.ask(ListNodes(names=(name,)), ADMIN)
    assert isinstance(answer, NodeList)
    return answer.nodes[0].state


def until_shortly_before(sandbox: Sandbox, nodes: int) -> None:
    """render-1 is ready, and its start is near."""
    reserve(sandbox, nodes=nodes, start=f"now+{START_S}seconds")
    sandbox.sleep(START_S - LEFT_S)
    assert state(sandbox) == "ready"


def kill(sandbox: Sandbox, node: str) -> None:
    """Both daemons of a node are gone. The batch system's own word for it comes minutes later."""
    sandbox.pools[node].is_away = True
    sandbox.rms.outside.silence(node)


def test_reservation_is_moved_away_from_a_node_that_dies_seconds_before_its_start(sandbox: Sandbox) -> None:
    until_shortly_before(sandbox, nodes=1)
    (dead,) = nodes_of(sandbox)
    kill(sandbox, dead)
    sandbox.sleep(NOTICED_S)
    assert dead not in nodes_of(sandbox)
    sandbox.sleep(LEFT_S - NOTICED_S)

    assert state(sandbox) == "active"
    assert node_state(sandbox, dead) == "away"


def test_reservation_with_no_other_node_is_endangered_and_says_why_until_the_node_is_back(
    sandbox: Sandbox,
) -> None:
    until_shortly_before(sandbox, nodes=4)
    kill(sandbox, "n3")
    sandbox.sleep(NOTICED_S)
    before = state(sandbox), why(sandbox), node_state(sandbox, "n3")
    sandbox.sleep(LEFT_S)
    after = state(sandbox)
    sandbox.pools["n3"].is_away = False
    sandbox.rms.outside.repair("n3")
    sandbox.sleep(15)

    assert before[0] == after == "endangered"
    assert "n3" in before[1]
    assert before[2] == "away"
    assert state(sandbox) == "active"


def test_node_whose_pool_answers_and_whose_batch_daemon_does_not_is_gone_too(sandbox: Sandbox) -> None:
    until_shortly_before(sandbox, nodes=4)
    sandbox.rms.outside.silence("n3")
    sandbox.sleep(NOTICED_S)

    assert state(sandbox) == "endangered"
    assert "daemon on n3 does not answer" in why(sandbox)
    assert node_state(sandbox, "n3") == "away"


def test_daemons_that_are_started_anew_shortly_before_a_start_move_nothing(sandbox: Sandbox) -> None:
    until_shortly_before(sandbox, nodes=1)
    (node,) = nodes_of(sandbox)
    for _ in range(2):
        kill(sandbox, node)
        sandbox.sleep(6)
        sandbox.pools[node].is_away = False
        sandbox.rms.outside.repair(node)
        sandbox.sleep(8)

    assert nodes_of(sandbox) == (node,)
    assert state(sandbox) == "ready"


def test_active_reservation_whose_node_dies_is_endangered(sandbox: Sandbox) -> None:
    until_shortly_before(sandbox, nodes=1)
    sandbox.sleep(LEFT_S + 600)
    assert state(sandbox) == "active"
    (node,) = nodes_of(sandbox)
    sandbox.pools[node].is_away = True
    sandbox.sleep(65)

    assert state(sandbox) == "endangered"
    assert f"the pool of {node} does not answer" in why(sandbox)


def test_nodes_of_reservations_that_are_far_away_are_not_asked_all_the_time(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(sandbox, nodes=4, start="now+2hours")
    sandbox.sleep(120)
    asked: list[str] = []
    tell = sandbox.tell

    def told(call: TellNode) -> NodeReport:
        asked.append(call.node)
        return tell(call)

    monkeypatch.setattr(sandbox, "tell", told)
    sandbox.sleep(3600)

    assert len(asked) <= 4 * 3600 // 60


def test_job_whose_start_fails_for_a_node_that_has_died_is_tried_again_when_all_nodes_are_there(
    sandbox: Sandbox,
) -> None:
    until_shortly_before(sandbox, nodes=4)
    job = sandbox.submit(nodes=4, reservation="render-1", is_held=False)
    kill(sandbox, "n3")
    sandbox.rms.world.hooks = Hooks(prolog=lambda job, node: NotReady("n3 does not answer"))
    sandbox.sleep(LEFT_S + 40)
    failed = sandbox.job(job)
    sandbox.rms.world.hooks = Hooks()
    sandbox.sleep(120)
    kept = sandbox.job(job)
    sandbox.pools["n3"].is_away = False
    sandbox.rms.outside.repair("n3")
    sandbox.sleep(60)
    again = sandbox.job(job)

    assert failed is not None
    assert failed.has_failed
    assert kept == failed
    assert again is not None
    assert again.nodes == ("n1", "n2", "n3", "n4")


def test_job_that_fails_for_a_reason_of_its_own_is_not_tried_for_ever(sandbox: Sandbox) -> None:
    until_shortly_before(sandbox, nodes=1)
    job = sandbox.submit(reservation="render-1", is_held=False)
    starts: list[str] = []

    def refuse(job: RmsJob, node: str) -> NotReady:
        starts.append(node)
        return NotReady("it names another image")

    sandbox.rms.world.hooks = Hooks(prolog=refuse)
    sandbox.sleep(LEFT_S + 3000)
    found = sandbox.job(job)

    assert found is not None
    assert found.has_failed
    assert len(starts) == 1 + MOST_TRIES
