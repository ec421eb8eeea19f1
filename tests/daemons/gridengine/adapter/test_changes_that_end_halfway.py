"""The service dies at any of the commands for one change: ordered again, it is whole.

In between the job may be nobody else's by what is shown of it: such a one would never be let go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from outrider.rms.base import JobState, RmsError, RmsJob
from outrider.rms.commands import Output
from outrider.rms.gridengine import GridEngine
from tests.contract.gridengine_harness import HostRunner, gridengine, gridengine_of, the_cluster
from tests.contract.harness import Scene, seen

CHANGES = ("qalter", "qmod", "qrls", "qhold")
ORDERS = 4
"""So often an order is given again."""
SOON_S = 600


@pytest.fixture
def scene() -> Iterator[Scene]:
    with gridengine() as harness:
        yield Scene(harness)


def held(scene: Scene) -> str:
    return scene.waiting_job()


def running(scene: Scene) -> str:
    return scene.running_job()


def suspended(scene: Scene) -> str:
    job = scene.running_job()
    scene.suspend(job)
    return job


def release(system: GridEngine, job: str) -> None:
    system.release(job, ("n2",), "1.2.3")


def requeue(system: GridEngine, job: str) -> None:
    found = seen(system.look(), job)
    system.requeue(job, (found and found.start_s) or 0, "makes way")


def is_held(job: RmsJob) -> bool:
    return job.state is JobState.HELD and job.is_held_by_us


def may_start(job: RmsJob) -> bool:
    return job.state in (JobState.PENDING, JobState.STARTING, JobState.RUNNING)


def is_suspended(job: RmsJob) -> bool:
    return job.state is JobState.SUSPENDED


CASES: dict[
    str, tuple[Callable[[Scene], str], Callable[[GridEngine, str], None], Callable[[RmsJob], bool]]
] = {
    "release": (held, release, may_start),
    "requeue": (running, requeue, is_held),
    "suspend": (running, GridEngine.suspend, is_suspended),
    "resume": (suspended, GridEngine.resume, may_start),
}


class Dying:
    """Runs commands until the change of that number."""

    def __init__(self, change: int) -> None:
        self.left = change
        self._runner = HostRunner(the_cluster())

    def __call__(self, argv: Sequence[str], **more: Any) -> Output:
        self.left -= argv[0] in CHANGES
        if argv[0] in CHANGES and self.left == 0:
            raise KeyboardInterrupt
        return self._runner(argv, **more)


def has_so_many(number: int, case: str, scene: Scene) -> bool:
    """Whether it took so many changes. If so, the service died at that one."""
    prepared, change, is_done = CASES[case]
    job, dying = prepared(scene), Dying(number)
    system = gridengine_of(the_cluster(), dying)
    system.look()
    with suppress(RmsError, KeyboardInterrupt):
        change(system, job)
    system = gridengine_of(the_cluster())
    for _ in range(ORDERS):
        found = seen(system.look(), job)
        assert found is not None
        assert found.state is not JobState.HELD or found.is_held_by_us, (number, found)
        if is_done(found):
            break
        with suppress(RmsError):
            change(system, job)
        scene.harness.pass_until_next_look()
    scene.wait_for(f"{case}, {number}", lambda sight: _is_so(seen(sight, job), is_done), SOON_S)
    scene.system.cancel(job, "enough")
    return dying.left <= 0


def _is_so(job: RmsJob | None, is_done: Callable[[RmsJob], bool]) -> bool:
    return job is not None and is_done(job)


@pytest.mark.parametrize("case", CASES)
def test_change_at_which_the_service_dies_is_whole_when_it_is_ordered_again(case: str, scene: Scene) -> None:
    assert next(each for each in count(1) if not has_so_many(each, case, scene)) > 1
