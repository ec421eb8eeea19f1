"""What a batch system promises of reservations, before any of them begins.

Exact on every system: nothing here waits. A start that has passed is the exception, for which
systems take the instant at which they get to it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.rms.base import JobState, Refused, RmsReservation, Unknown
from tests.contract.harness import Scene


def test_reservation_is_seen_as_it_was_asked_for(scene: Scene) -> None:
    alice, bob = scene.harness.people
    start_s = scene.in_time_s() + 17
    wanted = RmsReservation(
        name="vw-1",
        nodes=(scene.nodes[2], scene.nodes[0]),
        start_s=start_s,
        end_s=start_s + 301,
        users=(bob.user, alice.user),
    )
    scene.system.reserve(wanted)

    assert scene.look().reservations == (wanted,)


def test_reserving_twice_is_reserving_once(scene: Scene) -> None:
    wanted = scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s())
    scene.system.reserve(wanted)
    scene.system.reserve(wanted)

    assert scene.look().reservations == (wanted,)


def test_overlap_on_a_node_is_refused_and_changes_nothing(scene: Scene) -> None:
    first = scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s())
    scene.system.reserve(first)
    later = scene.reservation("vw-2", scene.nodes[1:3], first.end_s - 1)

    with pytest.raises(Refused):
        scene.system.reserve(later)
    assert scene.look().reservations == (first,)


def test_reservations_may_follow_each_other_on_a_node(scene: Scene) -> None:
    first = scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s())
    second = scene.reservation("vw-2", scene.nodes[:2], first.end_s)
    scene.system.reserve(second)
    scene.system.reserve(first)

    assert scene.look().reservations == (first, second)


def test_reservations_may_be_at_the_same_time_on_different_nodes(scene: Scene) -> None:
    first = scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s())
    second = replace(first, name="vw-2", nodes=scene.nodes[2:])
    scene.system.reserve(first)
    scene.system.reserve(second)

    assert scene.look().reservations == (first, second)


def test_unknown_node_is_refused(scene: Scene) -> None:
    wanted = scene.reservation("vw-1", (scene.nodes[0], "no-such-node"), scene.in_time_s())

    with pytest.raises(Unknown):
        scene.system.reserve(wanted)
    assert scene.look().reservations == ()


def test_reservation_that_would_be_over_is_refused(scene: Scene) -> None:
    wanted = scene.reservation("vw-1", scene.nodes[:1], scene.harness.now_s() - 100, duration_s=99)

    with pytest.raises(Refused):
        scene.system.reserve(wanted)
    assert scene.look().reservations == ()


def test_start_that_has_passed_means_now(scene: Scene) -> None:
    asked_s = scene.harness.now_s()
    wanted = scene.reservation("vw-1", scene.nodes[:1], asked_s - 100, duration_s=600)
    scene.system.reserve(wanted)
    made = scene.reservations()["vw-1"]
    scene.harness.pass_time(2)
    scene.system.reserve(wanted)

    assert asked_s <= made.start_s <= scene.harness.now_s()
    assert made == replace(wanted, start_s=made.start_s)
    assert scene.reservations()["vw-1"] == made


def test_job_that_runs_is_no_reason_to_refuse_and_goes_on(scene: Scene) -> None:
    job = scene.running_job(nodes_wanted=4)
    scene.system.reserve(scene.reservation("vw-1", scene.nodes, scene.in_time_s()))
    scene.settle()

    assert scene.state(job) is JobState.RUNNING


def test_reservation_is_moved_by_reserving_again(scene: Scene) -> None:
    first = scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s())
    moved = scene.reservation("vw-1", scene.nodes[1:], first.start_s + 60, duration_s=240)
    scene.system.reserve(first)
    scene.system.reserve(moved)

    assert scene.look().reservations == (moved,)


def test_move_into_another_reservation_is_refused_and_the_old_one_stays(scene: Scene) -> None:
    first = scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s())
    second = scene.reservation("vw-2", scene.nodes[2:], scene.in_time_s())
    scene.system.reserve(first)
    scene.system.reserve(second)

    with pytest.raises(Refused):
        scene.system.reserve(replace(second, nodes=scene.nodes[1:3]))
    assert scene.look().reservations == (first, second)


def test_a_moved_reservation_keeps_its_jobs(scene: Scene) -> None:
    first = scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s())
    scene.system.reserve(first)
    job = scene.system.submit(scene.submission(reservation="vw-1"))
    scene.system.reserve(replace(first, end_s=first.end_s + 60))
    found = scene.job(job)

    assert found is not None
    assert (found.state, found.reservation) == (JobState.PENDING, "vw-1")


def test_unreserving_what_is_not_there_is_no_error(scene: Scene) -> None:
    scene.system.reserve(scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s()))
    scene.system.unreserve("vw-1")
    scene.system.unreserve("vw-1")
    scene.system.unreserve("vw-never")

    assert scene.look().reservations == ()


def test_unreserving_unbinds_and_holds_jobs_that_wait(scene: Scene) -> None:
    scene.system.reserve(scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s()))
    submission = scene.submission(reservation="vw-1", metadata="image: https://images.example.org/a")
    pending = scene.system.submit(submission)
    held = scene.waiting_job()
    scene.system.bind(held, "vw-1")
    scene.system.unreserve("vw-1")
    jobs = [scene.job(pending), scene.job(held)]

    assert [job and (job.state, job.reservation, job.is_held_by_us) for job in jobs] == [
        (JobState.HELD, None, True),
        (JobState.HELD, None, True),
    ]


def test_unreserving_holds_what_is_none_of_ours_for_its_user(scene: Scene) -> None:
    scene.system.reserve(scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s()))
    plain = scene.system.submit(scene.submission(reservation="vw-1"))
    scene.system.unreserve("vw-1")
    job = scene.job(plain)

    assert job is not None
    assert (job.state, job.reservation, job.is_held_by_us) == (JobState.HELD, None, False)


def test_name_is_free_again_after_unreserving(scene: Scene) -> None:
    first = scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s())
    second = replace(first, nodes=scene.nodes[2:], end_s=first.end_s + 60)
    scene.system.reserve(first)
    scene.system.unreserve("vw-1")
    scene.system.reserve(second)

    assert scene.look().reservations == (second,)


def test_administrators_reservation_is_seen_as_not_ours(scene: Scene) -> None:
    theirs = replace(scene.reservation("service", scene.nodes[:2], scene.in_time_s()), is_ours=False)
    scene.harness.reserve_as_administrator(theirs)

    assert scene.look().reservations == (theirs,)


def test_administrators_reservation_is_neither_changed_nor_taken_nor_overlapped(scene: Scene) -> None:
    theirs = replace(scene.reservation("service", scene.nodes[:2], scene.in_time_s()), is_ours=False)
    scene.harness.reserve_as_administrator(theirs)

    with pytest.raises(Refused):
        scene.system.reserve(replace(theirs, is_ours=True, end_s=theirs.end_s + 60))
    with pytest.raises(Refused):
        scene.system.unreserve("service")
    with pytest.raises(Refused):
        scene.system.reserve(replace(theirs, is_ours=True, name="vw-1"))
    assert scene.look().reservations == (theirs,)


def test_deletion_by_an_administrator_is_seen(scene: Scene) -> None:
    scene.waits(scene.lags.delete_s)
    scene.system.reserve(scene.reservation("vw-1", scene.nodes[:2], scene.in_time_s()))
    job = scene.system.submit(scene.submission(reservation="vw-1"))
    scene.harness.delete_as_administrator("vw-1")
    found = scene.job(job)

    assert scene.look().reservations == ()
    assert scene.state(job) is scene.harness.unstarted_at_end
    assert found is None or (found.reservation, found.is_held_by_us) == (None, False)
