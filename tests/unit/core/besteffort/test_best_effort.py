"""Best effort around reservations: cases in which the scheduler once went wrong."""

from __future__ import annotations

import pytest

from outrider.core.besteffort.suspension import BYTES_PER_MIB, SuspensionRules
from outrider.core.model import Node, Resources, Workspace
from outrider.core.reservations.book import ReservationPlan
from outrider.core.scheduler import Decided, Scheduler
from tests.unit.core.sites import Site

NODE = Node(name="n0", capacity=Resources.of(cpus=2, memory_mib=9))


def workspace(name: str, duration_s: int, start_s: int | None = None, cpus: int = 2) -> Workspace:
    resources = Resources.of(cpus=cpus, memory_mib=3)
    return Workspace(
        name=name, instances=1, resources=resources, duration_s=duration_s, start_s=start_s, is_parallel=False
    )


def reserve(
    scheduler: Scheduler, name: str, start_s: int, duration_s: int, now_s: int, cpus: int = 2
) -> Decided:
    answer = scheduler.reserve(workspace(name, duration_s, start_s, cpus), now_s)
    assert isinstance(answer.admission, ReservationPlan)
    return answer


def running(scheduler: Scheduler, duration_s: int) -> list[tuple[int, int, int, int]]:
    """Submit one workspace at 0 and let it begin."""
    assert scheduler.submit(workspace("w", duration_s))
    (run,) = scheduler.schedule(0)
    scheduler.queue.begin(run, 0)
    return segments(scheduler)


def segments(scheduler: Scheduler) -> list[tuple[int, int, int, int]]:
    (run,) = scheduler.board.runs.values()
    return [(each.start_s, each.end_s, each.resume_s, each.suspend_s) for each in run.segments]


@pytest.mark.parametrize("disk_bytes_per_s", [None, BYTES_PER_MIB])
def test_a_short_workspace_is_placed_though_a_longer_one_before_it_was_not(
    disk_bytes_per_s: int | None,
) -> None:
    """Neither may be cut into less than 60 s, but the short one ends before the reservation."""
    rules = SuspensionRules(least_run_s=60, disk_bytes_per_s=disk_bytes_per_s)
    scheduler = Site(nodes=(NODE,), suspension=rules).scheduler()
    reserve(scheduler, "ar", 30, 100, 0)
    for name, duration_s in (("long", 100), ("short", 20)):
        scheduler.submit(workspace(name, duration_s))

    placed = scheduler.schedule(0)

    assert [(run.name, run.start_s, run.end_s) for run in placed] == [("short/0", 0, 20)]


def test_a_run_that_moves_while_it_is_resumed_is_resumed_from_the_beginning() -> None:
    scheduler = Site(nodes=(NODE,), suspension=SuspensionRules(disk_bytes_per_s=BYTES_PER_MIB)).scheduler()
    running(scheduler, 20)
    reserve(scheduler, "first", 10, 5, 0)
    assert segments(scheduler) == [(0, 10, 0, 3), (15, 31, 3, 0)]

    reserve(scheduler, "second", 25, 5, 16)

    (run,) = scheduler.board.runs.values()
    assert sum(each.useful_s for each in run.segments) == 20
    assert [each.resume_s >= 3 for each in run.segments if each.useful_s] == [False, True, True]


def test_the_seconds_of_writing_memory_are_not_work_when_a_run_must_move_meanwhile() -> None:
    scheduler = Site(nodes=(NODE,), suspension=SuspensionRules(disk_bytes_per_s=BYTES_PER_MIB)).scheduler()
    running(scheduler, 20)
    reserve(scheduler, "first", 10, 5, 0)

    reserve(scheduler, "second", 15, 5, 9)

    (run,) = scheduler.board.runs.values()
    assert sum(each.useful_s for each in run.segments) == 20
    assert sum(each.useful_s for each in run.segments if each.end_s <= 10) == 7
