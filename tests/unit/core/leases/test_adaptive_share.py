"""The share of leases that adapts: what moves it, its limits, and what it says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from outrider.core.leases.adaptive import AdaptiveShare, ShareMove, SteeringRules
from outrider.core.leases.admission import PlannedLease
from tests.amount import examples
from tests.unit.core.books import wanted

HOUR_S = 3600
QUICK = SteeringRules(booked=1000, waiting=1000, every_s=HOUR_S, memory_s=HOUR_S)


class Empty:
    """A machine of ten units with nothing on it."""

    units = 10

    def leases(self, start_s: int, end_s: int) -> Iterator[PlannedLease]:
        return iter(())

    def best_effort_units(self, now_s: int) -> int:
        raise AssertionError("an adaptive share does not ask for it")

    def queue_slowdown_percent(self, extra: PlannedLease, now_s: int) -> int:
        return 100


def hours(share: AdaptiveShare, waiting: int, count: int) -> list[ShareMove]:
    """So many hours on ten nodes, in each of which so many new jobs wait for half an hour."""
    looks = []
    for hour in range(count + 1):
        came = waiting * (hour + 1)
        looks.append(share.look(waiting, came, 10, HOUR_S * hour))
        looks.append(share.look(0, came, 10, HOUR_S * hour + HOUR_S // 2))
    return [move for move in looks if move is not None]


def test_while_nobody_waits_leases_get_more_until_the_highest() -> None:
    share = AdaptiveShare(SteeringRules(booked=1000, waiting=1000, highest_percent=75))

    moves = hours(share, 0, 6)

    assert [(move.before_percent, move.after_percent) for move in moves] == [(50, 60), (60, 70), (70, 75)]


def test_while_more_wait_than_leases_are_worth_they_get_less_until_the_lowest() -> None:
    share = AdaptiveShare(replace(QUICK, lowest_percent=15))

    moves = hours(share, 40, 8)

    assert [move.after_percent for move in moves] == [40, 30, 20, 15]


@pytest.mark.parametrize(("waiting", "goes"), [(8, 70), (10, 50), (12, 30)])
def test_an_hour_costs_what_all_who_wait_are_held_up_by_it(waiting: int, goes: int) -> None:
    """On ten nodes an hour of one holds up each job by a tenth: ten are its worth. Each day has its step."""
    share = AdaptiveShare(replace(QUICK, every_s=24 * HOUR_S))
    for hour in range(50):
        share.look(waiting, waiting, 10, hour * HOUR_S)

    assert share.percent == goes


def test_an_hour_is_judged_by_all_who_came_until_nobody_waited() -> None:
    """Eight wait, sixteen more come before nobody waits: 24 are held up by a tenth of an hour each."""
    share = AdaptiveShare(QUICK)
    share.look(8, 100, 10, 0)
    share.look(20, 116, 10, 1000)
    assert share.worth_and_cost(10) == (1000, 0)
    share.look(0, 116, 10, 2000)

    assert share.worth_and_cost(10) == (1000, 2400)


def test_a_site_that_moves_its_share_often_judges_short_pieces_soon() -> None:
    """Twelve wait all the time on four nodes, which costs three. Each piece is known half a minute after it,
    and counts a quarter: the share still rises after the first one, and falls after the second."""
    rules = SteeringRules(booked=1000, waiting=1000, every_s=15, memory_s=60)
    share = AdaptiveShare(rules)
    known = []
    for look in range(7):
        share.look(12, 12, 4, 15 * look)
        known.append(share.worth_and_cost(4)[1])

    assert known[:5] == [0, 0, 750, 1312, 1734]
    assert [move.after_percent for move in share.moves] == [60, 70, 60, 50, 40, 30]


def test_what_leases_do_not_use_costs_nobody_and_more_of_it_may_be_booked() -> None:
    share = AdaptiveShare(QUICK)
    assert share.booked_percent == 50
    for _ in range(20):
        share.ended(100, 80)

    assert share.used_percent == 80
    assert share.booked_percent == 62
    hours(share, 10, 1)
    # Ten are held up by a tenth of an hour each, of which a fifth is given back.
    assert share.worth_and_cost(10) == (1000, 800)


def test_few_leases_prove_nothing_and_no_history_is_believed_to_less_than_half() -> None:
    few, many = AdaptiveShare(QUICK), AdaptiveShare(QUICK)
    for _ in range(9):
        few.ended(100, 0)
    for _ in range(300):
        many.ended(100, 0)

    assert few.used_percent == 100
    assert many.used_percent == 50
    assert many.booked_percent == 100


def test_only_what_is_used_counts_where_the_site_says_so() -> None:
    """Jobs fill every hour that leases do not: an hour that a lease leaves half idle is worth less."""
    share = AdaptiveShare(SteeringRules(used=1000, memory_s=HOUR_S))
    for _ in range(20):
        share.ended(100, 60)
    share.look(3, 3, 10, 0)
    move = share.look(3, 3, 10, HOUR_S)

    assert share.worth_and_cost(10)[0] == -400
    assert move is not None
    assert move.after_percent == 40


def test_refusals_and_moves_say_which_rule_and_why() -> None:
    share = AdaptiveShare(QUICK)
    lease = PlannedLease(workspace=wanted("w", 7200, 1), units=5, spans=((7200, 9000), (9000, 10_800)))
    assert share.refuse(lease, Empty(), 0) == ""
    hours(share, 40, 1)

    words = share.refuse(lease, Empty(), HOUR_S)

    assert words.startswith("reservations have at most 40 % of an hour")
    assert "their share went from 50 to 40 %, because 10.0 jobs waited on average, 40.0 were held up" in words
    assert "an hour of a node is worth 1.000 and costs 4.000" in words


def test_whatever_happens_the_share_keeps_its_limits_step_and_pace() -> None:
    for seed in range(examples(300)):
        chance = Random(seed)
        low, start, high = sorted(chance.randint(0, 100) for _ in range(3))
        rules = SteeringRules(
            booked=chance.randint(0, 3000),
            used=chance.randint(1, 3000),
            waiting=chance.randint(0, 9000),
            lowest_percent=low,
            start_percent=start,
            highest_percent=high,
            step_percent=chance.randint(1, 30),
            every_s=chance.randint(1, 7200),
            memory_s=chance.randint(1, 90_000),
        )
        share, now_s, came = AdaptiveShare(rules), 0, 0
        moved_s = [-rules.every_s]
        for _ in range(100):
            now_s += chance.choice([0, 1, 60, 3600, 10**6])
            if chance.random() < 0.3:
                booked = chance.randint(0, 10**6)
                share.ended(booked, chance.randint(0, 2 * booked + 1))
            waiting = chance.choice([0, 0, 1, 50, 10**5])
            came += waiting + chance.randint(0, 5)
            before = share.percent
            move = share.look(waiting, came, chance.randint(1, 10**4), now_s)

            assert low <= share.percent <= high
            assert abs(share.percent - before) <= rules.step_percent
            assert (move is not None) == (share.percent != before)
            assert share.percent <= share.booked_percent <= min(100, 2 * share.percent)
            if move is not None:
                assert now_s - moved_s[-1] >= rules.every_s
                moved_s.append(now_s)


@pytest.mark.parametrize(
    "wrong",
    [
        {"booked": 1, "lowest_percent": 60},
        {"booked": 1, "highest_percent": 40},
        {"booked": 1, "step_percent": 0},
        {"booked": 1, "every_s": 0},
        {"booked": -1, "waiting": 2},
        {},
    ],
)
def test_rules_that_steer_nothing_or_cross_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"rise|or more|above"):
        SteeringRules(**wrong)
