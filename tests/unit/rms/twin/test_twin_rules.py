"""The rules in which batch systems differ, and what administrators do behind the service's back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.rms.base import JobState, RmsReservation, Unknown
from outrider.rms.twin import TwinRules
from tests.unit.rms.twin.small_twin import BEGIN_S, NODES, Small, refused


def test_jobs_start_in_order_in_the_second_after_the_change() -> None:
    small = Small()
    jobs = [small.submit(10, nodes=3) for _ in range(3)]
    small.to(40)

    assert [small.when(job, "running") for job in jobs] == [[1], [11], [21]]


def test_jobs_start_at_multiples_of_the_pass() -> None:
    small = Small(TwinRules(pass_every_s=4))
    small.to(1)
    first, second = small.submit(5, nodes=3), small.submit(nodes=3)
    small.to(20)

    # 1,000,000 is a multiple of 4; nodes that are free again in between wait for the next one.
    assert small.when(first, "running") == [4]
    assert small.when(first, "ended") == [9]
    assert small.when(second, "running") == [12]


def test_limits_are_enforced_at_multiples_of_the_sweep() -> None:
    small = Small(TwinRules(sweep_every_s=30, kill_s=2))
    job = small.submit(limit_s=60)
    small.to(200)

    # 1,000,020 is a multiple of 30, so 1,000,080 is; the limit is reached at 1,000,061.
    assert small.when(job, "leaving") == [80]
    assert small.when(job, "ended") == [82]


def test_job_longer_than_its_reservation_is_cut_at_the_end() -> None:
    small = Small()
    small.reserve("vw-1", ("n1",), 10, 50)
    job = small.submit(limit_s=100, reservation="vw-1")
    small.to(60)

    assert small.when(job, "running") == [10]
    assert small.when(job, "ended") == [50]
    assert small.twin.outside.why_ended(job) == "reservation vw-1 has ended"


def test_job_longer_than_its_reservation_may_have_to_wait_in_vain() -> None:
    small = Small(TwinRules(starts_beyond_end=False))
    small.reserve("vw-1", ("n1",), 10, 50)
    long = small.submit(limit_s=41, reservation="vw-1")
    fitting = small.submit(limit_s=40, reservation="vw-1")
    small.to(60)

    assert small.when(long, "running") == []
    assert small.when(fitting, "running") == [10]
    assert small.state(long) is JobState.HELD


def test_job_without_a_limit_starts_on_no_node_that_will_be_reserved() -> None:
    small = Small()
    small.reserve("vw-1", ("n1", "n2"), 1000, 1100)
    jobs = [small.submit(limit_s=None, cpus=1) for _ in range(3)]
    small.to(500)

    assert [small.job(job).nodes for job in jobs] == [("n3",), ("n3",), ()]


def test_job_may_end_in_the_second_in_which_a_reservation_starts() -> None:
    small = Small()
    small.reserve("vw-1", NODES, 101, 200)
    fitting = small.submit(limit_s=100)
    long = small.submit(limit_s=101)
    inside = small.submit(nodes=3, reservation="vw-1")
    small.to(150)

    assert small.when(fitting, "running") == [1]
    assert small.when(fitting, "ended") == [101]
    assert small.when(long, "running") == []
    assert small.when(inside, "running") == [101]


def test_unbound_job_after_a_deletion_is_held_by_the_system() -> None:
    small = Small()
    small.reserve("vw-1", ("n1",), 100, 200)
    job = small.submit(reservation="vw-1")
    small.twin.outside.delete_reservation("vw-1")
    seen = small.job(job)

    assert (seen.state, seen.reservation, seen.is_held_by_us) == (JobState.HELD, None, False)
    assert small.twin.outside.shown(job) == "reservation vw-1 was deleted"


def test_reservation_in_use_is_not_deleted() -> None:
    small = Small(TwinRules(deletes_in_use=False))
    small.reserve("vw-1", ("n1",), 10, 200)
    job = small.submit(reservation="vw-1")
    small.to(20)

    assert refused(lambda: small.twin.outside.delete_reservation("vw-1")) == (
        "reservation vw-1 is in use by job 1"
    )
    assert small.job(job).reservation == "vw-1"


def test_reservation_in_use_is_deleted_with_its_job() -> None:
    small = Small(TwinRules(deletes_in_use=True))
    small.reserve("vw-1", ("n1",), 10, 200)
    job = small.submit(reservation="vw-1")
    small.to(20)
    small.twin.outside.delete_reservation("vw-1")

    assert small.state(job) is JobState.ENDED
    assert small.twin.look().reservations == ()


@pytest.mark.parametrize("ends_all", [False, True])
def test_hold_by_a_user_survives_our_release_or_does_not(ends_all: bool) -> None:
    small = Small(TwinRules(release_ends_all_holds=ends_all))
    job = small.submit()
    small.twin.hold(job, "waits")
    small.twin.outside.hold(job)
    small.twin.release(job)
    seen = small.job(job)

    assert seen.state is (JobState.PENDING if ends_all else JobState.HELD)
    assert not seen.is_held_by_us


def test_administrator_ends_our_hold() -> None:
    small = Small()
    job = small.submit()
    small.twin.hold(job, "waits")
    small.twin.outside.release(job)
    seen = small.job(job)

    assert (seen.state, seen.is_held_by_us) == (JobState.PENDING, False)


def test_administrator_requeues_and_holds() -> None:
    small = Small()
    job = small.submit()
    small.to(5)
    small.twin.outside.requeue(job, is_held=True)
    seen = small.job(job)

    assert (seen.state, seen.nodes, seen.is_held_by_us) == (JobState.HELD, (), False)


def test_administrator_alters_our_reservation() -> None:
    small = Small()
    made = small.reserve("vw-1", ("n1", "n2"), 100, 200)
    altered = replace(made, nodes=("n2", "n3"), start_s=made.start_s + 50)
    small.twin.outside.alter_ours(altered)

    assert small.twin.look().reservations == (altered,)


def test_administrators_reservation_needs_no_users_and_ours_does() -> None:
    small = Small()
    maintenance = RmsReservation(
        name="maintenance", nodes=("n1",), start_s=BEGIN_S + 10, end_s=BEGIN_S + 20, users=(), is_ours=False
    )
    small.twin.outside.reserve(maintenance)
    ours = replace(maintenance, name="vw-1", nodes=("n2",), is_ours=True)

    assert refused(lambda: small.twin.reserve(ours)).startswith("reservation vw-1 is for nobody")
    assert small.twin.look().reservations == (maintenance,)


def test_job_whose_user_lost_the_reservation_does_not_start_in_it() -> None:
    small = Small()
    made = small.reserve("vw-1", ("n1",), 10, 200)
    job = small.submit(reservation="vw-1")
    small.twin.reserve(replace(made, users=("bob",)))
    small.to(50)
    waited = small.state(job)
    small.twin.reserve(replace(made, users=("alice", "bob")))
    small.to(51)

    assert waited is JobState.PENDING
    assert small.state(job) is JobState.RUNNING


def test_overlap_is_refused_with_the_nodes_and_times_in_the_way() -> None:
    small = Small()
    small.reserve("vw-1", ("n1", "n2", "n3"), 100, 200)

    assert refused(lambda: small.reserve("vw-2", ("n3", "n2"), 150, 250)) == (
        "reservation vw-2 overlaps vw-1, which has n2, n3 from 1000100 until 1000200"
    )


def test_reservation_that_has_ended_is_of_no_use_even_if_it_is_still_shown() -> None:
    small = Small(TwinRules(sweep_every_s=30))
    small.reserve("vw-1", ("n1",), 10, 31)
    job = small.submit(nodes=3)
    small.to(40)

    assert [each.name for each in small.twin.look().reservations] == ["vw-1"]
    with pytest.raises(Unknown):
        small.twin.bind(job, "vw-1")


def test_rules_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="pass_every_s and sweep_every_s are 1 or more"):
        TwinRules(pass_every_s=0)
    with pytest.raises(ValueError, match="cannot be negative"):
        TwinRules(kill_s=-1)
    with pytest.raises(ValueError, match="held or ended, not running"):
        TwinRules(unstarted_at_end=JobState.RUNNING)


def test_twin_is_found_as_it_was_by_whoever_comes_back() -> None:
    small = Small()
    small.reserve("vw-1", ("n1",), 10, 50)
    job = small.submit(5, reservation="vw-1")
    before = small.twin.look()
    small.to(12)

    assert (len(before.jobs), len(before.reservations)) == (1, 1)
    assert small.state(job) is JobState.RUNNING
    assert [each.at_s - BEGIN_S for each in small.twin.log if each.subject == job] == [0, 10, 10]
