"""The walk through a queue of jobs, beside a plain one that looks at every second and every node."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.jobs.order import Order, OrderedJob, rank
from outrider.core.besteffort.jobs.schedule import JobPlace, JobSchedule, ScheduledJob, ScheduleRules
from outrider.core.model import Resources
from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.forecast import BusyForecast, Taken
from outrider.core.nodes.timeline import numbers
from outrider.core.nodes.together import earliest_together
from tests.amount import examples

LAYOUT = ResourceLayout(["cpus"])
HORIZON_S = 400
RULES = {
    "off": ScheduleRules(backfilling=Backfilling.OFF),
    "greedy": ScheduleRules(backfilling=Backfilling.GREEDY),
    "easy": ScheduleRules(places=1),
    "three": ScheduleRules(places=3),
    "conservative": ScheduleRules(places=None),
}


def cpus(count: int) -> int:
    return LAYOUT.pack(Resources.of(cpus=count))


@dataclass
class Seconds:
    """What is free of each node, second by second."""

    free: list[list[int]]

    def start_s(self, job: ScheduledJob, available: int, from_s: int) -> tuple[int, tuple[int, ...]] | None:
        """The first second from which a job finds its nodes, and the first of these."""
        for at_s in range(from_s, HORIZON_S // 2):
            found = [
                node
                for node in numbers(job.eligible & available)
                if min(self.free[node][at_s : at_s + job.limit_s]) >= job.need
            ]
            if len(found) >= job.nodes_wanted:
                return at_s, tuple(found[: job.nodes_wanted])
        return None

    def take(self, job: ScheduledJob, start_s: int, nodes: tuple[int, ...]) -> None:
        for node in nodes:
            for at_s in range(start_s, start_s + job.limit_s):
                self.free[node][at_s] -= job.need


def plain_walk(
    seconds: Seconds,
    queue: list[ScheduledJob],
    rules: ScheduleRules,
    available: int,
    chosen: dict[str, JobPlace],
) -> tuple[dict[str, JobPlace], dict[str, JobPlace]]:
    """What is to become of a queue, told in the words of the rules. Of nodes that are as good, those count
    that were `chosen`; they have to be free."""
    left = len(queue) if rules.places is None else rules.places
    left = left if rules.backfilling is Backfilling.RESERVING else 0
    starts: dict[str, JobPlace] = {}
    planned: dict[str, JobPlace] = {}
    for job in queue:
        found = seconds.start_s(job, available, 0)
        if found is not None and (found[0] == 0 or left > 0):
            start_s, nodes = found
            nodes = chosen[job.name].nodes if job.name in chosen else nodes
            assert all(min(seconds.free[node][start_s : start_s + job.limit_s]) >= job.need for node in nodes)
            seconds.take(job, start_s, nodes)
            place = JobPlace(start_s=start_s, ready_s=0, nodes=nodes)
            (starts if start_s == 0 else planned)[job.name] = place
            left -= start_s > 0
        elif rules.backfilling is Backfilling.OFF:
            break
    return starts, planned


def random_site(chance: random.Random) -> tuple[BusyForecast, Seconds, int]:
    """A few nodes of unlike size, with jobs that run and reservations to come."""
    count = chance.randint(1, 6)
    sizes = [chance.choice((1, 2, 4)) for _ in range(count)]
    forecast = BusyForecast(LAYOUT, [cpus(size) for size in sizes])
    seconds = Seconds([[cpus(size)] * HORIZON_S for size in sizes])
    for node in range(count):
        at_s = 0
        for number in range(chance.randint(0, 3)):
            amount, begin_s = cpus(chance.randint(1, sizes[node])), at_s + chance.choice((0, 0, 3, 9))
            at_s = begin_s + chance.randint(1, 15)
            taken = Taken(nodes=(node,), start_s=begin_s, end_s=at_s, amount=amount)
            forecast.know(f"job {node} {number}", (taken,))
            for second in range(begin_s, at_s):
                seconds.free[node][second] -= amount
    if chance.random() < 0.5:
        start_s, nodes = chance.randint(5, 40), [node for node in range(count) if chance.random() < 0.5]
        end_s = start_s + chance.randint(1, 20)
        forecast.know("reservation", (Taken(nodes=tuple(nodes), start_s=start_s, end_s=end_s),))
        for node in nodes:
            seconds.free[node][start_s:end_s] = [0] * (end_s - start_s)
    return forecast, seconds, count


def random_job(chance: random.Random, name: str, count: int) -> ScheduledJob:
    everyone = (1 << count) - 1
    return ScheduledJob(
        name=name,
        nodes_wanted=chance.randint(1, count),
        need=cpus(chance.choice((1, 1, 2, 4))),
        limit_s=chance.randint(1, 25),
        eligible=everyone if chance.random() < 0.7 else chance.randint(1, everyone),
    )


def candidate(job: ScheduledJob, number: int) -> OrderedJob:
    return OrderedJob(key=job.name, submitted_s=number, nodes_wanted=job.nodes_wanted, limit_s=job.limit_s)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(examples(150)))
def test_walk_decides_as_a_plain_one_does(rule: str, seed: int) -> None:
    chance = random.Random(f"{rule} {seed}")
    forecast, seconds, count = random_site(chance)
    schedule = JobSchedule(forecast, RULES[rule])
    queue = [random_job(chance, str(number), count) for number in range(chance.randint(1, 12))]
    for number, job in enumerate(queue):
        schedule.put(job, rank(Order.FCFS, candidate(job, number), 0))
    available = chance.randint(0, (1 << count) - 1) | (1 << chance.randrange(count))

    walk = schedule.walk(0, available)
    chosen = {**walk.starts, **walk.planned}
    starts, planned = plain_walk(seconds, queue, RULES[rule], available, chosen)

    told = {name: place.start_s for name, place in chosen.items()}
    assert told == {name: place.start_s for name, place in {**starts, **planned}.items()}
    assert {name: len(place.nodes) for name, place in walk.starts.items()} == {
        name: len(place.nodes) for name, place in starts.items()
    }


@pytest.mark.parametrize("seed", range(examples(60)))
def test_random_histories_overbook_no_node_and_delay_nobody_with_a_place(seed: int) -> None:
    """With EASY the first that waits never starts later than it was told before."""
    chance = random.Random(seed)
    count = chance.randint(2, 6)
    everyone = (1 << count) - 1
    forecast = BusyForecast(LAYOUT, [cpus(4)] * count)
    schedule = JobSchedule(forecast, ScheduleRules(places=1))
    jobs: dict[str, ScheduledJob] = {}
    ends: dict[str, int] = {}
    running: dict[str, tuple[ScheduledJob, JobPlace]] = {}
    started: dict[str, int] = {}
    promised: dict[str, int] = {}
    number = 0
    for now_s in range(120):
        for name in [name for name, end_s in ends.items() if end_s <= now_s]:
            forecast.know(f"run {name}", ())
            del ends[name], running[name]
        if chance.random() < 0.5 and now_s < 60:
            job = random_job(chance, str(number), count)
            jobs[job.name] = job
            schedule.put(job, rank(Order.FCFS, candidate(job, number), now_s))
            number += 1
        walk = schedule.walk(now_s, everyone)
        for name, place in walk.starts.items():
            job = jobs[name]
            schedule.remove(name)
            end_s = now_s + job.limit_s
            forecast.know(
                f"run {name}",
                (Taken(nodes=tuple(place.nodes), start_s=0, end_s=end_s, amount=job.need),),
            )
            # Half of all jobs end before their limits.
            ends[name] = now_s + (job.limit_s if chance.random() < 0.5 else chance.randint(1, job.limit_s))
            running[name], started[name] = (job, place), now_s
            assert now_s <= promised.get(name, now_s)
        for name, place in walk.planned.items():
            assert place.start_s <= promised.get(name, place.start_s)
            promised[name] = place.start_s
        used = [0] * count
        for job, place in running.values():
            assert len(place.nodes) == job.nodes_wanted
            for node in place.nodes:
                used[node] += job.need
        assert max(used) <= cpus(4)

    fitting = {name for name, job in jobs.items() if job.eligible.bit_count() >= job.nodes_wanted}
    waits = fitting - set(started)
    assert len(walk.planned) == min(1, len(waits))


@pytest.mark.parametrize("seed", range(examples(150)))
def test_earliest_instant_is_the_first_at_which_so_many_nodes_are_free(seed: int) -> None:
    chance = random.Random(seed)
    forecast, seconds, count = random_site(chance)
    job = random_job(chance, "job", count)
    there_s = {node: chance.randint(0, 20) for node in range(count) if chance.random() < 0.5}
    for node, at_s in there_s.items():
        seconds.free[node][:at_s] = [0] * at_s

    found = earliest_together(
        forecast,
        need=job.need,
        count=job.nodes_wanted,
        duration_s=job.limit_s,
        eligible=job.eligible,
        now_s=0,
        there_s=there_s,
    )
    wanted = seconds.start_s(job, job.eligible, 0)

    assert (None if found is None else found[0]) == (None if wanted is None else wanted[0])


class Brought:
    """Images that come to all nodes at known instants."""

    def __init__(self, there_s: dict[str, int], forecast: BusyForecast) -> None:
        self._there_s = there_s
        self._forecast = forecast
        self.kept: list[str] = []

    def instants(self, job: ScheduledJob, now_s: int) -> Sequence[tuple[int, int]]:
        return ((max(now_s, self._there_s[job.image]), job.eligible),)

    def find(self, job: ScheduledJob, now_s: int) -> JobPlace | None:
        ready_s = max(now_s, self._there_s[job.image])
        found = earliest_together(
            self._forecast,
            need=job.need,
            count=job.nodes_wanted,
            duration_s=job.limit_s,
            eligible=job.eligible,
            now_s=now_s,
            from_s=ready_s,
        )
        return None if found is None else JobPlace(start_s=found[0], ready_s=ready_s, nodes=found[1])

    def keep(self, job: ScheduledJob, place: JobPlace) -> None:
        self.kept.append(job.name)


def test_job_that_waits_for_its_image_alone_needs_no_place_and_one_that_waits_for_nodes_does() -> None:
    forecast = BusyForecast(LAYOUT, [cpus(1)] * 3)
    forecast.know("busy", (Taken(nodes=(0,), start_s=0, end_s=50),))
    images = Brought({"soon": 20, "late": 60}, forecast)
    schedule = JobSchedule(forecast, ScheduleRules(places=1), images)
    for number, (wanted, image) in enumerate(((3, "soon"), (1, "soon"), (2, "late"), (2, "soon"))):
        job = ScheduledJob(
            name=str(number), nodes_wanted=wanted, need=cpus(1), limit_s=30, eligible=7, image=image
        )
        schedule.put(job, rank(Order.FCFS, candidate(job, number), 0))
    walk = schedule.walk(0, 7)

    # All three nodes are free at 50. One job has its image at 20 and is over by then; two nodes are free
    # again at 80, when the image of the third has been there for long: that is a wait for nodes, for which
    # it has no place. The last would need two nodes from 20 to 50, and one is taken.
    assert {name: place.start_s for name, place in walk.planned.items()} == {"0": 50, "1": 20}
    assert images.kept == ["0", "1"]
    assert walk.starts == {}


def test_job_that_was_told_to_start_keeps_its_nodes_until_it_is_seen_to_run() -> None:
    forecast = BusyForecast(LAYOUT, [cpus(1)])
    schedule = JobSchedule(forecast)
    for number in range(2):
        job = ScheduledJob(name=str(number), nodes_wanted=1, need=cpus(1), limit_s=10, eligible=1)
        schedule.put(job, rank(Order.FCFS, candidate(job, number), 0))
    first = schedule.walk(0, 1)
    second = schedule.walk(5, 1)
    schedule.remove("0")
    third = schedule.walk(6, 1)

    assert list(first.starts) == ["0"]
    assert (list(second.starts), second.planned["1"].start_s) == ([], 10)
    assert list(third.starts) == ["1"]


def test_orders_rank_by_what_they_are_named_after() -> None:
    short = OrderedJob(key="9", submitted_s=100, nodes_wanted=1, limit_s=10, user="ada")
    wide = OrderedJob(key="10", submitted_s=100, nodes_wanted=8, limit_s=1000, user="bob")

    def first(order: Order, **more: dict[str, int]) -> str:
        return min((short, wide), key=lambda job: rank(order, job, 200, **more)).key

    assert first(Order.FCFS) == "9", "the smaller number, not the smaller text"
    assert first(Order.AGE) == "9", "waited ten times its length, not a tenth"
    assert first(Order.SIZE) == "10"
    assert first(Order.SHARES, shares={"ada": 100_000, "bob": 900_000}) == "10"
    assert first(Order.SHARES) == "9", "nothing is known of shares"
    assert first(Order.PROGRAM, said={"10": 0, "9": 1}) == "10"
    assert first(Order.PROGRAM, said={"10": 0}) == "10", "who is left out comes last"
