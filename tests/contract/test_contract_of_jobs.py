"""What a batch system promises of jobs outside reservations: each call, twice, too late, and for nothing.

Approximate on real systems: how soon a job starts, is saved, or is off its nodes (the
harness's `change_s`, `save_s` and `end_s`). What a call answers is exact.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.rms.base import JobState, Refused, Unknown
from tests.contract.harness import ONE_LOOK_S, Scene

STARTED = (JobState.STARTING, JobState.RUNNING)
AWKWARD = (
    "image=ubuntu-24.04",
    'a "quoted" value, it\'s $HOME, `id`, 100 % of {x}; a\\b & <c> | d=e',
    "Grüße, 图像, образ, 🚂 and a combining e\u0301",
    "  spaces before, two  between, and one after ",
    "x" * 1000,
)


@pytest.mark.parametrize("metadata", AWKWARD, ids=("plain", "quotes", "unicode", "spaces", "long"))
def test_metadata_survives_unchanged(scene: Scene, metadata: str) -> None:
    ours = scene.system.submit(scene.submission(metadata=metadata))
    users = scene.harness.submit_as_user(scene.submission(metadata=metadata))
    jobs = [scene.job(ours), scene.job(users)]

    assert [job and job.metadata for job in jobs] == [metadata, metadata]


def test_job_without_metadata_has_none(scene: Scene) -> None:
    job = scene.job(scene.system.submit(scene.submission()))

    assert job is not None
    assert job.metadata is None


def test_submitted_job_is_seen_as_it_was_submitted(scene: Scene) -> None:
    bob = scene.harness.people[1]
    asked_s = scene.harness.now_s()
    asked = replace(scene.submission(nodes_wanted=3, limit_s=1800, person=1), account="astro")
    job = scene.job(scene.system.submit(asked))

    assert job is not None
    assert (job.user, job.uid, job.nodes_wanted, job.limit_s) == (bob.user, bob.uid, 3, 1800)
    assert job.resources == scene.harness.whole_node
    assert asked_s <= job.submitted_s <= scene.harness.now_s()
    assert (job.reservation, job.is_held_by_us, job.account) == (None, False, "astro")


def test_each_submission_is_a_job_of_its_own(scene: Scene) -> None:
    submission = scene.submission()
    keys = [scene.system.submit(submission), scene.system.submit(submission)]

    assert len(set(keys)) == 2
    assert sorted(job.key for job in scene.look().jobs) == sorted(keys)


def test_tag_is_seen_as_long_as_the_job_is(scene: Scene) -> None:
    tagged = scene.system.submit(replace(scene.submission(), tag="outrider-0123456789abcdef"))
    plain = scene.system.submit(scene.submission())
    jobs = [scene.job(tagged), scene.job(plain)]

    assert [job and job.tag for job in jobs] == ["outrider-0123456789abcdef", ""]


def test_job_that_can_never_start_is_refused(scene: Scene) -> None:
    with pytest.raises(Refused):
        scene.system.submit(scene.submission(nodes_wanted=len(scene.look().nodes) + 1))
    with pytest.raises(Refused):
        scene.system.submit(scene.submission(reservation="vw-never"))
    assert scene.look().jobs == ()


def test_two_looks_at_a_standing_world_are_equal(scene: Scene) -> None:
    # Nothing starts before the last look.
    first_s = scene.in_time_s() + 3600
    for number in range(12):
        scene.system.reserve(scene.reservation(f"vw-{number}", scene.nodes[:2], first_s + 200 * number))
        scene.waiting_job()
    one, other = scene.look(), scene.look()

    assert len(one.jobs) == len(one.reservations) == 12
    assert (one.nodes, one.jobs, one.reservations) == (other.nodes, other.jobs, other.reservations)


def test_job_runs_when_there_is_room_and_is_gone_when_done(scene: Scene) -> None:
    job = scene.system.submit(scene.submission(run_s=5))
    scene.wait_for_state(job, JobState.RUNNING)
    scene.wait_for_state(job, JobState.ENDED, within_s=5 + scene.lags.end_s)

    assert all(seen.key != job for seen in scene.look().jobs)


def test_job_waits_while_there_is_no_room(scene: Scene) -> None:
    first = scene.running_job(nodes_wanted=4, run_s=scene.paced(60))
    second = scene.system.submit(scene.submission())
    scene.settle()
    waited = scene.state(second)
    scene.wait_for_state(first, JobState.ENDED, within_s=60 + scene.lags.end_s)
    scene.wait_for_state(second, JobState.RUNNING)

    assert waited is JobState.PENDING


def test_job_is_ended_at_its_limit(scene: Scene) -> None:
    scene.waits(60)
    job = scene.running_job(limit_s=60)
    found = scene.job(job)
    assert found is not None
    assert found.start_s is not None
    sights = scene.watch(found.start_s + 60)
    scene.wait_for_state(job, JobState.ENDED, within_s=scene.lags.end_s)

    assert all([each.key for each in sight.jobs] == [job] for sight in sights)


def test_held_job_does_not_start_and_its_user_sees_why(scene: Scene) -> None:
    job = scene.waiting_job()
    scene.settle()
    found = scene.job(job)

    assert found is not None
    assert (found.state, found.is_held_by_us) == (JobState.HELD, True)
    assert "waits for its image" in scene.harness.shown_to_user(job)


def test_holding_twice_needs_one_release(scene: Scene) -> None:
    job = scene.waiting_job()
    scene.system.hold(job, "waits for its image, still")
    scene.system.release(job)

    assert scene.wait_for_state(job, JobState.RUNNING) is not None


def test_releasing_what_is_not_held_is_no_error(scene: Scene) -> None:
    job = scene.system.submit(scene.submission())
    scene.system.release(job)
    scene.wait_for_state(job, JobState.RUNNING)
    scene.system.release(job)

    assert scene.state(job) is JobState.RUNNING


def test_job_that_started_cannot_be_held(scene: Scene) -> None:
    job = scene.running_job()

    with pytest.raises(Refused):
        scene.system.hold(job, "too late")
    assert scene.state(job) is JobState.RUNNING


def test_hold_by_a_user_is_not_ours(scene: Scene) -> None:
    scene.running_job(nodes_wanted=4)
    job = scene.harness.submit_as_user(scene.submission())
    scene.harness.hold_as_user(job)
    found = scene.job(job)

    assert found is not None
    assert (found.state, found.is_held_by_us) == (JobState.HELD, False)


def test_released_job_starts_on_the_nodes_named(scene: Scene) -> None:
    job = scene.waiting_job(nodes_wanted=2)
    named = (scene.nodes[3], scene.nodes[1])
    scene.system.release(job, named)
    found = scene.wait_for_state(job, JobState.RUNNING)

    assert found is not None
    assert set(found.nodes) == set(named)


def test_released_job_takes_nodes_among_more_that_are_named(scene: Scene) -> None:
    job = scene.waiting_job()
    scene.system.release(job, scene.nodes[2:])
    found = scene.wait_for_state(job, JobState.RUNNING)

    assert found is not None
    assert found.nodes[0] in scene.nodes[2:]


def test_released_job_waits_for_the_nodes_named(scene: Scene) -> None:
    other, job = scene.waiting_job(), scene.waiting_job()
    scene.system.release(other, scene.nodes[2:3])
    scene.wait_for_state(other, JobState.RUNNING)
    scene.system.release(job, scene.nodes[2:3])
    scene.settle()
    waited = scene.state(job)
    scene.system.cancel(other, "makes room")
    found = scene.wait_for_state(
        job, JobState.RUNNING, within_s=scene.lags.end_s + scene.lags.change_s + ONE_LOOK_S
    )

    assert waited is JobState.PENDING
    assert found is not None
    assert found.nodes == scene.nodes[2:3]


def test_nodes_of_an_earlier_release_no_longer_count(scene: Scene) -> None:
    other, job = scene.waiting_job(), scene.waiting_job()
    scene.system.release(other, scene.nodes[2:3])
    scene.wait_for_state(other, JobState.RUNNING)
    scene.system.release(job, scene.nodes[2:3])
    scene.system.hold(job, "is led elsewhere")
    scene.system.release(job)
    found = scene.wait_for_state(job, JobState.RUNNING)

    assert found is not None
    assert found.nodes != scene.nodes[2:3]


def test_release_to_too_few_or_unknown_nodes_is_refused(scene: Scene) -> None:
    job = scene.waiting_job(nodes_wanted=2)

    with pytest.raises(Refused):
        scene.system.release(job, scene.nodes[:1])
    with pytest.raises(Unknown):
        scene.system.release(job, (scene.nodes[0], "no-such-node"))
    assert scene.state(job) is JobState.HELD


def test_release_to_nodes_that_a_running_job_is_not_on_is_refused(scene: Scene) -> None:
    job = scene.waiting_job()
    scene.system.release(job, scene.nodes[:1])
    scene.wait_for_state(job, JobState.RUNNING)
    scene.system.release(job, scene.nodes[:1])

    with pytest.raises(Refused):
        scene.system.release(job, scene.nodes[1:2])
    assert scene.state(job) is JobState.RUNNING


def test_note_is_shown_to_the_user_instead_of_the_last_one(scene: Scene) -> None:
    job = scene.waiting_job()
    scene.system.note(job, "image ready at 14:03 – 62 %")
    scene.system.note(job, "image “ubuntu” ready at 14:05; it's late")
    shown = scene.harness.shown_to_user(job)
    scene.system.release(job)
    scene.wait_for_state(job, JobState.RUNNING)
    scene.system.note(job, "image was ready 3 min 12 s before the start")

    assert "image “ubuntu” ready at 14:05; it's late" in shown
    assert "62 %" not in shown
    assert "image was ready 3 min 12 s before the start" in scene.harness.shown_to_user(job)


def test_job_carries_the_last_ticket_and_its_metadata(scene: Scene) -> None:
    job = scene.harness.submit_as_user(scene.submission(metadata="image=ubuntu-24.04"))
    bare = scene.harness.ticket_on_nodes(job)
    scene.system.ticket(job, "1.17.1000.ab.1800000000.cd")
    scene.system.ticket(job, "1.17.1000.ef.1800000001.01")
    carried = scene.harness.ticket_on_nodes(job)
    found = scene.job(job)
    scene.system.ticket(job, "")

    assert (bare, carried) == ("", "1.17.1000.ef.1800000001.01")
    assert scene.harness.ticket_on_nodes(job) == ""
    assert found is not None
    assert found.metadata == "image=ubuntu-24.04"


def test_released_job_carries_its_ticket_before_it_starts(scene: Scene) -> None:
    job = scene.waiting_job()
    scene.system.ticket(job, "1.17.1000.ab.1800000000.cd")
    scene.system.release(job, scene.nodes[:2], "1.17.1000.ef.1800000001.01")
    carried = scene.harness.ticket_on_nodes(job)
    found = scene.wait_for_state(job, JobState.RUNNING)
    scene.system.release(job, scene.nodes[:2], "1.17.1000.ef.1800000002.02")

    assert carried == "1.17.1000.ef.1800000001.01"
    assert scene.harness.ticket_on_nodes(job) == "1.17.1000.ef.1800000002.02"
    assert found is not None
    assert found.nodes[0] in scene.nodes[:2]


def test_nodes_that_a_user_allows_are_seen_and_kept_to(scene: Scene) -> None:
    allowed = (scene.nodes[1], scene.nodes[2])
    wide = scene.running_job(nodes_wanted=4)
    job = scene.harness.submit_as_user(scene.submission(), eligible=allowed)
    before = scene.job(job)
    scene.system.hold(job, "waits for its image")
    scene.system.release(job, scene.nodes[2:])
    after = scene.job(job)
    scene.system.cancel(wide, "makes room")
    found = scene.wait_for_state(
        job, JobState.RUNNING, within_s=scene.lags.end_s + scene.lags.change_s + ONE_LOOK_S
    )

    assert before is not None
    assert after is not None
    assert (before.eligible, after.eligible) == (allowed, allowed)
    assert found is not None
    assert found.nodes == scene.nodes[2:3]


def test_suspended_job_gives_its_nodes_back_and_goes_on_when_resumed(scene: Scene) -> None:
    scene.waits(scene.lags.requeue_s)
    job = scene.running_job(nodes_wanted=4)
    found = scene.suspend(job)
    scene.system.suspend(job)
    other = scene.running_job(nodes_wanted=4)
    scene.system.resume(job)
    scene.settle()
    waited = scene.state(job)
    scene.system.cancel(other, "the suspended one goes on")
    scene.wait_for_state(other, JobState.ENDED, within_s=scene.lags.end_s)
    scene.wait_for_state(job, JobState.RUNNING, within_s=scene.lags.change_s + scene.lags.requeue_s)
    scene.system.resume(job)

    assert found is not None
    assert found.nodes == ()
    assert waited in (JobState.PENDING, JobState.SUSPENDED)
    assert scene.state(job) is JobState.RUNNING


def test_suspended_job_is_neither_held_nor_released(scene: Scene) -> None:
    job = scene.running_job()
    scene.suspend(job)

    with pytest.raises(Refused):
        scene.system.hold(job, "why not")
    with pytest.raises(Refused):
        scene.system.release(job)
    scene.settle()
    assert scene.state(job) is JobState.SUSPENDED


def test_job_that_does_not_run_cannot_be_suspended_nor_a_held_one_resumed(scene: Scene) -> None:
    job = scene.waiting_job()

    with pytest.raises(Refused):
        scene.system.suspend(job)
    with pytest.raises(Refused):
        scene.system.resume(job)
    assert scene.state(job) is JobState.HELD


@pytest.mark.parametrize("begins", ["held", "pending", "running", "suspended"])
def test_cancelled_job_is_gone_and_stays_so(scene: Scene, begins: str) -> None:
    job = scene.waiting_job(nodes_wanted=2)
    if begins == "pending":
        scene.running_job(nodes_wanted=4)
    if begins != "held":
        scene.system.release(job)
    if begins in ("running", "suspended"):
        scene.wait_for_state(job, JobState.RUNNING)
    if begins == "suspended":
        scene.suspend(job)
    assert scene.state(job) is JobState(begins)

    scene.system.cancel(job, "its user gave up")
    scene.wait_for_state(job, JobState.ENDED, within_s=scene.lags.end_s)
    scene.system.cancel(job, "its user gave up")

    assert scene.state(job) is JobState.ENDED


def test_ended_job_can_only_be_cancelled(scene: Scene) -> None:
    job = scene.running_job()
    scene.system.cancel(job, "its user gave up")
    scene.wait_for_state(job, JobState.ENDED, within_s=scene.lags.end_s)

    with pytest.raises(Refused):
        scene.system.hold(job, "too late")
    with pytest.raises(Refused):
        scene.system.release(job)
    with pytest.raises(Refused):
        scene.system.note(job, "too late")
    with pytest.raises(Refused):
        scene.system.ticket(job, "too late")
    with pytest.raises(Refused):
        scene.system.suspend(job)
    with pytest.raises(Refused):
        scene.system.resume(job)
    with pytest.raises(Refused):
        scene.system.bind(job, None)
    assert scene.state(job) is JobState.ENDED


def test_job_that_never_was_is_unknown_to_every_call(scene: Scene) -> None:
    missing = "4000000"

    with pytest.raises(Unknown):
        scene.system.hold(missing, "why not")
    with pytest.raises(Unknown):
        scene.system.release(missing)
    with pytest.raises(Unknown):
        scene.system.note(missing, "why not")
    with pytest.raises(Unknown):
        scene.system.ticket(missing, "why not")
    with pytest.raises(Unknown):
        scene.system.suspend(missing)
    with pytest.raises(Unknown):
        scene.system.resume(missing)
    with pytest.raises(Unknown):
        scene.system.bind(missing, None)
    with pytest.raises(Unknown):
        scene.system.cancel(missing, "why not")
    assert scene.look().jobs == ()


def test_job_whose_node_fails_starts_anew_elsewhere_or_has_ended(scene: Scene) -> None:
    scene.waits(scene.lags.requeue_s)
    job = scene.running_job()
    found = scene.job(job)
    assert found is not None
    (node,) = found.nodes
    scene.harness.fail(node)
    lags = scene.lags
    if scene.harness.reruns_after_failure:
        scene.wait_for_state(job, JobState.PENDING, JobState.HELD, within_s=lags.end_s)
        scene.system.release(job)
        again = scene.wait_for_state(job, *STARTED, within_s=lags.requeue_s + lags.change_s)

        assert again is not None
        assert node not in again.nodes
    else:
        assert scene.wait_for_state(job, JobState.ENDED, within_s=lags.end_s) is None
