"""Changes that end after any of their commands: slurmctld is killed, or the service.

slurmctld comes back with what it had saved before, so that the rest of the commands is about a job that it
remembers otherwise. The service orders again what two looks do not show, unless by these somebody else holds
the job: so that must never be.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from outrider.rms.base import JobState, RmsError, RmsJob
from outrider.rms.commands import Output, run_process
from outrider.rms.slurm import SlurmSystem
from tests.contract.harness import Scene
from tests.contract.slurm_cluster import Cluster
from tests.daemons.slurm.adapter.test_slurm_live import another_system, cluster, sbatch, scene

__all__ = ["cluster", "scene"]
CHANGES = ("create", "update", "delete", "release", "hold", "uhold", "requeuehold")
TICKET = "1.2.3"
ORDERS = 4
"""So often an order is given again."""
HOUR_S = 3600
ENDED_S = 120
Change = Callable[[SlurmSystem, str], None]
Prepared = Callable[[Cluster, Scene], str]


def pending(cluster: Cluster, scene: Scene) -> str:
    return sbatch(cluster, "-n1")


def held(cluster: Cluster, scene: Scene) -> str:
    job = pending(cluster, scene)
    scene.job(job)
    scene.system.hold(job, "waits for its image")
    return job


def shown(cluster: Cluster, scene: Scene) -> str:
    """Held, with the start that is expected."""
    job = held(cluster, scene)
    scene.system.look()
    scene.system.note(job, "outrider: on its way", scene.harness.now_s() + HOUR_S)
    return job


def running(cluster: Cluster, scene: Scene) -> str:
    cluster.run("scontrol", "update", "PartitionName=main", "State=UP")
    job = sbatch(cluster, "-n1", "--requeue")
    scene.wait_for_state(job, JobState.RUNNING, within_s=40)
    cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")
    return job


def requeued(cluster: Cluster, scene: Scene) -> str:
    job = running(cluster, scene)
    requeue(scene.system, job)  # type: ignore[arg-type]
    scene.wait_for("it waits", lambda sight: seen(sight.jobs, job).state is JobState.HELD, 60)
    return job


def suspended(cluster: Cluster, scene: Scene) -> str:
    job = running(cluster, scene)
    scene.system.suspend(job)
    scene.wait_for("it waits", lambda sight: seen(sight.jobs, job).state is JobState.SUSPENDED, 60)
    return job


def seen(jobs: Sequence[RmsJob], key: str) -> RmsJob:
    return next(job for job in jobs if job.key == key)


def hold(system: SlurmSystem, job: str) -> None:
    system.hold(job, "waits for its image")


def note(system: SlurmSystem, job: str) -> None:
    system.note(job, "outrider: on its way", None)


def release(system: SlurmSystem, job: str) -> None:
    system.release(job, ("n2",), TICKET)


def requeue(system: SlurmSystem, job: str) -> None:
    start_s = seen(system.look().jobs, job).start_s
    system.requeue(job, start_s or 0, "makes way")


def suspend(system: SlurmSystem, job: str) -> None:
    system.suspend(job)


def resume(system: SlurmSystem, job: str) -> None:
    system.resume(job)


def is_held(job: RmsJob) -> bool:
    return job.state is JobState.HELD and job.is_held_by_us


def may_start(job: RmsJob) -> bool:
    return job.state is JobState.PENDING


def is_suspended(job: RmsJob) -> bool:
    return job.state is JobState.SUSPENDED


CASES: dict[str, tuple[Prepared, Change, Callable[[RmsJob], bool]]] = {
    "hold": (pending, hold, is_held),
    "note": (held, note, is_held),
    "note again": (shown, note, is_held),
    "release": (held, release, may_start),
    "release of one that shows its start": (shown, release, may_start),
    "release of one that made way": (requeued, release, may_start),
    "requeue": (running, requeue, is_held),
    "suspend": (running, suspend, is_suspended),
    "resume": (suspended, resume, may_start),
}
SERVICE, SLURMCTLD = "the service", "slurmctld"
SHORT = {
    SERVICE: ["release of one that made way"],
    SLURMCTLD: ["release of one that shows its start", "release of one that made way", "requeue"],
}


class Ending:
    """Runs commands. At the change of that number the service dies, or after it slurmctld, which has then
    forgotten all since `keep`."""

    def __init__(self, cluster: Cluster, change: int, who: str) -> None:
        self._cluster = cluster
        self.left = change
        self._who = who
        self._state = cluster.folder / "state"
        self._kept = cluster.folder / "kept"

    def keep(self) -> None:
        self._cluster.stop_controller()
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self._state, self._kept)
        self._cluster.start_controller()
        self._cluster.wait_until_answering()

    def __call__(self, argv: Sequence[str], *more: Any, **others: Any) -> Output:
        is_last = argv[0] == "scontrol" and argv[1] in CHANGES and self._is_last()
        if is_last and self._who == SERVICE:
            raise KeyboardInterrupt
        found = run_process(argv, *more, **others)
        if is_last:
            self.forget()
        return found

    def forget(self) -> None:
        self._cluster.kill_controller()
        shutil.rmtree(self._state)
        shutil.copytree(self._kept, self._state)
        self._cluster.start_controller()
        self._cluster.wait_until_answering()

    def _is_last(self) -> bool:
        self.left -= 1
        return self.left == 0


def has_so_many(number: int, case: str, who: str, cluster: Cluster, scene: Scene) -> bool:
    """Whether it took so many changes. If so, one of the two was killed at that one."""
    prepared, change, is_done = CASES[case]
    job = prepared(cluster, scene)
    scene.job(job)
    ending = Ending(cluster, number, who)
    system = another_system(cluster, ending)
    if who == SLURMCTLD:
        ending.keep()
    system.look()
    with suppress(RmsError, KeyboardInterrupt):
        change(system, job)
    if who == SERVICE:
        system = another_system(cluster)
    for _ in range(ORDERS):
        found = seen(system.look().jobs, job)
        is_anothers = found.state is JobState.HELD and not found.is_held_by_us
        assert not is_anothers, (number, cluster.run("scontrol", "show", "job", job))
        if is_done(found):
            break
        with suppress(RmsError):
            change(system, job)
        cluster.clock.sleep(1)
    # What slurmctld believes to be ending still is ended once more, after a while.
    scene.wait_for(f"{case}, {number}", lambda sight: is_done(seen(sight.jobs, job)), ENDED_S)
    scene.system.cancel(job, "enough")
    return ending.left <= 0


@pytest.mark.parametrize(
    ("case", "who"),
    [
        pytest.param(case, who, marks=[] if case in SHORT[who] else pytest.mark.long)
        for case in CASES
        for who in SHORT
    ],
)
def test_change_that_ends_halfway_is_whole_when_it_is_ordered_again(
    case: str, who: str, cluster: Cluster, scene: Scene
) -> None:
    with scene.harness.starting_nothing():
        assert next(each for each in count(1) if not has_so_many(each, case, who, cluster, scene)) > 1


@pytest.mark.parametrize("prepared", [requeued, shown])
def test_job_whose_release_was_forgotten_stays_ours_whatever_is_said_of_it_before_it_is_seen(
    prepared: Prepared, cluster: Cluster, scene: Scene
) -> None:
    with scene.harness.starting_nothing():
        job = prepared(cluster, scene)
        ending = Ending(cluster, 0, SLURMCTLD)
        system = another_system(cluster, ending)
        ending.keep()
        system.look()
        release(system, job)
        ending.forget()
        with suppress(RmsError):
            system.note(job, "outrider: its image is there", None)

        assert is_held(seen(system.look().jobs, job)), cluster.run("scontrol", "show", "job", job)
        release(system, job)
        assert may_start(seen(system.look().jobs, job))
        system.note(job, "outrider: its image is there", None)
        scene.system.cancel(job, "enough")


def has_taken_back(number: int, who: str, cluster: Cluster, scene: Scene) -> bool:
    """A reservation with a job that is managed and one that is not. Whether it took so many changes."""
    name = f"vw-{number}"
    scene.system.reserve(scene.reservation(name, scene.nodes[:2], scene.harness.now_s() + HOUR_S))
    theirs, ours = sbatch(cluster, "-n1", f"--reservation={name}"), held(cluster, scene)
    scene.system.bind(ours, name)
    scene.system.look()
    scene.system.release(ours)
    ending = Ending(cluster, number, who)
    system = another_system(cluster, ending)
    if who == SLURMCTLD:
        ending.keep()
    system.look()
    with suppress(RmsError, KeyboardInterrupt):
        system.unreserve(name)
    if who == SERVICE:
        system = another_system(cluster)
    for _ in range(ORDERS):
        sight = system.look()
        if not sight.reservations:
            break
        with suppress(RmsError):
            system.unreserve(name)
    assert (number, sight.reservations) == (number, ())
    assert is_held(seen(sight.jobs, ours)), number
    # Its user alone knows of what use it is without the reservation's image.
    state = seen(sight.jobs, theirs)
    assert (number, state.state, state.is_held_by_us) == (number, JobState.HELD, False)
    for job in (theirs, ours):
        scene.system.cancel(job, "enough")
    return ending.left <= 0


@pytest.mark.parametrize("who", [SERVICE, SLURMCTLD])
def test_jobs_of_a_reservation_that_is_taken_back_halfway_are_held(
    who: str, cluster: Cluster, scene: Scene
) -> None:
    with scene.harness.starting_nothing():
        assert next(each for each in count(1) if not has_taken_back(each, who, cluster, scene)) > 1
