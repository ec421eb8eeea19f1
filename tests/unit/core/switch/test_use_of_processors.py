"""What a machine uses, from a counter that is read now and then, and as how much it counts."""

from __future__ import annotations

import pytest

from outrider.core.switch.use import MeasuredUse, PackingByUse, ProcessorCounter, UseMeter

KEY = ("job-7", 1001)
S = 1_000_000


def at(had_s: int, at_s: int, waited_s: int = 0) -> ProcessorCounter:
    return ProcessorCounter(used_us=had_s * S, waited_us=waited_s * S, at_us=at_s * S)


def test_use_is_what_was_had_between_two_readings() -> None:
    meter = UseMeter()

    meter.read({KEY: at(5, 100)}, 1000)
    assert meter.used == {}
    meter.read({KEY: at(20, 130)}, 1030)
    assert meter.used == {KEY: MeasuredUse(hundredths=50, at_s=1030)}
    meter.read({KEY: at(20, 160)}, 1060)
    assert meter.used == {KEY: MeasuredUse(hundredths=0, at_s=1060)}


def test_readings_that_follow_at_once_are_not_compared() -> None:
    meter = UseMeter()

    meter.read({KEY: at(0, 100)}, 1000)
    meter.read({KEY: at(2, 102)}, 1002)
    assert meter.used == {}
    meter.read({KEY: at(2, 120)}, 1020)
    assert meter.used[KEY].hundredths == 10, "2 s of 20 s"


def test_what_others_had_while_a_machine_waited_is_its_use_too() -> None:
    meter = UseMeter()

    meter.read({KEY: at(5, 100, waited_s=40)}, 1000)
    meter.read({KEY: at(8, 130, waited_s=67)}, 1030)
    assert meter.used[KEY].hundredths == 100, "3 s had and 27 s waited for of 30 s"
    meter.read({KEY: at(11, 160, waited_s=2)}, 1060)
    assert meter.used[KEY].hundredths == 10, "a thread has ended, with what it had waited for"


@pytest.mark.parametrize("again", [{}, {KEY: at(3, 160)}, {KEY: at(90, 10)}])
def test_counter_that_begins_anew_is_another_machines(again: dict[tuple[str, int], ProcessorCounter]) -> None:
    meter = UseMeter()
    meter.read({KEY: at(5, 100)}, 1000)
    meter.read({KEY: at(20, 130)}, 1030)

    meter.read(again, 1060)

    assert meter.used == {}


@pytest.mark.parametrize(
    ("asked", "hundredths", "age_s", "counted"),
    [
        (1, 4, 0, 5),
        (1, 0, 0, 1),
        (1, 100, 0, 100),
        (2, 90, 120, 113),
        (2, 90, 121, None),
        (8, 100, 60, 125),
    ],
)
def test_use_counts_with_a_margin_up_to_what_was_asked_for_until_it_is_old(
    asked: int, hundredths: int, age_s: int, counted: int | None
) -> None:
    rules = PackingByUse(margin_percent=25, age_s=120, most=2)

    assert rules.counted(asked, MeasuredUse(hundredths=hundredths, at_s=1000), 1000 + age_s) == counted
    assert rules.counted(asked, None, 1000) is None
