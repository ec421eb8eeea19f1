"""One walk through 10,000 jobs that wait, on 5,000 nodes of which nearly all run something.

Measured is CPU time: a first walk, in which what is free is given away, one in which nothing has changed, one
after a job has come, one after one of those that wait has been withdrawn, and one after a job has ended,
whose nodes others then get. Who is told to start runs. A walk is made in slices, and whoever asks something
else waits for one of them. The bounds are 100 ms for a walk and 5 ms (medians) for a change of one job with
EASY backfilling, and for the longest slice of a change with that and with conservative backfilling; the other
rules are shown beside. The baseline is a second site of the same jobs whose walks are made in one go: both
have to decide the same, and the ratio says what slices cost in all.
"""

from __future__ import annotations

import gc
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import Arguments, judged
from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.jobs.order import Order, OrderedJob, rank
from outrider.core.besteffort.jobs.schedule import JobPlace, JobSchedule, ScheduledJob, ScheduleRules
from outrider.core.model import Resources
from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.forecast import BusyForecast, Taken

WALK_MS, CHANGE_MS = 100, 5
NOW_S, DAY_S = 1_000_000, 86_400
CPUS, MIB_A_CPU = 64, 2_000
FREE_NODES = 20
WIDTHS = (1, 1, 2, 4, 8, 16, 64)
JUDGED = ("easy", "conservative")
RULES = {
    "easy": ScheduleRules(places=1),
    "10 places": ScheduleRules(places=10),
    "conservative": ScheduleRules(places=None),
    "greedy": ScheduleRules(backfilling=Backfilling.GREEDY),
    "off": ScheduleRules(backfilling=Backfilling.OFF),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Walked:
    """In milliseconds: a whole walk, and the longest of its slices; and who has what place."""

    whole: float
    longest: float
    starts: dict[str, JobPlace]
    planned: dict[str, JobPlace]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Of one rule."""

    first: Walked
    again: Walked
    comes: Walked
    goes: tuple[Walked, ...]
    ends: tuple[Walked, ...]

    @property
    def walk_ratio(self) -> float:
        return max(self.first.whole, self.again.whole) / WALK_MS

    @property
    def change_ratio(self) -> float:
        return max(self.comes.whole, _whole(self.goes), _whole(self.ends)) / CHANGE_MS

    @property
    def slice_ratio(self) -> float:
        return max(self.comes.longest, _longest(self.goes), _longest(self.ends)) / CHANGE_MS

    @property
    def places(self) -> list[tuple[dict[str, JobPlace], dict[str, JobPlace]]]:
        walks = (self.first, self.again, self.comes, *self.goes, *self.ends)
        return [(each.starts, each.planned) for each in walks]


def _whole(walks: tuple[Walked, ...]) -> float:
    return median(each.whole for each in walks)


def _longest(walks: tuple[Walked, ...]) -> float:
    return median(each.longest for each in walks)


class Queue:
    """A site that is full, and jobs that wait for it."""

    def __init__(self, nodes: int, jobs: int, rules: ScheduleRules, *, is_sliced: bool) -> None:
        self._is_sliced = is_sliced
        self._chance = random.Random(1)
        self._layout = ResourceLayout(["cpus", "memory_mib"])
        self._whole = self._need(CPUS)
        self.everyone = (1 << nodes) - 1
        self.forecast = BusyForecast(self._layout, [self._whole] * nodes)
        self.running: list[Taken] = []
        free = list(range(nodes))
        while len(free) > FREE_NODES:
            count = min(len(free) - FREE_NODES, self._chance.choice(WIDTHS))
            end_s = NOW_S + self._chance.randrange(60, DAY_S)
            theirs = tuple(free.pop() for _ in range(count))
            taken = Taken(nodes=theirs, start_s=0, end_s=end_s, amount=self._whole)
            self.forecast.know(f"job {len(self.running)}", (taken,))
            self.running.append(taken)
        self.schedule = JobSchedule(self.forecast, rules)
        self.waiting: dict[str, ScheduledJob] = {}
        for number in range(jobs):
            self.submit(str(number), number)

    def _need(self, cpus: int) -> int:
        return self._layout.pack(Resources.of(cpus=cpus, memory_mib=cpus * MIB_A_CPU))

    def submit(self, name: str, submitted_s: int) -> None:
        job = ScheduledJob(
            name=name,
            nodes_wanted=self._chance.choice(WIDTHS),
            need=self._need(self._chance.choice((CPUS, CPUS, CPUS // 2, CPUS // 4))),
            limit_s=self._chance.randrange(600, DAY_S),
            eligible=self.everyone,
        )
        known = OrderedJob(
            key=name, submitted_s=submitted_s, nodes_wanted=job.nodes_wanted, limit_s=job.limit_s
        )
        self.waiting[name] = job
        self.schedule.put(job, rank(Order.FCFS, known, NOW_S))

    def walk(self) -> Walked:
        slices, starts, is_over = list[float](), dict[str, JobPlace](), False
        decide = self.schedule.go_on if self._is_sliced else self.schedule.walk
        while not is_over:
            began = process_time()
            walk = decide(NOW_S, self.everyone)
            slices.append((process_time() - began) * 1_000)
            starts |= walk.starts
            is_over = walk.is_over
        for name, place in starts.items():
            job = self.waiting.pop(name)
            taken = Taken(nodes=place.nodes, start_s=0, end_s=NOW_S + job.limit_s, amount=job.need)
            self.schedule.remove(name)
            self.forecast.know(f"job {len(self.running)}", (taken,))
            self.running.append(taken)
        return Walked(whole=sum(slices), longest=max(slices), starts=starts, planned=walk.planned)

    def end(self, number: int) -> Walked:
        self.forecast.know(f"job {number}", ())
        return self.walk()

    def withdraw(self, name: str) -> Walked:
        self.schedule.remove(name)
        del self.waiting[name]
        return self.walk()


def measured(nodes: int, jobs: int, changes: int, rules: ScheduleRules, *, is_sliced: bool) -> Figures:
    queue = Queue(nodes, jobs, rules, is_sliced=is_sliced)
    # As the service does with what it has loaded.
    gc.freeze()
    first = queue.walk()
    again = queue.walk()
    queue.submit("one more", jobs)
    comes = queue.walk()
    chance = random.Random(2)
    goes = tuple(queue.withdraw(chance.choice(list(queue.waiting))) for _ in range(changes))
    ends = tuple(queue.end(number) for number in chance.sample(range(len(queue.running)), changes))
    return Figures(first=first, again=again, comes=comes, goes=goes, ends=ends)


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--nodes", 5_000, 200, "nodes")
    parser.add("--jobs", 10_000, 300, "jobs that wait")
    parser.add("--changes", 50, 3, "jobs that end, one at a time")
    given = parser.given()
    print(f"{given.jobs} jobs on {given.nodes} nodes, CPU milliseconds")
    is_good = True
    for name, rules in RULES.items():
        found, in_one_go = (
            measured(given.nodes, given.jobs, given.changes, rules, is_sliced=is_sliced)
            for is_sliced in (True, False)
        )
        if found.places != in_one_go.places:
            raise SystemExit(f"{name}: slices decide what a walk in one go does not")
        print(
            f"{name:12} first {found.first.whole:6.1f}  again {found.again.whole:5.1f}  "
            f"one comes {found.comes.whole:5.1f}  one goes {_whole(found.goes):5.1f}  "
            f"one ends {_whole(found.ends):5.1f}, in slices of at most {_longest(found.ends):4.1f} "
            f"(the longest {max(each.longest for each in found.ends):4.1f}), in one go "
            f"{_whole(in_one_go.ends):5.1f} ({_whole(found.ends) / _whole(in_one_go.ends):.2f}); "
            f"{len(found.first.starts)} start, {len(found.first.planned)} planned; "
            f"{found.walk_ratio:.2f} of {WALK_MS} ms, change {found.change_ratio:.2f}, slice "
            f"{found.slice_ratio:.2f} of {CHANGE_MS} ms",
            flush=True,
        )
        if name in JUDGED:
            is_good = is_good and found.walk_ratio <= 1 and found.slice_ratio <= 1
        if name == "easy":
            is_good = is_good and found.change_ratio <= 1
    return judged(given, is_good=is_good)


if __name__ == "__main__":
    sys.exit(main())
