"""The story of machines that make way: the simulator's word on it, and what is found wrong with one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.machine_story.live import StepCosts, Told, ToldJob, ToldReservation
from bench.machine_story.prediction import Prediction, predicted
from bench.machine_story.report import far, faults, rows, table
from bench.machine_story.systems import AccountedRun
from bench.machine_story.watch import JobTimes

CAME_BACK = ("REQUEUED", "COMPLETED")
COSTS = StepCosts(boot_s=8.0, count_s=2.0, leave_s=4.0, order_s=1.0, saving_s=0.5, resuming_s=6.0)
LAST, MEMORY_MIB = 40, 144
# Asked for at 20 for 60, for 20 s. To go takes 20 + 5 s, and 400 MiB with QEMU's own, at 200 MB/s 3 s.
ASKED_S, START_S, END_S = 1020.0, 1060, 1080
# To be told takes the machine a second of that, in which it works.
TOLD_S = 60 - 28 + 1
# A boot of 8 s, 39 numbers, 4 s to leave; and those that go have done 33 s of it, less when they began.
ALONE_S = 8 + 39 * 2 + 4


def machine(number: int, *, goes: bool) -> ToldJob:
    began_s = 1000.0 + number
    times = JobTimes(began_s=began_s, over_s=began_s + ALONE_S, counts=[(1010.0, 1), (1012.0, 2)])
    runs = [AccountedRun(state="COMPLETED", start_s=1000, end_s=1000 + ALONE_S)]
    if goes:
        times.saving_s, times.saved_s, times.continued_s = 1000.0 + TOLD_S, 1001.0 + TOLD_S, 1086.0
        done_s = TOLD_S - number
        times.over_s = 1086.0 + ALONE_S - done_s
        runs = [
            AccountedRun(state="REQUEUED", start_s=1000 + number, end_s=1001 + TOLD_S),
            AccountedRun(state="COMPLETED", start_s=1085, end_s=1086 + ALONE_S - done_s),
        ]
    return ToldJob(job=str(number), node=f"n{number + 1}", times=times, is_right=True, runs=runs)


@pytest.fixture
def told() -> Told:
    """Everything as it is to be."""
    reservation = ToldReservation(
        name="flock-1",
        asked_s=ASKED_S,
        start_s=START_S,
        end_s=END_S,
        image_bytes=8_000_000,
        arrived_s=1021.0,
        free_s={"n2": 1035.0, "n3": 1035.0, "n4": 1036.0},
        begun_s=1060.5,
        is_met=True,
    )
    jobs = [machine(0, goes=False), *(machine(number, goes=True) for number in (1, 2, 3))]
    return Told(costs=COSTS, jobs=jobs, reservation=reservation, last=LAST, memory_mib=MEMORY_MIB, left=[])


@pytest.fixture
def prediction(told: Told) -> Prediction:
    return predicted(told)


def test_youngest_three_are_told_in_time_and_resumed_after_the_reservation(prediction: Prediction) -> None:
    assert prediction.jobs["n1"].stopped_s is None
    assert prediction.jobs["n1"].over_s == ALONE_S
    assert {prediction.jobs[node].stopped_s for node in ("n2", "n3", "n4")} == {TOLD_S}
    assert {prediction.jobs[node].continued_s for node in ("n2", "n3", "n4")} == {86}
    assert [prediction.jobs[f"n{number + 1}"].over_s for number in (1, 2, 3)] == [
        86 + ALONE_S - (TOLD_S - number) for number in (1, 2, 3)
    ]


def test_story_that_went_as_predicted_has_no_fault(told: Told, prediction: Prediction) -> None:
    assert far(told, prediction) == []
    assert faults(told, prediction, CAME_BACK) == []
    assert len(rows(told, prediction)) == 2 + 4 + 3 * 3
    assert "nodes free 24.0 to 25.0 s before the start" in table(told, prediction)


def test_machine_that_continues_late_is_far_from_its_prediction(told: Told, prediction: Prediction) -> None:
    told.jobs[1].times.continued_s = 1086.0 + 0.2 * 86

    assert far(told, prediction) == [
        "resumed n2: 1.20 of what was predicted",
        "is away n2: 1.32 of what was predicted",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"is_met": False}, "the receipt does not say that the promise was met"),
        ({"arrived_s": 1061.0}, "the image came after the start"),
        ({"free_s": {"n2": 1035.0, "n3": 1035.0}}, "['n4'] were not free before the start"),
    ],
)
def test_promise_that_was_not_kept_is_named(
    told: Told, prediction: Prediction, change: dict[str, object], words: str
) -> None:
    reservation = replace(told.reservation, **change)  # type: ignore[arg-type]

    assert faults(replace(told, reservation=reservation), prediction, CAME_BACK) == [words]


def test_wrong_count_missing_account_and_leftovers_are_named(told: Told, prediction: Prediction) -> None:
    jobs = [
        replace(told.jobs[0], is_right=False),
        replace(told.jobs[1], runs=told.jobs[1].runs[1:]),
        replace(told.jobs[2], runs=[told.jobs[2].runs[0], replace(told.jobs[2].runs[1], start_s=1070)]),
        told.jobs[3],
    ]

    assert faults(replace(told, jobs=jobs, left=["job-3"]), prediction, CAME_BACK) == [
        "the machine of n1 did not count right",
        "the accounting of n2 says ['COMPLETED'], not ('REQUEUED', 'COMPLETED')",
        "a run on n3 is accounted with 75 s and took 59.0",
        "there is left on nodes: job-3",
    ]


def test_other_machines_than_predicted_are_named(told: Told, prediction: Prediction) -> None:
    jobs = [told.jobs[0], machine(1, goes=False), *told.jobs[2:]]
    found = faults(replace(told, jobs=jobs), prediction, CAME_BACK)

    assert found == ["['n3', 'n4'] made way, and ['n2', 'n3', 'n4'] were predicted"]
