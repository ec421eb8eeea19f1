"""What a fault does to a call, and what it leaves behind."""

from __future__ import annotations

import pytest

from outrider.rms.base import JobState, Refused, RmsError, Unavailable, Unknown
from outrider.rms.twin import EpilogFault, Fault, Faults, Slow
from outrider.rms.twin import world as world_module
from tests.unit.rms.twin.small_twin import BEGIN_S, Small, refused


def test_request_that_did_not_arrive_changes_nothing() -> None:
    small = Small()
    job = small.submit()
    small.twin.faults.plan("hold", Fault.UNREACHED)

    with pytest.raises(Unavailable):
        small.twin.hold(job, "waits")
    assert small.state(job) is JobState.PENDING


def test_change_whose_answer_was_lost_is_made() -> None:
    small = Small()
    job = small.submit()
    small.twin.faults.plan("hold", Fault.ANSWER_LOST)

    with pytest.raises(Unavailable):
        small.twin.hold(job, "waits")
    assert small.state(job) is JobState.HELD


def test_refusal_whose_answer_was_lost_is_no_refusal() -> None:
    small = Small()
    small.twin.faults.plan("hold", Fault.ANSWER_LOST)

    with pytest.raises(Unavailable):
        small.twin.hold("77", "waits")
    with pytest.raises(Unknown):
        small.twin.hold("77", "waits")


def test_each_planned_fault_meets_one_call_in_order() -> None:
    small = Small()
    small.twin.faults.plan("look", Fault.REFUSED, Fault.UNREACHED)
    met: list[type[RmsError]] = []
    for _ in range(2):
        try:
            small.twin.look()
        except RmsError as error:
            met.append(type(error))

    assert met == [Refused, Unavailable]
    assert small.twin.look().at_s == BEGIN_S


def test_job_whose_submission_was_not_answered_is_found_by_its_metadata() -> None:
    small = Small()
    small.twin.faults.plan("submit", Fault.ANSWER_LOST)

    with pytest.raises(Unavailable):
        small.submit(metadata="ws-42")
    assert [job.metadata for job in small.twin.look().jobs] == ["ws-42"]


def test_slow_call_is_made_late_and_the_world_does_not_wait() -> None:
    small = Small()
    running = small.submit(10)
    small.to(2)
    waiting = small.submit(nodes=3)
    small.twin.faults.plan("hold", Slow(30))

    assert "running" in refused(lambda: small.twin.hold(waiting, "too late"))
    assert small.clock.now_s() == BEGIN_S + 32
    assert small.when(running, "ended") == [11]
    assert small.when(waiting, "running") == [11]


def test_outage_ends_at_its_time_and_jobs_go_on_meanwhile() -> None:
    small = Small()
    job = small.submit(10)
    small.twin.faults.be_unreachable_until(BEGIN_S + 60)
    small.to(59)
    with pytest.raises(Unavailable):
        small.twin.look()
    small.to(60)

    assert small.twin.look().jobs == ()
    assert small.when(job, "ended") == [11]


def test_faults_are_planned_for_calls_that_exist() -> None:
    with pytest.raises(ValueError, match=r"there is no call reserves: one of look, .*reserve, "):
        Faults().plan("reserves", Fault.REFUSED)


def test_epilogs_may_be_lost_or_doubled() -> None:
    small = Small()
    small.twin.faults.plan_epilogs(EpilogFault.LOST, EpilogFault.DOUBLED)
    job = small.submit(10, nodes=3)
    small.to(20)
    small.twin.look()

    assert small.calls.epilogs == [(job, "n2"), (job, "n2"), (job, "n3")]


def test_ended_jobs_are_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "MOST_ENDED", 2)
    small = Small()
    jobs = [small.submit(nodes=3) for _ in range(3)]
    for job in jobs:
        small.twin.cancel(job, "given up")
    small.twin.cancel(jobs[1], "once more")

    assert refused(lambda: small.twin.cancel(jobs[0], "once more")) == "there is no job 1"
    assert small.twin.outside.why_ended(jobs[1]) == "given up"
