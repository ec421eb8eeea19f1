"""What a batch system guarantees of jobs that make way: they are signalled, go back, and start again."""

from __future__ import annotations

import pytest

from outrider.rms.base import JobState, Refused, RmsJob, Unavailable, Unknown
from tests.contract.harness import Scene

WORDS = "it makes way for a reservation"
HARMLESS = "CONT"
MOST_ASKED = 10


def run_of(scene: Scene, job: str) -> RmsJob:
    """A job that runs, as it is seen."""
    found = scene.job(job)
    assert found is not None
    assert found.start_s is not None
    return found


def requeue(scene: Scene, job: str) -> RmsJob:
    """Let a job make way; how it stood before."""
    before = run_of(scene, job)
    assert before.start_s is not None
    ask_for_requeue(scene, job, before.start_s)
    return before


def ask_for_requeue(scene: Scene, job: str, start_s: int) -> None:
    """Again and again, as the service does, while the batch system stops the job."""
    for _ in range(MOST_ASKED):
        try:
            scene.system.requeue(job, start_s, WORDS)
        except Unavailable:
            scene.settle()
        else:
            return
    raise AssertionError(f"job {job} is being stopped for ever")


def test_requeued_job_leaves_its_nodes_and_is_held_by_us(scene: Scene) -> None:
    job = scene.running_job(nodes_wanted=2)
    before = requeue(scene, job)

    found = scene.wait_for_state(job, JobState.HELD, within_s=scene.lags.end_s + scene.lags.save_s)
    scene.settle()

    assert before.can_requeue
    assert found is not None
    assert found.is_held_by_us
    assert found.nodes == ()
    assert scene.state(job) is JobState.HELD
    assert WORDS in scene.harness.shown_to_user(job)


@pytest.mark.parametrize("is_same", [False, True], ids=["elsewhere", "on-the-same-node"])
def test_requeued_job_starts_again_once_it_is_released(scene: Scene, *, is_same: bool) -> None:
    scene.waits(scene.lags.requeue_s)
    job = scene.running_job()
    before = requeue(scene, job)
    scene.wait_for_state(job, JobState.HELD, within_s=scene.lags.end_s + scene.lags.save_s)
    node = next(name for name in scene.nodes if (name in before.nodes) is is_same)

    scene.system.release(job, (node,))
    again = scene.wait_for_state(
        job, JobState.RUNNING, within_s=scene.lags.requeue_s + 2 * scene.lags.change_s
    )
    scene.settle()

    assert again is not None
    assert again.nodes == (node,)
    assert again.start_s is not None
    assert before.start_s is not None
    assert again.start_s > before.start_s
    assert scene.state(job) is JobState.RUNNING


def test_requeue_means_one_run_and_no_later_one(scene: Scene) -> None:
    job = scene.running_job()
    start_s = run_of(scene, job).start_s
    assert start_s is not None

    with pytest.raises(Refused):
        scene.system.requeue(job, start_s - 60, WORDS)
    with pytest.raises(Refused):
        scene.system.signal(job, "USR2", start_s - 60)
    scene.settle()

    assert run_of(scene, job).start_s == start_s
    assert scene.state(job) is JobState.RUNNING


def test_requeue_of_a_job_that_waits_holds_it(scene: Scene) -> None:
    job = scene.waiting_job()

    scene.system.requeue(job, 1, WORDS)
    scene.settle()

    assert scene.state(job) is JobState.HELD


def test_job_that_does_not_run_has_no_signal(scene: Scene) -> None:
    job = scene.waiting_job()

    with pytest.raises(Refused):
        scene.system.signal(job, "USR1", 1)
    with pytest.raises(Unknown):
        scene.system.signal("4000000", "USR1", 1)
    with pytest.raises(Unknown):
        scene.system.requeue("4000000", 1, WORDS)


def test_signal_is_sent_or_said_not_to_be(scene: Scene) -> None:
    job = scene.running_job()
    found = run_of(scene, job)
    assert found.start_s is not None

    if found.can_be_signalled:
        scene.system.signal(job, HARMLESS, found.start_s)
    else:
        with pytest.raises(Refused):
            scene.system.signal(job, HARMLESS, found.start_s)
    scene.settle()

    assert run_of(scene, job).start_s == found.start_s


def test_save_means_one_run_of_a_job_that_is_there(scene: Scene) -> None:
    job = scene.running_job()
    found = run_of(scene, job)
    assert found.start_s is not None

    with pytest.raises(Refused):
        scene.system.save(job, found.start_s - 60, WORDS)
    with pytest.raises(Refused):
        scene.system.save("4000000", 1, WORDS)
    scene.settle()

    assert run_of(scene, job).start_s == found.start_s


def test_save_of_a_job_that_waits_holds_it(scene: Scene) -> None:
    job = scene.waiting_job()
    found = scene.job(job)
    assert found is not None
    if not found.can_save:
        pytest.skip("its jobs run in no machines")

    scene.system.save(job, 1, WORDS)
    scene.settle()

    assert scene.state(job) is JobState.HELD
