"""What happens on the twin's nodes: prologs, epilogs, failures, and work that is saved."""

from __future__ import annotations

from outrider.rms.base import JobState, NodeState, RmsJob
from outrider.rms.twin import TwinRules
from tests.unit.rms.twin.small_twin import BEGIN_S, Small, refused


def test_prolog_is_asked_on_every_node_before_the_job_runs() -> None:
    small = Small()
    states: list[tuple[JobState, tuple[str, ...]]] = []
    small.calls.before_prolog = lambda job: states.append((job.state, job.nodes))
    job = small.submit(nodes=2)
    small.to(1)
    small.twin.look()

    assert small.calls.prologs == [(job, "n1"), (job, "n2")]
    assert states == [(JobState.STARTING, ("n1", "n2"))] * 2


def test_prolog_and_epilog_may_be_on_the_first_node_alone() -> None:
    small = Small(TwinRules(is_prolog_on_every_node=False))
    job = small.submit(10, nodes=2)
    small.to(20)
    small.twin.look()

    assert small.calls.prologs == small.calls.epilogs == [(job, "n1")]


def test_job_that_is_not_ready_is_held_with_the_reason_and_the_node_stays_up() -> None:
    small = Small()
    small.calls.without_image = {"n2"}
    job = small.submit(nodes=3)
    small.to(50)
    seen = small.job(job)

    assert (seen.state, seen.is_held_by_us, seen.nodes) == (JobState.HELD, False, ())
    assert small.twin.outside.shown(job) == "no image on n2"
    assert small.calls.prologs == [(job, "n1"), (job, "n2")]
    assert small.calls.epilogs == [(job, "n1"), (job, "n2"), (job, "n3")]
    assert {node.state for node in small.twin.look().nodes} == {NodeState.UP}


def test_job_that_was_not_ready_tries_again_when_released() -> None:
    small = Small()
    small.calls.without_image = {"n1"}
    job = small.submit()
    small.to(10)
    small.twin.look()
    small.calls.without_image.clear()
    small.twin.release(job)
    small.to(11)

    assert small.job(job).state is JobState.RUNNING


def test_room_of_a_job_that_was_not_ready_is_taken_in_the_same_second() -> None:
    small = Small()
    first, second = small.submit(nodes=3), small.submit(nodes=3)

    def lack_the_image_of_the_first(job: RmsJob) -> None:
        small.calls.without_image = {"n1"} if job.key == first else set()

    small.calls.before_prolog = lack_the_image_of_the_first
    small.to(1)
    small.twin.look()

    assert [small.when(first, "held"), small.when(second, "running")] == [[1], [1]]


def test_prolog_takes_its_time_of_the_limit_but_not_of_the_work() -> None:
    small = Small(TwinRules(prolog_s=5))
    worker = small.submit(10, cpus=1)
    sluggard = small.submit(1000, cpus=1, limit_s=10)
    small.to(30)

    assert small.when(worker, "running") == [6]
    assert small.when(worker, "ended") == [16]
    assert small.when(sluggard, "ended") == [11]


def test_hooks_may_look_and_change_things() -> None:
    small = Small()

    def cancel(job: RmsJob) -> None:
        assert [each.state for each in small.twin.look().jobs] == [JobState.STARTING]
        small.twin.cancel(job.key, "not wanted")

    small.calls.before_prolog = cancel
    job = small.submit(nodes=2)
    small.to(1)

    assert small.state(job) is JobState.ENDED
    assert small.calls.prologs == [(job, "n1")]


def test_job_that_a_hook_holds_does_not_start_after_it() -> None:
    small = Small()
    jobs = [small.submit(), small.submit()]
    small.calls.before_prolog = lambda job: small.twin.hold(jobs[1], "waits")
    small.to(5)

    assert [small.state(job) for job in jobs] == [JobState.RUNNING, JobState.HELD]


def test_node_that_fails_runs_no_epilog_and_its_jobs_wait_again() -> None:
    small = Small()
    job = small.submit(nodes=2)
    small.to(10)
    small.twin.outside.fail("n1")
    small.to(11)
    seen = small.job(job)

    assert small.calls.epilogs == [(job, "n2")]
    assert (seen.state, seen.nodes) == (JobState.RUNNING, ("n2", "n3"))
    assert small.twin.look().nodes[0].state is NodeState.DOWN


def test_node_that_fails_may_end_its_jobs() -> None:
    small = Small(TwinRules(reruns_after_failure=False))
    job = small.submit()
    small.to(10)
    small.twin.outside.fail("n1")

    assert small.state(job) is JobState.ENDED
    assert small.twin.outside.why_ended(job) == "node n1 failed"


def test_job_that_is_being_killed_does_not_wait_again_because_its_node_fails() -> None:
    small = Small(TwinRules(kill_s=10))
    job = small.submit()
    small.to(10)
    small.twin.cancel(job, "given up")
    small.twin.outside.fail("n1")

    assert small.state(job) is JobState.ENDED


def test_drained_node_finishes_what_it_has_and_takes_nothing() -> None:
    small = Small()
    first = small.submit(20, nodes=3)
    small.to(10)
    for node in ("n1", "n2"):
        small.twin.outside.drain(node)
    second, third = small.submit(5, nodes=3), small.submit(5)
    small.to(40)
    waited = small.state(second)
    nodes = [small.when(third, "starting"), small.when(first, "ended")]
    small.twin.outside.repair("n1")
    small.twin.outside.repair("n2")
    small.to(41)

    assert nodes == [[21], [21]]
    assert waited is JobState.PENDING
    assert small.state(second) is JobState.RUNNING


def test_suspended_job_goes_on_with_the_work_that_it_had_done() -> None:
    small = Small(TwinRules(save_s=3))
    job = small.submit(100)
    small.to(41)
    small.twin.suspend(job)
    small.to(43)
    saving = small.state(job)
    small.to(60)
    small.twin.resume(job)
    small.to(200)

    assert saving is JobState.RUNNING
    assert small.when(job, "suspended") == [44]
    assert small.when(job, "running") == [1, 61]
    assert small.when(job, "ended") == [121]


def test_limit_of_a_resumed_job_is_what_was_left_of_it() -> None:
    small = Small()
    job = small.submit(1000, limit_s=100)
    small.to(31)
    small.twin.suspend(job)
    small.to(49)
    small.twin.resume(job)
    small.to(200)

    assert small.when(job, "ended") == [50 + 70]
    assert small.twin.outside.why_ended(job) == "limit reached"


def test_job_resumed_while_it_is_saved_goes_on_afterwards() -> None:
    small = Small(TwinRules(save_s=5))
    job = small.submit(100)
    small.to(11)
    small.twin.suspend(job)
    small.to(12)
    small.twin.resume(job)
    small.to(17)

    assert small.when(job, "suspended") == [16]
    assert small.when(job, "running") == [1, 16]


def test_job_suspended_again_while_it_is_saved_stays_suspended() -> None:
    small = Small(TwinRules(save_s=5))
    job = small.submit(100)
    small.to(11)
    small.twin.suspend(job)
    small.twin.resume(job)
    small.twin.suspend(job)
    small.to(50)

    assert small.when(job, "suspended") == [16]
    assert small.state(job) is JobState.SUSPENDED


def test_job_that_ends_anyway_is_not_suspended() -> None:
    small = Small(TwinRules(kill_s=10))
    job = small.submit()
    small.to(5)
    small.twin.cancel(job, "given up")

    assert refused(lambda: small.twin.suspend(job)) == "job 1 is about to be ended: given up"
    small.to(15)
    assert small.when(job, "ended") == [15]


def test_cancelling_again_does_not_prolong_the_end() -> None:
    small = Small(TwinRules(kill_s=10))
    job = small.submit()
    small.to(5)
    small.twin.cancel(job, "given up")
    small.to(12)
    small.twin.cancel(job, "given up again")
    small.to(30)

    assert small.when(job, "ended") == [15]
    assert small.twin.outside.why_ended(job) == "given up"


def test_requeued_job_starts_from_the_beginning_after_its_delay() -> None:
    small = Small(TwinRules(requeue_delay_s=121))
    job = small.submit(100)
    small.to(50)
    small.twin.outside.requeue(job)
    small.to(400)

    assert small.when(job, "running") == [1, 171]
    assert small.when(job, "ended") == [271]


def test_clock_that_goes_back_changes_nothing() -> None:
    small = Small()
    job = small.submit(10)
    small.to(5)
    small.twin.look()
    small.clock.sleep(-4)

    assert small.twin.look().at_s == BEGIN_S + 5
    small.twin.advance(BEGIN_S + 11)
    assert small.state(job) is JobState.ENDED


def test_command_without_a_known_end_runs_until_its_limit() -> None:
    small = Small()
    job = small.submit(100_000, limit_s=None)
    small.to(99_999)
    running = small.state(job)
    small.to(100_001)

    assert running is JobState.RUNNING
    assert small.state(job) is JobState.ENDED
