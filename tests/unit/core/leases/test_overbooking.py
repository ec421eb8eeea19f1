"""Leases on standby: the stated risk against counting all cases, and kept over random histories."""

from __future__ import annotations

from itertools import product
from math import comb
from random import Random

import pytest

from outrider.core.leases.admission import PlannedLease
from outrider.core.leases.overbooking import DOUBT, LEAST_KNOWN, Overbooking, ShowUps, at_least, more_than
from tests.amount import examples
from tests.unit.core.books import wanted


def lease(units: int, start_s: int, end_s: int) -> PlannedLease:
    return PlannedLease(workspace=wanted("w", start_s, 1), units=units, spans=((start_s, end_s),))


def test_the_risk_is_that_of_counting_who_comes_case_by_case() -> None:
    for seed in range(60):
        chance = Random(seed)
        sizes = [chance.randint(1, 5) for _ in range(chance.randint(0, 7))]
        comes, room = chance.random(), chance.randint(-1, 20)
        counted = 0.0
        for who in product((0, 1), repeat=len(sizes)):
            if sum(size for size, has_come in zip(sizes, who, strict=True) if has_come) > room:
                counted += comes ** sum(who) * (1 - comes) ** (len(who) - sum(who))

        assert more_than(sizes, comes, room) == pytest.approx(counted, abs=1e-9)


def test_the_tail_is_the_binomial_one() -> None:
    for count, of, chance in [(0, 5, 0.3), (1, 5, 0.3), (3, 7, 0.5), (7, 7, 0.9), (3, 50, 0.02), (1, 4, 0.0)]:
        whole = sum(comb(of, k) * chance**k * (1 - chance) ** (of - k) for k in range(count, of + 1))

        assert at_least(count, of, chance) == pytest.approx(whole, abs=1e-9)


def test_the_rate_of_those_who_stay_away_is_overestimated_as_seldom_as_is_said() -> None:
    too_high = 0
    for seed in range(2000):
        chance, seen = Random(seed), ShowUps()
        for _ in range(60):
            seen.note(chance.random() >= 0.2)
        too_high += seen.least_rate > 0.2

    # At most 20 are expected; 36 has a probability of 1 in 1,000.
    assert too_high <= 36


def test_little_history_or_nobody_away_means_no_standby() -> None:
    book = Overbooking(5)
    for _ in range(LEAST_KNOWN - 1):
        book.show_ups.note(False)
    held = [lease(1, 0, 10)] * 4
    assert not book.accepts(lease(1, 0, 10), held, [], 4, -5)
    book.show_ups.note(False)
    assert book.accepts(lease(1, 0, 10), held, [], 4, -5)

    everybody_comes = Overbooking(50)
    for _ in range(100):
        everybody_comes.show_ups.note(True)

    assert not everybody_comes.accepts(lease(1, 0, 10), held, [], 4, -5)


def test_who_has_begun_or_begins_later_and_others_on_standby_are_counted_as_there() -> None:
    book = Overbooking(5)
    for _ in range(200):
        book.show_ups.note(False)
    own = lease(2, 100, 200)

    assert book.accepts(own, [lease(4, 100, 200)], [], 4, 50)
    assert not book.accepts(own, [lease(4, 40, 200)], [], 4, 50)
    assert not book.accepts(own, [lease(4, 101, 200)], [], 4, 50)
    assert not book.accepts(own, [lease(4, 100, 200)], [lease(3, 150, 300)], 4, 50)
    assert book.accepts(own, [lease(4, 100, 200)], [lease(3, 200, 300)], 4, 50)


def test_no_promise_is_broken_beyond_the_stated_probability() -> None:
    """Random sites, rates and sizes; who comes is drawn. What finds no nodes is counted against the risk."""
    for risk in (5, 20):
        promised = broken = 0
        for seed in range(examples(60)):
            chance, book, now_s = Random(f"{risk}/{seed}"), Overbooking(risk), 0
            away, units = chance.uniform(0.02, 0.6), chance.randint(8, 60)
            for _ in range(100):
                now_s += 1000
                held, room = [], units
                while (size := chance.randint(1, max(1, units // 4))) <= room:
                    held.append(lease(size, now_s, now_s + 100))
                    room -= size
                standbys: list[PlannedLease] = []
                for _ in range(4):
                    asked = lease(chance.randint(1, max(1, units // 8)), now_s, now_s + 100)
                    if book.accepts(asked, held, standbys, units, now_s - 500):
                        standbys.append(asked)
                have_come = [each for each in held if chance.random() >= away]
                for each in held:
                    book.show_ups.note(each in have_come)
                free = units - sum(each.units for each in have_come)
                for each in standbys:
                    was_broken = each.units > free
                    free -= 0 if was_broken else each.units
                    book.note_standby(was_broken=was_broken)
                    promised, broken = promised + 1, broken + was_broken

        assert promised > 300
        assert at_least(broken, promised, risk / 100) > DOUBT, (broken, promised)


def test_when_more_is_broken_than_the_risk_explains_nothing_is_overbooked_any_more() -> None:
    """Users who stay away together: the assumption of independence is wrong, and that is noticed."""
    book, chance = Overbooking(5), Random("together")
    promised = broken = 0
    for round_number in range(400):
        now_s = 1000 * round_number
        held = [lease(1, now_s, now_s + 100) for _ in range(20)]
        is_accepted = book.accepts(lease(2, now_s, now_s + 100), held, [], 20, now_s - 500)
        have_come = chance.random() < 0.5
        for _ in held:
            book.show_ups.note(have_come)
        if is_accepted:
            book.note_standby(was_broken=have_come)
            promised, broken = promised + 1, broken + have_come

    assert not book.is_trusted
    assert broken <= 4
    assert promised <= 20


@pytest.mark.parametrize("percent", [0, 1, 51])
def test_a_risk_that_cannot_be_stated_is_refused(percent: int) -> None:
    with pytest.raises(ValueError, match="use 2 to 50"):
        Overbooking(percent)
