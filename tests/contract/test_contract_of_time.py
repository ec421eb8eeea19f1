"""What a batch system promises while reservations begin, go on, and end.

Approximate on real systems: a job starts up to `change_s` after its reservation does, and is
off its nodes up to `end_s` after the end. Never approximate: a job starts before its
reservation or off its nodes, or somebody else's job is on a reserved node.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.rms.base import JobState, Refused, RmsReservation, Sight, Unknown
from tests.contract.harness import ONE_LOOK_S, Scene, seen
from tests.contract.sights import ON_NODES, on_nodes


def a_reservation(scene: Scene, nodes: tuple[str, ...], duration_s: int = 120) -> RmsReservation:
    wanted = scene.reservation("vw-1", nodes, scene.in_time_s(), scene.paced(duration_s))
    scene.system.reserve(wanted)
    return wanted


def on_the_nodes_of(sight: Sight, reservation: RmsReservation) -> set[str]:
    return {job.key for job, node in on_nodes(sight) if node in reservation.nodes}


@pytest.mark.parametrize("way", ["submitted", "bound"])
def test_job_starts_with_its_reservation_on_exactly_its_nodes(scene: Scene, way: str) -> None:
    reservation = a_reservation(scene, (scene.nodes[1], scene.nodes[3]))
    if way == "submitted":
        job = scene.system.submit(scene.submission(nodes_wanted=2, limit_s=60, reservation="vw-1"))
    else:
        job = scene.waiting_job(nodes_wanted=2, limit_s=60)
        scene.system.bind(job, "vw-1")
        scene.system.release(job)
    before = scene.watch(reservation.start_s)
    found = scene.wait_for_state(job, *ON_NODES, within_s=scene.lags.change_s)

    assert all(on_the_nodes_of(sight, reservation) == set() for sight in before)
    assert found is not None
    assert (found.nodes, found.reservation) == (reservation.nodes, "vw-1")
    assert found.start_s is not None
    assert reservation.start_s <= found.start_s <= reservation.start_s + scene.lags.change_s


def test_job_held_by_us_does_not_start_with_its_reservation(scene: Scene) -> None:
    reservation = a_reservation(scene, scene.nodes[:1])
    job = scene.waiting_job(limit_s=60)
    scene.system.bind(job, "vw-1")
    scene.watch(reservation.start_s)
    scene.settle()
    waited = scene.state(job)
    scene.system.release(job)

    assert waited is JobState.HELD
    assert scene.wait_for_state(job, *ON_NODES) is not None


def test_other_jobs_keep_out_of_a_reservation(scene: Scene) -> None:
    scene.waits(scene.paced(120))
    reservation = a_reservation(scene, scene.nodes[1:3])
    strangers = {scene.harness.submit_as_user(scene.submission(nodes_wanted=3, person=1, limit_s=3600))}
    strangers |= {scene.harness.submit_as_user(scene.submission(person=1, limit_s=3600)) for _ in range(4)}
    owners = {scene.system.submit(scene.submission(limit_s=3600))}
    sights = scene.watch(reservation.end_s)

    assert all(on_the_nodes_of(sight, reservation) == set() for sight in sights)
    assert sum(job.state in ON_NODES for job in sights[-1].jobs) == 2
    assert {job.key for job in sights[-1].jobs} == strangers | owners


def test_other_jobs_that_end_in_time_may_start_before_a_reservation(scene: Scene) -> None:
    start_s = scene.in_time_s() + 120
    scene.system.reserve(scene.reservation("vw-1", scene.nodes, start_s))
    long = scene.harness.submit_as_user(scene.submission(limit_s=1800))
    short = scene.harness.submit_as_user(scene.submission(limit_s=60))
    scene.wait_for_state(short, *ON_NODES)

    assert scene.state(long) is JobState.PENDING


def test_jobs_start_on_the_nodes_after_the_reservation(scene: Scene) -> None:
    scene.waits(scene.paced(60) + scene.lags.end_s)
    reservation = a_reservation(scene, scene.nodes, duration_s=60)
    job = scene.harness.submit_as_user(scene.submission(limit_s=3600, person=1))
    scene.watch(reservation.end_s)
    lags = scene.lags

    assert scene.wait_for_state(job, *ON_NODES, within_s=lags.end_s + lags.change_s + ONE_LOOK_S) is not None


def test_job_waits_inside_its_reservation_until_its_nodes_are_clear(scene: Scene) -> None:
    stranger = scene.running_job(nodes_wanted=4)
    reservation = a_reservation(scene, scene.nodes[:2], duration_s=600)
    job = scene.system.submit(scene.submission(nodes_wanted=2, limit_s=60, reservation="vw-1"))
    scene.watch(reservation.start_s)
    scene.settle()
    waited = scene.state(job)
    scene.system.cancel(stranger, "a reservation has begun")
    found = scene.wait_for_state(job, *ON_NODES, within_s=scene.lags.end_s + scene.lags.change_s + ONE_LOOK_S)

    assert waited is JobState.PENDING
    assert found is not None
    assert found.nodes == reservation.nodes


def test_end_of_a_reservation_ends_what_runs_in_it(scene: Scene) -> None:
    scene.waits(scene.paced(120) + scene.lags.end_s)
    reservation = a_reservation(scene, scene.nodes[:2])
    job = scene.system.submit(scene.submission(nodes_wanted=2, limit_s=None, reservation="vw-1"))
    scene.watch(reservation.start_s)
    scene.wait_for_state(job, JobState.RUNNING)
    during = scene.watch(reservation.end_s)
    scene.wait_for_state(job, JobState.ENDED, within_s=scene.lags.end_s)
    scene.wait_for("the reservation is gone", lambda sight: sight.reservations == (), scene.lags.end_s)

    assert all(on_the_nodes_of(sight, reservation) == {job} for sight in during)


def test_end_of_a_reservation_unbinds_or_ends_what_never_started(scene: Scene) -> None:
    scene.waits(scene.paced(60) + scene.lags.end_s)
    reservation = a_reservation(scene, scene.nodes[:2], duration_s=60)
    job = scene.waiting_job(limit_s=60)
    scene.system.bind(job, "vw-1")
    scene.watch(reservation.end_s)
    scene.wait_for("the reservation is gone", lambda sight: sight.reservations == (), scene.lags.end_s)
    found = scene.job(job)

    assert scene.state(job) is scene.harness.unstarted_at_end
    assert found is None or found.reservation is None


def test_job_freed_by_its_reservations_end_starts_when_released(scene: Scene) -> None:
    scene.waits(scene.lags.delete_s)
    a_reservation(scene, scene.nodes[:2], duration_s=60)
    job = scene.system.submit(scene.submission(reservation="vw-1"))
    scene.harness.delete_as_administrator("vw-1")
    if scene.harness.unstarted_at_end is JobState.ENDED:
        assert scene.state(job) is JobState.ENDED
        return
    scene.system.release(job)

    assert scene.wait_for_state(job, JobState.RUNNING) is not None


def test_reservation_in_use_is_not_taken_back(scene: Scene) -> None:
    reservation = a_reservation(scene, scene.nodes[:2], duration_s=600)
    job = scene.system.submit(scene.submission(nodes_wanted=2, limit_s=60, reservation="vw-1"))
    scene.watch(reservation.start_s)
    scene.wait_for_state(job, JobState.RUNNING)

    with pytest.raises(Refused):
        scene.system.unreserve("vw-1")
    assert scene.state(job) is JobState.RUNNING
    assert "vw-1" in scene.reservations()

    scene.system.cancel(job, "the reservation is given up")
    scene.wait_for_state(job, JobState.ENDED, within_s=scene.lags.end_s)
    scene.system.unreserve("vw-1")
    assert scene.look().reservations == ()


def test_change_that_would_leave_a_running_job_outside_is_refused(scene: Scene) -> None:
    reservation = a_reservation(scene, scene.nodes[:2], duration_s=600)
    job = scene.system.submit(scene.submission(nodes_wanted=2, limit_s=60, reservation="vw-1"))
    scene.watch(reservation.start_s)
    scene.wait_for_state(job, JobState.RUNNING)

    with pytest.raises(Refused):
        scene.system.reserve(replace(reservation, nodes=scene.nodes[1:3]))
    assert scene.reservations()["vw-1"] == reservation
    assert scene.state(job) is JobState.RUNNING


def test_reservation_is_prolonged_while_its_job_runs(scene: Scene) -> None:
    scene.waits(scene.paced(240))
    reservation = a_reservation(scene, scene.nodes[:2])
    job = scene.system.submit(scene.submission(nodes_wanted=2, limit_s=None, reservation="vw-1"))
    scene.watch(reservation.start_s)
    scene.wait_for_state(job, JobState.RUNNING)
    longer = replace(reservation, end_s=reservation.end_s + scene.paced(120))
    scene.system.reserve(longer)
    sights = scene.watch(longer.end_s)

    assert all(on_the_nodes_of(sight, longer) == {job} for sight in sights)
    assert sights[-1].reservations == (longer,)


def test_binding_is_for_those_who_may_use_the_reservation(scene: Scene) -> None:
    a_reservation(scene, scene.nodes[:2])
    scene.running_job(nodes_wanted=2, limit_s=None)
    stranger = scene.harness.submit_as_user(scene.submission(person=1, nodes_wanted=4))

    with pytest.raises(Refused):
        scene.system.bind(stranger, "vw-1")
    with pytest.raises(Refused):
        scene.system.submit(scene.submission(person=1, reservation="vw-1"))
    with pytest.raises(Unknown):
        scene.system.bind(stranger, "vw-never")
    found = scene.job(stranger)
    assert found is not None
    assert found.reservation is None


def test_binding_gives_another_limit_or_is_refused(scene: Scene) -> None:
    reservation = a_reservation(scene, scene.nodes[:2])
    job = scene.waiting_job(limit_s=600)
    try:
        for limit_s in (120, 120, 180):
            scene.system.bind(job, "vw-1", limit_s)
    except Refused:
        # A job of Grid Engine's keeps what it has asked for.
        assert scene.system.name == "gridengine"
        return
    scene.settle()
    found = scene.job(job)

    assert found is not None
    assert (found.limit_s, found.reservation) == (180, reservation.name)


def test_binding_twice_or_when_it_runs_there_is_no_error(scene: Scene) -> None:
    reservation = a_reservation(scene, scene.nodes[:2])
    job = scene.waiting_job(limit_s=60)
    scene.system.bind(job, "vw-1")
    scene.system.bind(job, "vw-1")
    scene.system.release(job)
    scene.watch(reservation.start_s)
    scene.wait_for_state(job, JobState.RUNNING)
    scene.system.bind(job, "vw-1")
    found = scene.job(job)

    assert found is not None
    assert (found.state, found.reservation) == (JobState.RUNNING, "vw-1")


def test_job_that_runs_elsewhere_cannot_be_bound(scene: Scene) -> None:
    job = scene.running_job()
    a_reservation(scene, scene.nodes[2:])

    with pytest.raises(Refused):
        scene.system.bind(job, "vw-1")
    found = scene.job(job)
    assert found is not None
    assert (found.state, found.reservation) == (JobState.RUNNING, None)


def test_unbound_job_starts_like_any_other(scene: Scene) -> None:
    a_reservation(scene, scene.nodes[:2])
    job = scene.system.submit(scene.submission(reservation="vw-1", limit_s=3600))
    scene.settle()
    waited = scene.state(job)
    scene.system.bind(job, None)
    scene.system.bind(job, None)
    found = scene.wait_for_state(job, JobState.RUNNING)

    assert waited is JobState.PENDING
    assert found is not None
    assert found.reservation is None
    assert found.nodes[0] in scene.nodes[2:]


def test_job_of_a_reservation_waits_for_a_failed_node_to_return(scene: Scene) -> None:
    reservation = a_reservation(scene, scene.nodes[:2], duration_s=1200)
    scene.harness.fail(scene.nodes[1])
    job = scene.system.submit(scene.submission(nodes_wanted=2, limit_s=60, reservation="vw-1"))
    scene.watch(reservation.start_s)
    scene.settle()
    waited, kept = scene.state(job), scene.reservations()["vw-1"].nodes
    scene.harness.repair(scene.nodes[1])
    sight = scene.wait_for(
        "the job runs",
        lambda sight: (found := seen(sight, job)) is not None and found.state in ON_NODES,
        scene.lags.change_s + ONE_LOOK_S,
    )
    found = seen(sight, job)

    assert waited is JobState.PENDING
    assert kept == reservation.nodes
    assert found is not None
    assert found.nodes == reservation.nodes
