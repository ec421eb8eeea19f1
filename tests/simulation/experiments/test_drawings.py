"""The thesis' drawings of its algorithms: what it says of each, in what the scheduler did.

Instants are worked out by hand from the workloads: 750 MB take 60 s of 12.5 MB/s, 600 MB 48 s, 5 GB 400 s.
"""

from __future__ import annotations

import pytest

from outrider.sim.drawings.examples import drawing
from outrider.sim.drawings.values import BoxKind, LaneDrawing, LanePanel

HOUR_S = 3600


def panels(number: str) -> tuple[LanePanel, ...]:
    return drawing(number).panels


def test_availability_is_at_fixed_times_at_an_event_when_there_is_room_or_at_once() -> None:
    found = drawing("3.1")
    (panel,) = found.panels
    given = {box.lane: (box.start_s, box.end_s) for box in panel.boxes if box.kind is not BoxKind.AGREEMENT}

    # "from 2pm to 4pm", agreed at noon.
    assert given["closed"] == (14 * HOUR_S, 16 * HOUR_S)
    # "availability must be guaranteed at exactly that time": an event at 13:40 in a window from 13 to 15.
    assert given["open"] == (13 * HOUR_S + 2400, 14 * HOUR_S + 2400)
    (window,) = [box for box in panel.boxes if box.lane == "open" and box.kind is BoxKind.AGREEMENT]
    assert (window.start_s, window.end_s) == (13 * HOUR_S, 15 * HOUR_S)
    # "queueing requests if necessary": asked for at 12:20, all nodes are taken until 12:40.
    assert given["best effort"][0] == 12 * HOUR_S + 2400
    # "a request is rejected if resources cannot be provisioned immediately".
    assert given["immediate"] == (14 * HOUR_S + 1800, 15 * HOUR_S)
    assert "immediate, refused" not in given
    assert found.notes[0].startswith("immediate, refused: 0 of 1 instances fit")


def test_a_virtual_resource_is_512_mb_of_4_gb_for_a_time() -> None:
    (panel,) = panels("5.1")
    memory, cpus = panel.lanes
    boxes = {box.lane: box for box in panel.boxes}

    assert (memory.units, boxes[memory.name].high - boxes[memory.name].low) == (4096, 512)
    assert (cpus.units, boxes[cpus.name].high) == (2, 1)
    assert {(box.start_s, box.end_s) for box in panel.boxes} == {(14 * HOUR_S, 16 * HOUR_S)}


def test_scheduled_overhead_leaves_all_512_mb_from_2_to_4_pm() -> None:
    taken, apart = panels("5.2")

    def box(panel: LanePanel, name: str) -> tuple[int, int, int]:
        (found,) = [each for each in panel.boxes if each.name == name]
        return found.start_s, found.end_s, found.high - found.low

    assert box(taken, "image")[:2] == (14 * HOUR_S, 14 * HOUR_S + 400)
    assert box(taken, "workspace") == (14 * HOUR_S + 400, 16 * HOUR_S, 512 - 64)
    assert box(apart, "image")[:2] == (14 * HOUR_S - 400, 14 * HOUR_S)
    assert box(apart, "workspace") == (14 * HOUR_S, 16 * HOUR_S, 512)
    assert box(apart, "monitor")[2] == box(taken, "monitor")[2] == 64


def in_minutes(panel: LanePanel) -> dict[str, list[tuple[int, int]]]:
    """When each best-effort run had a node."""
    found: dict[str, list[tuple[int, int]]] = {}
    for box in panel.boxes:
        if box.kind is BoxKind.BEST_EFFORT:
            found.setdefault(box.name, []).append((box.start_s // 60, box.end_s // 60))
    return found


def test_nodes_drain_are_backfilled_or_are_used_until_the_reservation_begins() -> None:
    draining, backfilling, suspending = panels("6.1")
    first = {"b1": [(0, 50)], "b2": [(0, 40)], "b3": [(0, 30)], "b4": [(0, 20)]}

    # b5 takes 45 minutes: from 20 on it would not end before the reservation, and nobody overtakes it.
    assert in_minutes(draining) == first | {
        "b5": [(100, 145)], "b6": [(100, 125)], "b7": [(100, 115)], "b8": [(100, 110)],
    }  # fmt: skip
    # "traversing the queue in search of VMs that can be scheduled before the advance reservation".
    assert in_minutes(backfilling) == first | {
        "b6": [(20, 45)], "b7": [(30, 45)], "b8": [(40, 50)], "b5": [(100, 145)],
    }  # fmt: skip
    # "suspend best-effort requests before an advance reservation, and resume them as soon as" it ends.
    assert in_minutes(suspending) == first | {
        "b5": [(20, 60), (100, 105)], "b6": [(30, 55)], "b7": [(40, 55)], "b8": [(50, 60)],
    }  # fmt: skip
    for panel in (draining, backfilling, suspending):
        assert [(box.start_s, box.end_s) for box in panel.boxes if box.kind is BoxKind.RESERVATION] == [
            (3600, 6000)
        ] * 4


def test_edf_sends_at_once_and_edf_jit_as_late_as_deadlines_and_each_other_allow() -> None:
    edf, jit = panels("6.2")

    # Deadlines: A 120, C 300, D 320, B 400. Algorithm 2: one after the other, from the first start on.
    assert edf.spans("link") == {"A": [(0, 60)], "C": [(60, 120)], "D": [(120, 180)], "B": [(180, 240)]}
    # Algorithm 3: from the last one, the earlier of its deadline and the next one's start.
    assert jit.spans("link") == {"B": [(340, 400)], "D": [(260, 320)], "C": [(200, 260)], "A": [(60, 120)]}
    # What would be due at 90 is asked for at 40: 60 s of the link do not end by then.
    assert "E" not in edf.spans("link")
    assert drawing("6.2").notes == (
        "E: image E (750 MB) cannot reach n5 by 90: it needs 60 s of a link that has less left before then",
    )


def test_a_transfer_is_shared_in_the_place_of_a_second_one() -> None:
    each, joined, reservations = panels("6.3")

    # "it would start at t_start + t_A"; "VM2 can start earlier".
    assert each.spans("n1") == {"VM1": [(48, 348)], "VM2": [(96, 396)]}
    assert joined.spans("n1") == {"VM1": [(48, 348)], "VM2": [(48, 348)]}
    assert [len(panel.spans("link")["A to n1"]) for panel in (each, joined, reservations)] == [2, 1, 1]
    # "the image's timeout in the pool will be [...] max(t1_end, t2_end)".
    assert reservations.spans("n1") == {"VW1": [(300, 600)], "VW2": [(800, 1100)]}
    assert reservations.spans("disk of n1") == {"A": [(252, 1100)]}


def test_naive_staging_begins_at_the_start_just_before_it_or_at_once() -> None:
    found = {panel.title: panel.spans("link")["image"] for panel in panels("8.1")}
    got = {panel.title: panel.spans("workspace")["workspace"] for panel in panels("8.1")}

    assert found == {"job-style": [(300, 348)], "just in time": [(252, 300)], "aggressive": [(0, 48)]}
    assert got == {"job-style": [(348, 600)], "just in time": [(300, 600)], "aggressive": [(300, 600)]}


@pytest.mark.parametrize("number", ["3.1", "5.1", "5.2", "6.1", "6.2", "6.3", "8.1"])
def test_every_box_and_mark_is_in_a_lane_of_its_panel(number: str) -> None:
    found: LaneDrawing = drawing(number)

    for panel in found.panels:
        units = {lane.name: lane.units for lane in panel.lanes}
        assert all(0 <= box.low < box.high <= units[box.lane] for box in panel.boxes)
        assert all(mark.lane in units for mark in panel.marks)
