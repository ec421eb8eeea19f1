"""What suspending and resuming take: rates of their own, one file system for all, work that is done again."""

from __future__ import annotations

import pytest

from outrider.core.besteffort.board import BestEffortRun
from outrider.core.besteffort.suspension import BYTES_PER_MIB, SuspensionRules
from outrider.core.model import Node, Resources, Workspace
from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import ReservationPlan
from outrider.core.scheduler import Scheduler
from outrider.sim.setup import Setup

MEMORY_MIB = 20
WRITTEN_S = 20
"""Memory over a rate of 1 MiB/s."""


def wanted(name: str, duration_s: int, start_s: int | None = None, *, instances: int = 1) -> Workspace:
    return Workspace(
        name=name,
        instances=instances,
        resources=Resources.of(cpus=1, memory_mib=MEMORY_MIB),
        duration_s=duration_s,
        start_s=start_s,
    )


def running(rules: SuspensionRules, count: int = 1) -> tuple[Scheduler, list[BestEffortRun]]:
    """A run of 200 s on each of so many nodes, since 0 s."""
    capacity = Resources.of(cpus=1, memory_mib=MEMORY_MIB)
    nodes = tuple(Node(name=f"n{number}", capacity=capacity) for number in range(count))
    scheduler = Setup(has_images=False, suspension=rules).scheduler(nodes)
    for number in range(count):
        assert scheduler.submit(wanted(f"run-{number}", 200))
    runs = scheduler.schedule(0)
    for run in runs:
        scheduler.queue.begin(run, 0)
    return scheduler, runs


@pytest.mark.parametrize(
    ("changes", "resumed_s"),
    [
        ({}, WRITTEN_S),
        ({"read_bytes_per_s": 2 * BYTES_PER_MIB}, WRITTEN_S // 2),
        ({"read_bytes_per_s": BYTES_PER_MIB // 2}, 2 * WRITTEN_S),
        ({"restart_s": 7}, WRITTEN_S + 7),
        ({"read_bytes_per_s": 2 * BYTES_PER_MIB, "restart_s": 7, "is_serialised": False}, WRITTEN_S // 2 + 7),
    ],
)
def test_a_run_is_resumed_at_the_rate_of_reading(changes: dict[str, int], resumed_s: int) -> None:
    scheduler, [run] = running(SuspensionRules(disk_bytes_per_s=BYTES_PER_MIB, **changes))  # type: ignore[arg-type]

    scheduler.reserve(wanted("lease", 40, 100), 10)

    first, second = run.segments
    assert (first.end_s, first.suspend_s, second.start_s, second.resume_s) == (100, WRITTEN_S, 140, resumed_s)
    assert second.end_s == 140 + resumed_s + 200 - (100 - WRITTEN_S)


@pytest.mark.parametrize(("read_mib", "read_s"), [(None, WRITTEN_S), (2, WRITTEN_S // 2)])
def test_each_suspension_takes_its_own_seconds_beside_writing(read_mib: int | None, read_s: int) -> None:
    read = None if read_mib is None else read_mib * BYTES_PER_MIB
    rules = SuspensionRules(disk_bytes_per_s=BYTES_PER_MIB, read_bytes_per_s=read, saving_s=3, restart_s=2)
    scheduler, [run] = running(rules)

    scheduler.reserve(wanted("lease", 40, 100), 10)

    first, second = run.segments
    assert (first.end_s, first.suspend_s) == (100, WRITTEN_S + 3)
    # What was not written is not read again.
    assert (second.start_s, second.resume_s) == (140, read_s + 2)
    assert second.end_s == 140 + read_s + 2 + 200 - (100 - WRITTEN_S - 3)


def test_who_saves_himself_needs_no_notice_and_does_again_what_was_not_saved() -> None:
    scheduler, [run] = running(SuspensionRules(restart_s=30))

    scheduler.reserve(wanted("lease", 40, 100), 100)

    spans = [(each.start_s, each.end_s, each.resume_s, each.suspend_s) for each in run.segments]
    assert spans == [(0, 100, 0, 0), (140, 140 + 30 + 100, 30, 0)]


def test_one_file_system_is_written_by_one_node_after_the_other() -> None:
    own, _ = running(SuspensionRules(disk_bytes_per_s=BYTES_PER_MIB), 2)
    shared, runs = running(SuspensionRules(disk_bytes_per_s=BYTES_PER_MIB, is_shared=True), 2)
    soon, later = 50 + WRITTEN_S, 50 + 2 * WRITTEN_S

    assert isinstance(own.reserve(wanted("lease", 40, soon, instances=2), 50).admission, ReservationPlan)
    assert isinstance(shared.reserve(wanted("lease", 40, later - 1, instances=2), 50).admission, Rejected)
    assert isinstance(shared.reserve(wanted("lease", 40, later, instances=2), 50).admission, ReservationPlan)

    end_s = later + 40
    written = sorted(each for run in runs for each in run.segments[0].disk)
    read = sorted(each for run in runs for each in run.segments[1].disk)
    assert written == [(0, 50, WRITTEN_S), (0, 50 + WRITTEN_S, WRITTEN_S)]
    assert read == [(0, end_s, WRITTEN_S), (0, end_s + WRITTEN_S, WRITTEN_S)]


def test_a_gang_writes_all_its_memory_to_one_file_system() -> None:
    rules = SuspensionRules(disk_bytes_per_s=BYTES_PER_MIB, is_shared=True)
    capacity = Resources.of(cpus=1, memory_mib=MEMORY_MIB)
    nodes = tuple(Node(name=f"n{number}", capacity=capacity) for number in range(3))
    scheduler = Setup(has_images=False, suspension=rules).scheduler(nodes)
    scheduler.submit(wanted("gang", 200, instances=3))
    [gang] = scheduler.schedule(0)
    scheduler.queue.begin(gang, 0)

    scheduler.reserve(wanted("lease", 40, 100, instances=3), 0)

    first, second = gang.segments
    assert (first.end_s, first.suspend_s, second.resume_s) == (100, 3 * WRITTEN_S, 3 * WRITTEN_S)
