"""What a batch system promises of its nodes: what they have, and whether they can be counted on.

Approximate on real systems: how soon it is noticed that a node failed or is back (the
harness's `end_s`, and `change_s` until a job runs there again).
"""

from __future__ import annotations

import pytest

from outrider.rms.base import JobState, NodeState, Sight
from tests.contract.harness import ONE_LOOK_S, Scene


def states(sight: Sight) -> dict[str, NodeState]:
    return {node.name: node.state for node in sight.nodes}


def test_nodes_are_seen_with_what_they_have(scene: Scene) -> None:
    nodes = {node.name: node for node in scene.look().nodes}
    wanted = dict(scene.harness.whole_node.amounts)

    assert len(scene.nodes) >= 4
    assert wanted != {}
    for name in scene.nodes:
        assert nodes[name].state is NodeState.UP
        assert all(nodes[name].capacity[resource] >= amount for resource, amount in wanted.items())


def test_job_shows_the_queue_that_it_is_in_as_long_as_it_is_there(scene: Scene) -> None:
    waiting = scene.waiting_job()
    before = scene.job(waiting)
    running = scene.job(scene.running_job())
    queues = scene.look().queues

    assert before is not None
    assert running is not None
    assert before.queue in queues
    assert running.queue == before.queue


def test_drained_node_is_seen_so_and_finishes_what_it_has(scene: Scene) -> None:
    job = scene.running_job(nodes_wanted=4)
    scene.harness.drain(scene.nodes[1])
    scene.settle()

    assert states(scene.look())[scene.nodes[1]] is NodeState.DRAINED
    assert scene.state(job) is JobState.RUNNING


def test_drained_node_takes_nothing_new(scene: Scene) -> None:
    scene.harness.drain(scene.nodes[1])
    wide = scene.system.submit(scene.submission(nodes_wanted=4))
    led = scene.waiting_job()
    scene.system.release(led, scene.nodes[1:2])
    scene.settle()
    waited = [scene.state(wide), scene.state(led)]
    scene.system.cancel(wide, "makes room")
    scene.harness.repair(scene.nodes[1])
    scene.wait_for_state(led, JobState.RUNNING, within_s=scene.lags.change_s + ONE_LOOK_S)

    assert waited == [JobState.PENDING, JobState.PENDING]
    assert states(scene.look())[scene.nodes[1]] is NodeState.UP


def test_failed_node_is_seen_so_until_it_is_back(scene: Scene) -> None:
    node = scene.nodes[2]
    scene.harness.fail(node)
    down = scene.wait_for("it is down", lambda sight: states(sight)[node] is NodeState.DOWN, scene.lags.end_s)
    scene.harness.repair(node)
    up = scene.wait_for("it is up", lambda sight: states(sight)[node] is NodeState.UP, scene.lags.end_s)

    assert [name for name, state in states(down).items() if state is not NodeState.UP] == [node]
    assert set(states(up).values()) == {NodeState.UP}


@pytest.mark.parametrize("trouble", ["drained", "down"])
def test_node_in_trouble_can_still_be_reserved(scene: Scene, trouble: str) -> None:
    """Whether it will be back in time is for the service to judge."""
    if trouble == "drained":
        scene.harness.drain(scene.nodes[0])
    else:
        scene.harness.fail(scene.nodes[0])
    wanted = scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s())
    scene.system.reserve(wanted)

    assert scene.look().reservations == (wanted,)


def test_job_that_was_led_to_a_node_starts_nowhere_else_when_that_fails(scene: Scene) -> None:
    """Its image is known to be there alone. Whoever leads it elsewhere has looked first."""
    node = scene.nodes[2]
    job = scene.waiting_job()
    scene.system.release(job, (node,))
    scene.wait_for_state(job, JobState.RUNNING)
    scene.harness.fail(node)
    scene.wait_for("it is down", lambda sight: states(sight)[node] is NodeState.DOWN, scene.lags.end_s)
    scene.settle()
    found = scene.job(job)

    assert (found is not None) == scene.harness.reruns_after_failure
    assert found is None or set(found.nodes) <= {node}
