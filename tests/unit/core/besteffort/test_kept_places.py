"""A walk that keeps what the one before has found, beside one that begins with nothing after each change."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from outrider.core.besteffort.jobs import schedule as schedule_module
from outrider.core.besteffort.jobs.order import Order, OrderedJob, Rank, rank
from outrider.core.besteffort.jobs.schedule import JobPlace, JobSchedule, ScheduledJob, ScheduleRules, Walk
from outrider.core.model import Resources
from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.forecast import BusyForecast, Taken
from outrider.core.nodes.together import earliest_together
from tests.amount import examples

LAYOUT = ResourceLayout(["cpus"])
RULES = {
    "easy": ScheduleRules(places=1),
    "three": ScheduleRules(places=3),
    "conservative": ScheduleRules(places=None),
}


def cpus(count: int) -> int:
    return LAYOUT.pack(Resources.of(cpus=count))


class Site:
    """What is known of a site and its queue: enough to walk through it as if nothing had been before."""

    def __init__(self, seed: str, rules: ScheduleRules) -> None:
        self.chance = random.Random(seed)
        self.rules = rules
        self.count = self.chance.randint(2, 12)
        self.sizes = [cpus(self.chance.choice((2, 4))) for _ in range(self.count)]
        self.everyone = self.available = (1 << self.count) - 1
        self.now_s = self.jobs = 0
        self.known: dict[str, tuple[Taken, ...]] = {}
        self.expected: list[Taken] = []
        self.queue: dict[str, tuple[ScheduledJob, Rank]] = {}
        self.told: dict[str, tuple[Taken, ...]] = {}
        """Those that were told to start and are not seen to run."""
        self.forecast = BusyForecast(LAYOUT, self.sizes)
        self.schedule = JobSchedule(self.forecast, rules)

    def walk(self) -> Walk:
        return self._told(self.schedule.walk(self.now_s, self.available))

    def go_on(self) -> Walk:
        return self._told(self.schedule.go_on(self.now_s, self.available))

    def _told(self, walk: Walk) -> Walk:
        for name, place in walk.starts.items():
            job, _ = self.queue.pop(name)
            end_s = self.now_s + job.limit_s
            self.told[name] = (
                Taken(nodes=tuple(place.nodes), start_s=self.now_s, end_s=end_s, amount=job.need),
            )
        return walk

    def walk_from_nothing(self) -> Walk:
        forecast = BusyForecast(LAYOUT, self.sizes)
        for name, taken in (*self.known.items(), *self.told.items()):
            forecast.know(f"known {name}", taken)
        for each in self.expected:
            forecast.take(each)
        schedule = JobSchedule(forecast, self.rules)
        for job, its_rank in self.queue.values():
            schedule.put(job, its_rank)
        return schedule.walk(self.now_s, self.available)

    def change(self) -> None:
        """One change of one thing; or time has passed, and nothing else."""
        chance = self.chance
        what = chance.choice(
            (
                "comes",
                "comes",
                "ends",
                "ends",
                "runs",
                "runs",
                "goes",
                "wants",
                "time",
                "time",
                "nodes",
                "other",
                "hope",
            )
        )
        if what == "comes" and len(self.queue) < 15:
            self.come()
        elif what == "runs" and self.told:
            name = chance.choice(sorted(self.told))
            self.know(name, self.told.pop(name))
            self.schedule.remove(name)
        elif what == "ends" and self.known:
            self.know(chance.choice(sorted(self.known)), ())
        elif what == "goes" and self.queue:
            name = chance.choice(sorted(self.queue))
            del self.queue[name]
            self.schedule.remove(name)
        elif what == "wants" and self.queue:
            name = chance.choice(sorted(self.queue))
            job, its_rank = self.queue[name]
            self.queue[name] = replace(job, nodes_wanted=chance.randint(1, self.count)), its_rank
            self.schedule.put(*self.queue[name])
        elif what == "nodes":
            self.available ^= 1 << chance.randrange(self.count)
        elif what == "other":
            start_s = self.now_s + chance.randint(0, 30)
            nodes = [node for node in range(self.count) if chance.random() < 0.3]
            end_s = start_s + chance.randint(1, 20)
            self.know("other", (Taken(nodes=tuple(nodes), start_s=start_s, end_s=end_s),))
        elif what == "hope":
            self.hope()
        elif what == "time":
            self.now_s += chance.randint(1, 6)

    def come(self) -> None:
        chance = self.chance
        self.jobs += 1
        job = ScheduledJob(
            name=str(self.jobs),
            nodes_wanted=chance.randint(1, self.count),
            need=cpus(chance.choice((1, 2, 4))),
            limit_s=chance.choice((2, 5, 10, 25)),
            eligible=self.everyone if chance.random() < 0.7 else chance.randint(1, self.everyone),
        )
        order = OrderedJob(
            key=job.name,
            submitted_s=chance.randint(0, self.jobs),
            nodes_wanted=job.nodes_wanted,
            limit_s=job.limit_s,
        )
        self.queue[job.name] = job, rank(Order.FCFS, order, self.now_s)
        self.schedule.put(*self.queue[job.name])

    def hope(self) -> None:
        """Something is expected, or not any more."""
        if self.expected:
            self.expected.clear()
            self.forecast.expect_nothing()
            return
        start_s = self.now_s + self.chance.randint(0, 20)
        node = self.chance.randrange(self.count)
        self.expected.append(Taken(nodes=(node,), start_s=start_s, end_s=start_s + 10, amount=cpus(1)))
        self.forecast.take(self.expected[0])

    def know(self, name: str, taken: tuple[Taken, ...]) -> None:
        self.known[name] = taken
        if not taken:
            del self.known[name]
        self.forecast.know(f"known {name}", taken)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Counter[BusyForecast]:
    """How often a place was searched for in a forecast."""
    counted: Counter[BusyForecast] = Counter()

    def search(
        forecast: BusyForecast, *, need: int, count: int, duration_s: int, eligible: int, now_s: int
    ) -> tuple[int, tuple[int, ...]] | None:
        counted[forecast] += 1
        return earliest_together(
            forecast, need=need, count=count, duration_s=duration_s, eligible=eligible, now_s=now_s
        )

    monkeypatch.setattr(schedule_module, "earliest_together", search)
    return counted


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(examples(60)))
def test_walk_that_keeps_places_finds_what_one_from_nothing_finds(rule: str, seed: int) -> None:
    site = Site(f"{rule} {seed}", RULES[rule])
    for _ in range(60):
        site.change()
        expected = site.walk_from_nothing()

        assert site.walk() == expected


def test_places_that_nothing_has_touched_are_not_looked_for_again(searches: Counter[BusyForecast]) -> None:
    site = Site("kept", ScheduleRules(places=None))
    site.know("all", (Taken(nodes=tuple(range(site.count)), start_s=0, end_s=100),))
    for _ in range(5):
        site.come()
    before = site.walk()
    searched = searches[site.forecast]
    site.now_s = 1
    after = site.walk()

    assert {name: place.start_s for name, place in after.planned.items()} == {
        name: place.start_s for name, place in before.planned.items()
    }
    assert searches[site.forecast] == searched > 0


@pytest.mark.parametrize("rule", ["easy", "conservative"])
def test_place_gets_other_nodes_when_one_behind_it_has_started_on_one_of_its_own(rule: str) -> None:
    """Of nodes that are free in time those that are free sooner are taken, and then the first by number."""
    forecast = BusyForecast(LAYOUT, [cpus(2)] * 4)
    forecast.know("run", (Taken(nodes=tuple(range(3)), start_s=0, end_s=10),))
    schedule = JobSchedule(forecast, RULES[rule])
    for number, (nodes, limit_s) in enumerate(((2, 50), (1, 10))):
        order = OrderedJob(key=str(number), submitted_s=number, nodes_wanted=nodes, limit_s=limit_s)
        job = ScheduledJob(
            name=str(number), nodes_wanted=nodes, need=cpus(2), limit_s=limit_s, eligible=0b1111
        )
        schedule.put(job, rank(Order.FCFS, order, 0))
    first = schedule.walk(0, 0b1111)
    second = schedule.walk(0, 0b1111)

    # Node 3 is free at once and so the first choice of the job that waits. The other one runs there until 10,
    # when all four nodes become free at once.
    assert first.starts["1"].nodes == (3,)
    assert (first.planned["0"].start_s, first.planned["0"].nodes) == (10, (0, 3))
    assert (second.planned["0"].start_s, second.planned["0"].nodes) == (10, (0, 1))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(examples(60)))
def test_walk_in_slices_ends_as_one_from_nothing_whatever_changes_in_between(
    rule: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_module, "SLICE", 1 + seed % 3)
    site = Site(f"slices {rule} {seed}", RULES[rule])
    for _ in range(60):
        site.change()
        expected, told, is_over = site.walk_from_nothing(), dict[str, JobPlace](), False
        while not is_over:
            part = site.go_on()
            told |= part.starts
            is_over = part.is_over
            if not is_over and site.chance.random() < 0.3:
                assert told.items() <= expected.starts.items()
                site.change()
                expected, told = site.walk_from_nothing(), {}

        assert Walk(starts=told, planned=part.planned) == expected


def lined_up(schedule: JobSchedule, count: int, *, eligible: int, first: int = 0) -> None:
    """Jobs of ten seconds that want one whole node each."""
    for number in range(first, first + count):
        order = OrderedJob(key=str(number), submitted_s=number, nodes_wanted=1, limit_s=10)
        job = ScheduledJob(name=str(number), nodes_wanted=1, need=cpus(2), limit_s=10, eligible=eligible)
        schedule.put(job, rank(Order.FCFS, order, 0))


def test_slice_looks_for_a_few_places_and_slices_together_for_as_many_as_a_walk_in_one_go(
    searches: Counter[BusyForecast],
) -> None:
    forecast = BusyForecast(LAYOUT, [cpus(2)])
    schedule = JobSchedule(forecast, RULES["conservative"])
    lined_up(schedule, 10, eligible=1)
    each, is_over = list[int](), False
    while not is_over:
        before = searches[forecast]
        is_over = schedule.go_on(0, 1).is_over
        each.append(searches[forecast] - before)

    assert each == [4, 4, 2]


def test_who_is_due_is_told_to_start_in_the_slice_of_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has to be looked at again ahead of it."""
    monkeypatch.setattr(schedule_module, "SLICE", 1)
    forecast = BusyForecast(LAYOUT, [cpus(2)] * 2)
    for node, end_s in ((0, 10), (1, 5)):
        forecast.know(f"run {node}", (Taken(nodes=(node,), start_s=0, end_s=end_s, amount=cpus(2)),))
    schedule = JobSchedule(forecast, RULES["conservative"])
    lined_up(schedule, 5, eligible=0b01)
    lined_up(schedule, 1, eligible=0b10, first=5)
    planned = schedule.walk(0, 0b11).planned
    forecast.know("run 0", ())
    early = schedule.go_on(4, 0b11)
    forecast.know("run 1", ())
    due = schedule.go_on(5, 0b11)

    assert (planned["0"].start_s, planned["5"].start_s) == (10, 5)
    assert list(early.starts) == ["0"]
    assert list(due.starts) == ["5"]


def test_walk_that_is_interrupted_again_and_again_ends() -> None:
    """Its slices get longer: twelve places are not found in slices of four, but in one of sixteen."""
    forecast = BusyForecast(LAYOUT, [cpus(2)])
    schedule = JobSchedule(forecast, RULES["conservative"])
    lined_up(schedule, 13, eligible=1)
    slices = 0
    while slices < 10 and not schedule.go_on(0, 1).is_over:
        slices += 1
        # Nobody can start as long as this lasts: all places are others each time.
        forecast.know("other", (Taken(nodes=(0,), start_s=0, end_s=100 + slices, amount=cpus(2)),))

    assert slices == 2
