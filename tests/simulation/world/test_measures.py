"""What is said about an outcome, of outcomes made by hand."""

from __future__ import annotations

import pytest

from outrider.core.besteffort.suspension import Segment, SegmentShare
from outrider.core.images.pools import Stay
from outrider.core.model import Node, Placement, Reservation, Resources, Workspace
from outrider.sim.results.measures import disk_over_time, peak_disk_bytes, use_over_time, utilisation
from outrider.sim.world import FinishedRun, SimulationResult

NODES = tuple(Node(name=f"n{n}", capacity=Resources.of(cpus=4)) for n in range(2))


def outcome() -> SimulationResult:
    """A reservation of 2 x 2 cpus in [10, 20), and 3 x 1 cpu in [0, 5) and again in [15, 30)."""
    held = Workspace(name="held", instances=2, resources=Resources.of(cpus=2), duration_s=10, start_s=10)
    torn = Workspace(name="torn", instances=3, resources=Resources.of(cpus=1), duration_s=20)
    made = SimulationResult(NODES, workspaces={"held": held, "torn": torn})
    made.kept.append(
        Reservation(workspace=held, start_s=10, end_s=20, placements=(Placement(node="n0", instances=2),))
    )
    shares = (SegmentShare(0, 1, 1), SegmentShare(1, 2, 2))
    made.done.append(
        FinishedRun(
            workspace="torn",
            index=0,
            submit_s=0,
            placed_s=0,
            ready_s=0,
            segments=(Segment(0, 5, shares), Segment(15, 30, shares)),
        )
    )
    return made


def test_use_over_time_adds_what_reservations_and_segments_take() -> None:
    assert use_over_time(outcome(), "cpus") == [(0, 3), (5, 0), (10, 4), (15, 7), (20, 3), (30, 0)]


def test_utilisation_is_the_share_of_all_cpu_seconds_until_the_last_change() -> None:
    """3·5 + 4·10 + 3·15 of 8·30."""
    assert utilisation(outcome(), "cpus") == pytest.approx(100 / 240)


def test_a_resource_that_nobody_has_is_not_used() -> None:
    assert utilisation(outcome(), "gpus") == 0


def test_nothing_done_is_no_utilisation() -> None:
    assert utilisation(SimulationResult(NODES), "cpus") == 0


def stay(
    start_s: int, end_s: int, size: int = 10, *, key: str = "a", node: int = 0, own: bool = False
) -> Stay:
    return Stay(node, key, start_s, end_s, size, is_private=own)


def test_stays_of_one_image_in_a_pool_are_one_file() -> None:
    stays = [stay(0, 10), stay(5, 20), stay(20, 30), stay(40, 50)]

    assert disk_over_time(stays, 0) == [(0, 10), (30, 0), (40, 10), (50, 0)]


def test_a_stay_within_another_changes_nothing() -> None:
    assert disk_over_time([stay(0, 30), stay(5, 10), stay(12, 35)], 0) == [(0, 10), (35, 0)]


def test_private_copies_of_one_image_are_as_many_files() -> None:
    stays = [stay(0, 10, own=True), stay(5, 20, own=True), stay(5, 8)]

    assert disk_over_time(stays, 0) == [(0, 10), (5, 30), (8, 20), (10, 10), (20, 0)]


def test_different_images_and_nodes_are_told_apart() -> None:
    stays = [stay(1, 10), stay(5, 20, 7, key="b"), stay(0, 5, 99, node=1)]

    assert disk_over_time(stays, 0) == [(0, 0), (1, 10), (5, 17), (10, 7), (20, 0)]
    assert peak_disk_bytes(stays) == {0: 17, 1: 99}


def test_no_stays_are_no_bytes() -> None:
    assert disk_over_time([], 0) == [(0, 0)]
    assert peak_disk_bytes([]) == {}
