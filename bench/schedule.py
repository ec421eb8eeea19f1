"""One walk through 10,000 jobs that wait, on 5,000 nodes of which nearly all run something.

Measured is CPU time: a first walk, in which what is free is given away, one in which nothing has changed, one
after a job has come, one after one of those that wait has been withdrawn, and one after a job has ended,
whose nodes others then get. Who is told to start runs. The bounds are 100 ms for a walk and 5 ms (median) for
a change of one job, with EASY backfilling; the other rules are shown beside.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import Arguments, judged
from outrider.core.besteffort.jobs.order import Order, OrderedJob, rank
from outrider.core.besteffort.jobs.schedule import JobSchedule, ScheduledJob, ScheduleRules
from outrider.core.besteffort.overtaking import Backfilling
from outrider.core.model import Resources
from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.forecast import BusyForecast, Taken

WALK_MS, CHANGE_MS = 100, 5
NOW_S, DAY_S = 1_000_000, 86_400
CPUS, MIB_A_CPU = 64, 2_000
FREE_NODES = 20
WIDTHS = (1, 1, 2, 4, 8, 16, 64)
RULES = {
    "easy": ScheduleRules(places=1),
    "10 places": ScheduleRules(places=10),
    "conservative": ScheduleRules(places=None),
    "greedy": ScheduleRules(backfilling=Backfilling.GREEDY),
    "off": ScheduleRules(backfilling=Backfilling.OFF),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Of one rule, in milliseconds."""

    first: float
    again: float
    comes: float
    goes: tuple[float, ...]
    ends: tuple[float, ...]
    started: int
    planned: int

    @property
    def walk_ratio(self) -> float:
        return max(self.first, self.again) / WALK_MS

    @property
    def change_ratio(self) -> float:
        return max(self.comes, median(self.goes), median(self.ends)) / CHANGE_MS


class Queue:
    """A site that is full, and jobs that wait for it."""

    def __init__(self, nodes: int, jobs: int, rules: ScheduleRules) -> None:
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

    def walk(self) -> tuple[float, int, int]:
        """Milliseconds, who started, and who has a place."""
        began = process_time()
        walk = self.schedule.walk(NOW_S, self.everyone)
        took_ms = (process_time() - began) * 1_000
        for name, place in walk.starts.items():
            job = self.waiting.pop(name)
            taken = Taken(nodes=place.nodes, start_s=0, end_s=NOW_S + job.limit_s, amount=job.need)
            self.schedule.remove(name)
            self.forecast.know(f"job {len(self.running)}", (taken,))
            self.running.append(taken)
        return took_ms, len(walk.starts), len(walk.planned)

    def end(self, number: int) -> float:
        self.forecast.know(f"job {number}", ())
        return self.walk()[0]

    def withdraw(self, name: str) -> float:
        self.schedule.remove(name)
        del self.waiting[name]
        return self.walk()[0]


def measured(nodes: int, jobs: int, changes: int, rules: ScheduleRules) -> Figures:
    queue = Queue(nodes, jobs, rules)
    first, started, planned = queue.walk()
    again, _, _ = queue.walk()
    queue.submit("one more", jobs)
    comes, _, _ = queue.walk()
    chance = random.Random(2)
    goes = tuple(queue.withdraw(chance.choice(list(queue.waiting))) for _ in range(changes))
    ends = tuple(queue.end(number) for number in chance.sample(range(len(queue.running)), changes))
    return Figures(
        first=first, again=again, comes=comes, goes=goes, ends=ends, started=started, planned=planned
    )


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--nodes", 5_000, 200, "nodes")
    parser.add("--jobs", 10_000, 300, "jobs that wait")
    parser.add("--changes", 50, 3, "jobs that end, one at a time")
    given = parser.given()
    print(f"{given.jobs} jobs on {given.nodes} nodes, CPU milliseconds")
    is_good = True
    for name, rules in RULES.items():
        found = measured(given.nodes, given.jobs, given.changes, rules)
        print(
            f"{name:12} first {found.first:6.1f}  again {found.again:6.1f}  one comes {found.comes:5.1f}  "
            f"one goes {median(found.goes):5.1f}  "
            f"one ends {median(found.ends):5.1f}, at most {max(found.ends):5.1f}; "
            f"{found.started} start, {found.planned} planned; "
            f"{found.walk_ratio:.2f} of {WALK_MS} ms, {found.change_ratio:.2f} of {CHANGE_MS} ms",
            flush=True,
        )
        if name == "easy":
            is_good = found.walk_ratio <= 1 and found.change_ratio <= 1
    return judged(given, is_good=is_good)


if __name__ == "__main__":
    sys.exit(main())
