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


def save(scene: Scene, *, run_s: int = 100_000, limit_s: int | None = 3600, is_kept: bool = False) -> RmsJob:
    """Let a job in a machine be saved, some time after its start; how it stood before."""
    if not scene.harness.machine:
        pytest.skip("its jobs in machines are submitted otherwise")
    job = scene.running_job(run_s=run_s, limit_s=limit_s, machine=scene.harness.machine)
    scene.harness.pass_time(20)
    before = run_of(scene, job)
    assert before.can_save
    assert before.start_s is not None
    scene.system.save(job, before.start_s, WORDS, is_kept=is_kept)
    scene.system.save(job, before.start_s, WORDS, is_kept=is_kept)
    return before


def test_saved_job_leaves_its_nodes_and_is_held_by_us(scene: Scene) -> None:
    before = save(scene)

    found = scene.wait_for_state(before.key, JobState.HELD, within_s=scene.lags.save_s)
    scene.settle()

    assert found is not None
    assert found.is_held_by_us
    assert found.nodes == ()
    assert scene.state(before.key) is JobState.HELD
    assert WORDS in scene.harness.shown_to_user(before.key)


def test_job_that_is_saved_and_kept_is_suspended_until_it_is_resumed(scene: Scene) -> None:
    before = save(scene, is_kept=True)
    scene.wait_for_state(before.key, JobState.SUSPENDED, within_s=scene.lags.save_s)
    scene.settle()
    still = scene.state(before.key)

    scene.system.resume(before.key)
    scene.system.release(before.key, before.nodes)
    again = scene.wait_for_state(before.key, JobState.RUNNING, within_s=2 * scene.lags.change_s)

    assert still is JobState.SUSPENDED
    assert again is not None
    assert again.nodes == before.nodes


def test_saved_job_has_the_work_done_and_the_time_left_that_it_had(scene: Scene) -> None:
    scene.waits(2 * scene.lags.change_s + 60)
    before = save(scene, run_s=60, limit_s=90)
    scene.wait_for_state(before.key, JobState.HELD, within_s=scene.lags.save_s)
    scene.harness.pass_time(scene.lags.requeue_s + 100)

    scene.system.release(before.key, before.nodes)
    again = scene.wait_for_state(
        before.key, JobState.RUNNING, within_s=scene.lags.requeue_s + 2 * scene.lags.change_s
    )
    assert again is not None
    assert again.start_s is not None
    scene.harness.pass_time(30)
    late = scene.state(before.key)
    # It has worked for 20 s of 60 before.
    scene.wait_for_state(before.key, JobState.ENDED, within_s=15 + scene.lags.change_s)

    assert late is JobState.RUNNING
    assert before.start_s is not None
    assert scene.harness.now_s() >= again.start_s + 39 - scene.lags.change_s


def test_saved_job_has_no_more_time_than_was_left(scene: Scene) -> None:
    before = save(scene, limit_s=60)
    scene.wait_for_state(before.key, JobState.HELD, within_s=scene.lags.save_s)

    scene.system.release(before.key, before.nodes)
    again = scene.wait_for_state(
        before.key, JobState.RUNNING, within_s=scene.lags.requeue_s + 2 * scene.lags.change_s
    )
    # 20 s of 60 were used, and a limit may be swept late.
    scene.wait_for_state(before.key, JobState.ENDED, within_s=40 + 30 + scene.lags.end_s)

    assert again is not None


def test_job_that_is_requeued_while_it_is_saved_starts_again_once_it_is_released(scene: Scene) -> None:
    before = save(scene)
    assert before.start_s is not None

    scene.system.requeue(before.key, before.start_s, WORDS)
    scene.wait_for_state(before.key, JobState.HELD, within_s=scene.lags.save_s + scene.lags.end_s)
    scene.system.release(before.key)
    scene.wait_for_state(
        before.key, JobState.RUNNING, within_s=scene.lags.requeue_s + 2 * scene.lags.change_s
    )
    scene.settle()

    assert scene.state(before.key) is JobState.RUNNING
