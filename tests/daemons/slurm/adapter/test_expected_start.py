"""The start that squeue shows for a held job: true while it is known, none otherwise, and never a start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from outrider.rms.base import JobState, RmsJob
from outrider.rms.commands import Output, run_process
from tests.contract.harness import Scene
from tests.contract.slurm_cluster import Cluster
from tests.daemons.slurm.adapter.test_slurm_live import SOON_S, another_system, cluster, sbatch, scene

__all__ = ["cluster", "scene"]
HOUR_S = 3600


def shown_start(cluster: Cluster, job: str) -> str:
    """As users see it."""
    return cluster.run("env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-o%S", f"--jobs={job}").strip()


def job_of(scene: Scene, key: str) -> RmsJob:
    found = scene.job(key)
    assert found is not None
    return found


def held(cluster: Cluster, scene: Scene, *options: str) -> str:
    job = sbatch(cluster, "-n1", "--begin=now+1hour", *options)
    scene.job(job)
    scene.system.hold(job, "waits for its image")
    return job


def held_unstarted(cluster: Cluster, scene: Scene) -> str:
    """One that could have started at once."""
    with scene.harness.starting_nothing():
        job = sbatch(cluster, "-n1")
        scene.job(job)
        scene.system.hold(job, "waits for its image")
    return job


def passes(cluster: Cluster, scene: Scene) -> None:
    """Slurm has had time to start what it would."""
    other = sbatch(cluster, "-n1", "-c1")
    scene.wait_for_state(other, JobState.RUNNING, within_s=SOON_S)
    scene.system.cancel(other, "enough")


def test_held_job_shows_its_expected_start_and_the_next_one(cluster: Cluster, scene: Scene) -> None:
    job = held(cluster, scene)
    at_s = scene.harness.now_s() + 3 * HOUR_S
    scene.system.note(job, "outrider: image a.qcow2 is on its way", at_s)
    first = shown_start(cluster, job)
    scene.system.look()
    scene.system.note(job, "outrider: image a.qcow2 is on its way", at_s + HOUR_S)

    assert first == str(at_s)
    assert shown_start(cluster, job) == str(at_s + HOUR_S)
    assert job_of(scene, job).is_held_by_us


def test_start_that_nobody_knows_is_not_shown(cluster: Cluster, scene: Scene) -> None:
    job = held(cluster, scene)
    scene.system.note(job, "outrider: image a.qcow2 waits")

    assert shown_start(cluster, job) == "N/A"
    assert job_of(scene, job).state is JobState.HELD


def test_expected_start_that_passes_starts_nothing(cluster: Cluster, scene: Scene) -> None:
    """As when the service is dead: nobody renews it, and nobody holds the job."""
    job = held_unstarted(cluster, scene)
    scene.system.note(job, "outrider: image a.qcow2 is on its way", scene.harness.now_s() + 2)
    scene.wait_for("it has passed", lambda _: shown_start(cluster, job) == "N/A", SOON_S)
    passes(cluster, scene)

    assert job_of(scene, job).state is JobState.HELD
    assert job_of(scene, job).is_held_by_us


def test_start_before_the_users_own_begin_is_not_promised(cluster: Cluster, scene: Scene) -> None:
    job = held(cluster, scene)
    begin_s = scene.harness.now_s() + HOUR_S
    scene.system.note(job, "outrider: image a.qcow2 is on its way", begin_s - HOUR_S // 2)
    scene.system.look()
    scene.system.release(job)

    assert abs(int(shown_start(cluster, job)) - begin_s) < 60


def test_released_job_runs_and_is_its_users_to_hold_again(cluster: Cluster, scene: Scene) -> None:
    job = held_unstarted(cluster, scene)
    scene.system.look()
    scene.system.note(job, "outrider: image a.qcow2 is on its way", scene.harness.now_s() + HOUR_S)
    scene.system.look()
    scene.system.release(job, scene.nodes[2:3], "1.2.3")
    scene.wait_for_state(job, JobState.RUNNING, within_s=SOON_S)

    assert job_of(scene, job).nodes == scene.nodes[2:3]
    assert '"stopped"' not in cluster.run("scontrol", "show", "job", job)
    assert scene.harness.ticket_on_nodes(job) == "1.2.3"


def test_released_job_has_its_place_before_those_that_came_later(cluster: Cluster, scene: Scene) -> None:
    """Whatever Slurm gives one that is released: the last place."""
    with scene.harness.starting_nothing():
        jobs = [sbatch(cluster, "-n1") for _ in range(3)]
        for job in jobs[:2]:
            scene.job(job)
            scene.system.hold(job, "waits for its image")
            scene.system.note(job, "outrider: image a.qcow2 is on its way", scene.harness.now_s() + HOUR_S)
        for job in reversed(jobs[:2]):
            scene.system.look()
            scene.system.release(job)
        shown = cluster.run("squeue", "-h", "-o%A %Q", f"--jobs={','.join(jobs)}").splitlines()
    places = {job: int(place) for job, place in (line.split() for line in shown)}

    assert sorted(jobs, key=lambda job: places[job], reverse=True) == jobs


def test_release_that_dies_halfway_leaves_the_job_held_by_us(cluster: Cluster, scene: Scene) -> None:
    job = held_unstarted(cluster, scene)
    scene.system.note(job, "outrider: image a.qcow2 is on its way", scene.harness.now_s() + HOUR_S)

    def dying(argv: Sequence[str], *more: Any, **others: Any) -> Output:
        if "release" in argv:
            raise KeyboardInterrupt
        return run_process(argv, *more, **others)

    other = another_system(cluster, dying)
    other.look()
    with pytest.raises(KeyboardInterrupt):
        other.release(job)
    passes(cluster, scene)
    after = job_of(scene, job)
    scene.system.release(job)
    scene.wait_for_state(job, JobState.RUNNING, within_s=SOON_S)

    assert (after.state, after.is_held_by_us) == (JobState.HELD, True)


def test_job_that_its_user_holds_stays_the_users(cluster: Cluster, scene: Scene) -> None:
    job = sbatch(cluster, "-n1", "--hold")
    scene.job(job)
    scene.system.hold(job, "waits for its image")
    scene.system.look()
    scene.system.note(job, "outrider: image a.qcow2 is on its way", scene.harness.now_s() + HOUR_S)
    scene.system.look()
    scene.system.release(job)
    passes(cluster, scene)

    assert job_of(scene, job).state is JobState.HELD
    cluster.run("scontrol", "release", job)
    scene.wait_for_state(job, JobState.RUNNING, within_s=SOON_S)
