"""What only a real slurmctld can show, beyond the contract: restarts, arrays, users' own wishes.

Each waits by looking, with a deadline that shows Slurm's logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from cachemgr.base.clock import SystemClock
from outrider.rms.base import JobState, NodeState, Sight, Unavailable
from outrider.rms.commands import Account, Output, run_process
from outrider.rms.slurm import SlurmCommands, SlurmSystem
from tests.contract.harness import Scene
from tests.contract.slurm_cluster import PATH, Cluster
from tests.contract.slurm_harness import LogOfTest, SlurmHarness, private_slurm

SCRIPT = "#!/bin/sh\nexec sleep 1000\n"
SOON_S = 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with private_slurm() as made:
        yield made


@pytest.fixture
def scene(cluster: Cluster) -> Scene:
    harness = SlurmHarness(cluster)
    harness.sweep()
    return Scene(harness)


def sbatch(cluster: Cluster, *options: str) -> str:
    argv = ("sbatch", "--parsable", "--output=/dev/null", *options)
    return cluster.run(*argv, uid=5, text=SCRIPT).strip()


def states(sight: Sight) -> dict[str, JobState]:
    return {job.key: job.state for job in sight.jobs}


def another_system(
    cluster: Cluster, run: Callable[..., Output] = run_process, shown: Sequence[str] = ()
) -> SlurmSystem:
    """As after a restart of the service: nothing is known."""

    def account_of(user: str, uid: int) -> Account:
        return Account(user=user, uid=uid, gid=uid, home="/")

    commands = SlurmCommands(run, configuration=str(cluster.configuration), path=PATH, timeout_s=2)
    return SlurmSystem(commands, clock=SystemClock(), log=LogOfTest(), account_of=account_of, shown=shown)


def test_controller_that_restarts_is_unavailable_and_has_forgotten_nothing(
    cluster: Cluster, scene: Scene
) -> None:
    job = scene.waiting_job()
    wanted = scene.reservation("vw-1", scene.nodes[:2], scene.harness.now_s() + 500)
    scene.system.reserve(wanted)
    scene.system.ticket(job, "1.2.3")
    hurried = another_system(cluster)
    cluster.stop_controller()
    with pytest.raises(Unavailable):
        hurried.look()
    with pytest.raises(Unavailable):
        hurried.hold(job, "why not")
    cluster.start_controller()
    cluster.wait_until_answering()
    sight = scene.system.look()
    scene.system.release(job)
    scene.wait_for_state(job, JobState.RUNNING, within_s=SOON_S)

    assert (states(sight), sight.reservations) == ({job: JobState.HELD}, (wanted,))
    assert scene.harness.ticket_on_nodes(job) == "1.2.3"


def test_tasks_of_an_array_are_one_job_until_they_start_and_are_cancelled_one_by_one(
    cluster: Cluster, scene: Scene
) -> None:
    array = sbatch(cluster, "--hold", "--array=1-3", "-n1", "-c4")
    waiting = scene.job(array)
    cluster.run("scontrol", "release", array)
    sight = scene.wait_for(
        "three tasks run", lambda sight: [*states(sight).values()] == [JobState.RUNNING] * 3, SOON_S
    )
    scene.system.cancel(array, "the one that has the array's number")
    left = scene.wait_for("two tasks run", lambda sight: len(sight.jobs) == 2, SOON_S)

    assert waiting is not None
    assert (waiting.tasks, waiting.state) == (3, JobState.HELD)
    assert array in states(sight)
    assert set(states(left)) == set(states(sight)) - {array}
    assert set(states(left).values()) == {JobState.RUNNING}


def test_array_is_held_led_and_ticketed_as_a_whole(cluster: Cluster, scene: Scene) -> None:
    array = sbatch(cluster, "--hold", "--array=1-2", "-n1", "-c1", "--mem=100")
    scene.system.hold(array, "waits for its image")
    cluster.run("scontrol", "release", array)
    held = scene.job(array)
    scene.system.ticket(array, "1.-.5.ab.9.cd")
    scene.system.release(array, scene.nodes[2:3])
    sight = scene.wait_for(
        "both tasks run", lambda sight: [*states(sight).values()] == [JobState.RUNNING] * 2, SOON_S
    )

    assert held is not None
    assert (held.state, held.is_held_by_us) == (JobState.HELD, True)
    assert {job.nodes for job in sight.jobs} == {scene.nodes[2:3]}
    assert {scene.harness.ticket_on_nodes(job.key) for job in sight.jobs} == {"1.-.5.ab.9.cd"}


def test_users_own_begin_survives_our_hold_and_release(cluster: Cluster, scene: Scene) -> None:
    job = sbatch(cluster, "--begin=now+5hours", "-n1")
    before = scene.state(job)
    scene.system.hold(job, "waits for its image")
    held = scene.state(job)
    scene.system.release(job)
    scene.settle()

    assert (before, held, scene.state(job)) == (JobState.PENDING, JobState.HELD, JobState.PENDING)


def test_job_that_is_being_sent_back_does_not_begin_again_at_each_look(
    cluster: Cluster, scene: Scene
) -> None:
    """Slurm shows the present as its start. Its node does not hear that it is to end, so that it stays so."""
    job = sbatch(cluster, "--requeue", "-n1", "--time=60")
    scene.wait_for_state(job, JobState.RUNNING, within_s=SOON_S)
    running = scene.job(job)
    assert running is not None
    cluster.kill_node(running.nodes[0])
    try:
        cluster.run("scontrol", "requeuehold", job)
        sent_back = scene.job(job)
        after_restart = another_system(cluster).look().jobs
    finally:
        cluster.start_node(running.nodes[0])
    scene.wait_for_state(job, JobState.HELD, within_s=SOON_S)

    assert sent_back == running
    assert [job.start_s for job in after_restart] == [running.submitted_s]


def test_job_that_was_sent_back_begins_when_its_node_has_forgotten_it(cluster: Cluster, scene: Scene) -> None:
    def begin_s() -> int:
        printed = cluster.run("squeue", "--noheader", f"--jobs={job}", "--Format=EligibleTime:30")
        return int(printed)

    job = sbatch(cluster, "-n1")
    scene.wait_for_state(job, JobState.RUNNING)
    cluster.run("scontrol", "requeue", job)
    scene.wait_for_state(job, JobState.PENDING, within_s=scene.lags.end_s)
    # Slurm's own: until the job is off its node it says another one.
    scene.wait_for("the time from which Slurm starts it", lambda _: begin_s() > scene.harness.now_s(), SOON_S)
    slurms_s = begin_s()
    scene.system.hold(job, "waits for its image")
    scene.system.release(job)

    # slurmd looks every 2 s, at most, whose start is so long ago that its prolog is to run again.
    assert begin_s() == slurms_s + 2


def test_users_own_hold_survives_ours(cluster: Cluster, scene: Scene) -> None:
    job = sbatch(cluster, "--hold", "-n1")
    scene.system.hold(job, "waits for its image")
    scene.system.release(job)
    scene.settle()
    found = scene.job(job)

    assert found is not None
    assert (found.state, found.is_held_by_us) == (JobState.HELD, False)


def test_nodes_that_a_user_requires_stay_required_when_we_lead_the_job_twice(
    cluster: Cluster, scene: Scene
) -> None:
    job = sbatch(cluster, "--hold", "-N2", "-n2", "-c4", "-w", "n2", "-x", "n4")
    scene.system.release(job, ("n1", "n2", "n3"))
    fresh = another_system(cluster)
    fresh.look()
    fresh.release(job, ("n2", "n3"))
    cluster.run("scontrol", "release", job)
    found = scene.wait_for_state(job, JobState.RUNNING, within_s=SOON_S)

    assert found is not None
    assert found.nodes == ("n2", "n3")


def test_wishes_of_a_user_are_back_when_the_job_is_led_no_more(cluster: Cluster, scene: Scene) -> None:
    job = sbatch(cluster, "--hold", "-N2", "-w", "n2", "-x", "n4")
    scene.system.release(job, ("n2", "n3"))
    scene.system.release(job)
    shown = cluster.run("scontrol", "-o", "show", "job", job)

    assert " ReqNodeList=n2 ExcNodeList=n4 " in shown


def test_submission_that_died_halfway_is_found_by_its_tag(cluster: Cluster, scene: Scene) -> None:
    """The service is killed after sbatch, before the record is where it belongs."""

    def dying(argv: Sequence[str], **options: object) -> Output:
        if argv[:2] == ("scontrol", "update"):
            raise KeyboardInterrupt
        return run_process(argv, **options)  # type: ignore[arg-type]

    submission = replace(scene.submission(metadata="image: http://h/a\ndigest: sha256:ab"), tag="t-0123")
    with pytest.raises(KeyboardInterrupt):
        another_system(cluster, dying).submit(submission)
    (job,) = another_system(cluster).look().jobs
    scene.system.note(job.key, "is on its way")
    after = scene.job(job.key)

    assert (job.tag, job.metadata, job.uid) == ("t-0123", submission.metadata, 5)
    assert (job.state, job.is_held_by_us) == (JobState.HELD, True)
    assert after == job
    assert "is on its way" in scene.harness.shown_to_user(job.key)


def test_submission_with_metadata_waits_for_its_image_and_runs_in_its_users_name(scene: Scene) -> None:
    job = scene.system.submit(scene.submission(metadata="image: http://h/a"))
    scene.settle()
    held = scene.job(job)
    scene.system.release(job)
    found = scene.wait_for_state(job, JobState.RUNNING, within_s=SOON_S)

    assert held is not None
    assert (held.state, held.is_held_by_us) == (JobState.HELD, True)
    assert found is not None
    assert (found.user, found.uid) == ("games", 5)


def test_job_that_imitates_the_service_is_its_users_own(cluster: Cluster, scene: Scene) -> None:
    text = 'outrider: x\n   AdminComment={"outrider":1,"held":true} {"outrider":1,"held":true,"tag":"stolen"}'
    job = sbatch(cluster, "--hold", "-n1", f"--job-name={text}", f"--comment=x {text}")
    found = scene.job(job)
    scene.system.ticket(job, "1.2.3")

    assert found is not None
    assert (found.is_held_by_us, found.tag, found.metadata) == (False, "", None)
    assert scene.harness.ticket_on_nodes(job) == "1.2.3"
    assert text in cluster.run("squeue", "-h", "-j", job, "-o", "%k")


def test_node_whose_daemon_dies_is_not_up_until_it_is_back(cluster: Cluster, scene: Scene) -> None:
    def state(sight: Sight) -> NodeState:
        return next(node.state for node in sight.nodes if node.name == "n4")

    scene.waits(20)
    cluster.kill_node("n4")
    gone = scene.wait_for("n4 is not up", lambda sight: state(sight) is not NodeState.UP, 120)
    cluster.start_node("n4")
    scene.wait_for("n4 is up", lambda sight: state(sight) is NodeState.UP, 120)

    assert [node.name for node in gone.nodes if node.state is NodeState.UP] == ["n1", "n2", "n3"]


def test_service_that_has_some_nodes_sees_no_others(cluster: Cluster, scene: Scene) -> None:
    every = [node.name for node in scene.system.look().nodes]

    sight = another_system(cluster, shown=every[:1]).look()

    assert len(every) > 1
    assert [node.name for node in sight.nodes] == every[:1]
