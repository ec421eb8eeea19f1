"""What a batch system promises when a job that waits is given another number of nodes, or another limit."""

from __future__ import annotations

import pytest

from outrider.rms.base import JobState, Refused, Unknown
from tests.contract.harness import Scene


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)], ids=("more", "fewer"))
def test_resize_a_pending_job(scene: Scene, before: int, after: int) -> None:
    job = scene.waiting_job(nodes_wanted=before, limit_s=3600)

    scene.system.resize(job, after, 1800)

    found = scene.job(job)
    assert found is not None
    assert (found.nodes_wanted, found.limit_s, found.state) == (after, 1800, JobState.HELD)
    assert found.resources == scene.harness.whole_node
    scene.system.release(job)
    running = scene.wait_for_state(job, JobState.RUNNING)
    assert running is not None
    assert len(running.nodes) == after


def test_resizing_twice_is_as_resizing_once_also_when_it_runs(scene: Scene) -> None:
    job = scene.waiting_job(nodes_wanted=1)

    for _ in range(2):
        scene.system.resize(job, 2, 1800)

    scene.system.release(job)
    scene.wait_for_state(job, JobState.RUNNING)
    scene.system.resize(job, 2, 1800)
    found = scene.job(job)
    assert found is not None
    assert (len(found.nodes), found.limit_s) == (2, 1800)


def test_job_is_given_less_of_each_node_and_shows_its_option(scene: Scene) -> None:
    job = scene.waiting_job(nodes_wanted=2)
    whole = scene.harness.whole_node
    each = scene.harness.less_of_a_node

    scene.system.resize(job, 1, 1800, each, 2)

    found = scene.job(job)
    assert found is not None
    assert (found.nodes_wanted, found.limit_s, found.option) == (1, 1800, 2)
    assert found.resources == whole.with_amounts(each)
    scene.system.release(job)
    running = scene.wait_for_state(job, JobState.RUNNING)
    assert running is not None
    assert (len(running.nodes), running.option) == (1, 2)


def test_option_that_has_the_same_size_is_shown_too(scene: Scene) -> None:
    job = scene.waiting_job(nodes_wanted=1)

    for option in (1, 3):
        scene.system.resize(job, 1, 3600, option=option)

        found = scene.job(job)
        assert found is not None
        assert (found.option, found.limit_s) == (option, 3600)


def test_running_job_keeps_its_size(scene: Scene) -> None:
    job = scene.running_job(nodes_wanted=1)

    with pytest.raises(Refused):
        scene.system.resize(job, 2, 1800)

    found = scene.job(job)
    assert found is not None
    assert (len(found.nodes), found.limit_s) == (1, 3600)


def test_size_that_could_never_start_is_refused_and_changes_nothing(scene: Scene) -> None:
    job = scene.waiting_job(nodes_wanted=1)

    for nodes, limit_s in ((len(scene.look().nodes) + 1, 1800), (0, 1800), (1, 0)):
        with pytest.raises(Refused):
            scene.system.resize(job, nodes, limit_s)

    found = scene.job(job)
    assert found is not None
    assert (found.nodes_wanted, found.limit_s) == (1, 3600)


def test_job_that_is_not_there_is_unknown(scene: Scene) -> None:
    with pytest.raises(Unknown):
        scene.system.resize("999999", 1, 1800)
