"""Policies about leases, each beside a model that counts second by second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import ceil
from random import Random

import pytest

from outrider.core.leases.admission import (
    AcceptNone,
    HourShare,
    PlannedLease,
    ProtectBestEffort,
    SiteView,
    WithinIdle,
)
from outrider.core.leases.nodes import Energy, LeastPreemption, NodeOrder, NodeState, Packing, Spreading
from outrider.core.leases.preemption import (
    ByClass,
    Candidate,
    CheapestToSuspend,
    LeastWorkLost,
    LowestValue,
    PreemptionMeasure,
    PreemptionOrder,
    Shortest,
    Youngest,
)
from outrider.core.leases.pricing import ByHourOfDay, ByLoad, ByNotice, ForYielding, PriceList
from outrider.core.model import LeaseOwner, Node, Resources, Workspace
from outrider.core.reservations.book import ReservationPlan
from outrider.core.scheduler import LeaseRules
from outrider.sim.setup import Setup
from tests.unit.core.books import wanted

HOUR_S = 3600


class Site:
    """A machine of so many units with leases on it."""

    def __init__(
        self, units: int, leases: list[PlannedLease], slowdown: int = 100, best_effort: int = 0
    ) -> None:
        self.units = units
        self._leases = leases
        self._slowdown = slowdown
        self._best_effort = best_effort

    def leases(self, start_s: int, end_s: int) -> Iterator[PlannedLease]:
        return (each for each in self._leases if each.spans[0][0] < end_s and start_s < each.spans[-1][1])

    def best_effort_units(self, now_s: int) -> int:
        return self._best_effort

    def queue_slowdown_percent(self, extra: PlannedLease, now_s: int) -> int:
        return self._slowdown


def lease(units: int, *spans: tuple[int, int]) -> PlannedLease:
    return PlannedLease(workspace=wanted("w", spans[0][0], 1), units=units, spans=spans)


def test_at_most_a_share_of_each_hour_of_the_clock_is_accepted() -> None:
    """Minutes instead of seconds in the model: every lease begins and ends at full minutes."""
    answers = {"yes": 0, "no": 0}
    for seed in range(400):
        chance = Random(seed)
        units, percent = chance.randint(1, 6), chance.choice([10, 30, 50, 75, 100])

        def some(chance: Random = chance, units: int = units) -> PlannedLease:
            start = chance.randint(0, 300)
            middle = start + chance.randint(1, 60)
            rest = [(60 * middle + 600, 60 * middle + 1200)] if chance.random() < 0.3 else []
            return lease(chance.randint(1, units), (60 * start, 60 * middle), *rest)

        others, own = [some() for _ in range(chance.randint(0, 4))], some()
        taken = dict.fromkeys(range(10), 0)
        touched = set()
        for each in (*others, own):
            for start_s, end_s in each.spans:
                for minute in range(start_s // 60, end_s // 60):
                    taken[minute // 60] += each.units
                    if each is own:
                        touched.add(minute // 60)
        is_allowed = all(100 * taken[hour] <= percent * units * 60 for hour in touched)

        refusal = HourShare(percent).refuse(own, Site(units, others), 0)

        assert (refusal == "") == is_allowed, seed
        answers["yes" if is_allowed else "no"] += 1
    assert min(answers.values()) > 50, answers


def test_beside_best_effort_and_other_leases_a_share_of_the_machine_is_kept_in_every_second() -> None:
    answers = {"yes": 0, "no": 0}
    for seed in range(400):
        chance = Random(seed)
        units, percent = chance.randint(4, 20), chance.choice([50, 75, 100, 150])

        def some(chance: Random = chance) -> PlannedLease:
            at_s, spans = chance.randint(0, 40), []
            for _ in range(chance.randint(1, 3)):
                spans.append((at_s, at_s + chance.randint(1, 20)))
                at_s = spans[-1][1] + chance.randint(0, 9)
            return lease(chance.randint(1, 4), *spans)

        others, own = [some() for _ in range(chance.randint(0, 5))], some()
        best_effort = chance.randint(0, units)
        held = [
            sum(each.units for each in (*others, own) if any(a <= s < b for a, b in each.spans))
            for at, to in own.spans
            for s in range(at, to)
        ]
        is_allowed = 100 * (max(held) + best_effort) <= percent * units

        refusal = WithinIdle(percent).refuse(own, Site(units, others, best_effort=best_effort), 0)

        assert (refusal == "") == is_allowed, seed
        answers["yes" if is_allowed else "no"] += 1
    assert min(answers.values()) > 50, answers


def test_everything_nothing_and_a_bound_on_the_slowdown_of_best_effort() -> None:
    own = lease(1, (0, 60))

    assert "no reservations" in AcceptNone().refuse(own, Site(1, []), 0)
    assert ProtectBestEffort(300).refuse(own, Site(1, [], slowdown=300), 0) == ""
    assert "3.01 times" in ProtectBestEffort(300).refuse(own, Site(1, [], slowdown=301), 0)


def test_a_price_is_the_sum_of_every_second_with_its_surcharges() -> None:
    for seed in range(200):
        chance = Random(seed)
        hours = ByHourOfDay(tuple(chance.randint(-100, 200) for _ in range(24)), chance.randint(-12, 14))
        loads, notices = ((20, 10), (60, chance.randint(0, 90))), ((HOUR_S, 50), (4 * HOUR_S, 20))
        discount = chance.randint(0, 100)
        prices = PriceList(
            rate=chance.randint(0, 5000),
            hours=(hours,),
            surcharges=(ByLoad(loads), ByNotice(notices), ForYielding(discount)),
        )
        days = 3 if seed % 40 == 0 else 0
        start_s, length_s = chance.randint(0, 200_000), chance.randint(1, 9000) + days * 86_400
        units, load, notice_s = chance.randint(1, 9), chance.randint(0, 100), chance.randint(0, 5 * HOUR_S)
        may_yield = chance.random() < 0.5
        percent = 100 - (discount if may_yield else 0)
        percent += loads[1][1] if load >= 60 else 10 if load >= 20 else 0
        percent += 50 if notice_s < HOUR_S else 20 if notice_s < 4 * HOUR_S else 0
        each_second = sum(
            max(0, 100 + hours.percents[((at_s + hours.ahead_hours * HOUR_S) // HOUR_S) % 24])
            for at_s in range(start_s, start_s + length_s)
        )
        exact = Fraction(units * prices.rate * each_second * percent, HOUR_S * 100 * 100)

        found = prices.price(
            units,
            [(start_s, start_s + length_s)],
            notice_s=notice_s,
            load_percent=load,
            may_yield=may_yield,
        )

        assert found == ceil(exact), seed


CANDIDATES = (
    Candidate(name="old", order=(1,), duration_s=90, instances=1, memory_bytes=5, done_s=50, keeps_work=False,
              owner=LeaseOwner(user="anna", lease_class="cheap", value=7)),
    Candidate(name="middle", order=(2,), duration_s=30, instances=4, memory_bytes=1, done_s=20,
              keeps_work=False, owner=LeaseOwner(user="ben", lease_class="normal", value=9)),
    Candidate(name="young", order=(3,), duration_s=60, instances=1, memory_bytes=9, done_s=60,
              owner=LeaseOwner(user="anna", lease_class="urgent", value=8)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("measure", "names"),
    [
        (Youngest(), ["young", "middle", "old"]),
        (Shortest(), ["middle", "young", "old"]),
        (LeastWorkLost(), ["young", "old", "middle"]),
        (CheapestToSuspend(), ["middle", "old", "young"]),
        (LowestValue(), ["old", "young", "middle"]),
        (ByClass(("normal", "cheap")), ["middle", "old", "young"]),
    ],
)
def test_each_measure_says_who_yields_first(measure: PreemptionMeasure, names: list[str]) -> None:
    order = PreemptionOrder(measures=((measure, 1),))

    assert [each.name for each in order.sort(CANDIDATES)] == names


def test_measures_are_weighed_by_their_places() -> None:
    # Places by value: old 0, young 1, middle 2; by length: middle 0, young 1, old 2.
    by_value = PreemptionOrder(measures=((LowestValue(), 2), (Shortest(), 1)))
    alike = PreemptionOrder(measures=((LowestValue(), 1), (Shortest(), 1)))

    assert [each.name for each in by_value.sort(CANDIDATES)] == ["old", "young", "middle"]
    # All have 2: the youngest first.
    assert [each.name for each in alike.sort(CANDIDATES)] == ["young", "middle", "old"]


def test_who_is_spared_is_not_among_them() -> None:
    order = PreemptionOrder(spared_classes=frozenset({"urgent"}), spared_users=frozenset({"ben"}))

    assert [each.name for each in order.sort(CANDIDATES)] == ["old"]


def test_scores_of_nodes_are_weighed() -> None:
    empty = NodeState(room_instances=4, empty_instances=4, idle_instances=4, has_image=False, is_empty=True)
    half = NodeState(room_instances=2, empty_instances=4, idle_instances=1, has_image=True, is_empty=False)

    assert [rule.score(empty) for rule in (Packing(), Spreading(), LeastPreemption(), Energy())] == [
        100,
        0,
        0,
        100,
    ]
    assert [rule.score(half) for rule in (Packing(), Spreading(), LeastPreemption(), Energy())] == [
        50,
        50,
        50,
        0,
    ]
    order = NodeOrder(((Packing(), 2), (LeastPreemption(), 3)))
    assert (order.score(empty), order.score(half)) == (200, 250)


class OnceRefused:
    """Refuses one workspace the first time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.asked: list[str] = []

    def refuse(self, lease: PlannedLease, site: SiteView, now_s: int) -> str:
        self.asked.append(lease.workspace.name)
        return "not now" if self.asked.count(self._name) == 1 and lease.workspace.name == self._name else ""


def test_a_policy_is_asked_once_of_a_plan_and_anew_when_other_leases_have_moved() -> None:
    """Two nodes, a lease on each that may begin later. The request has a place if either of them moves."""
    policy = OnceRefused("fixed")
    nodes = tuple(Node(name=f"n{n}", capacity=Resources.of(cpus=1)) for n in range(2))
    rules = LeaseRules(is_moving=True, admission=(policy,))
    scheduler = Setup(has_images=False, leases=rules).scheduler(nodes)
    first = Workspace(
        name="a", instances=1, resources=Resources.of(cpus=1), duration_s=50, start_s=100, finish_by_s=400
    )

    for each in (first, replace(first, name="b")):
        assert isinstance(scheduler.reserve(each, 0).admission, ReservationPlan)
    decided = scheduler.reserve(replace(first, name="fixed", finish_by_s=None), 0)

    assert isinstance(decided.admission, ReservationPlan)
    assert len(decided.moved_leases) == 1
    assert policy.asked == ["a", "b", "fixed", "fixed"]
