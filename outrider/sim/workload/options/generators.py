"""Requests with several options as the paper's evaluation draws them: Table II, synthetic, benchmark-like.

The paper's times of the NAS benchmarks are in a report that is not to be had. In their place stand irregular
options of the same kind: Amdahl's law with a parallel part and noise, on random types and numbers of VMs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from random import Random

from outrider.core.model import Node, Resources
from outrider.core.options.request import Option, Request

INTERVAL_S = 600
MINUTE_S = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class VmType:
    """A row of Table II; bids are for a minute."""

    name: str
    cpus: int
    memory_mib: int
    low_bid: float
    high_bid: float

    @property
    def resources(self) -> Resources:
        return Resources.of(cpus=self.cpus, memory_mib=self.memory_mib)


TABLE_II = tuple(
    VmType(name=name, cpus=cpus, memory_mib=round(memory_gib * 1024), low_bid=low, high_bid=high)
    for name, cpus, memory_gib, low, high in (
        ("c4.large", 2, 3.75, 0.05, 0.15),
        ("c4.xlarge", 4, 7.5, 0.15, 0.25),
        ("c4.2xlarge", 8, 15, 0.35, 0.45),
        ("r4.xlarge", 4, 30.5, 0.22, 0.32),
        ("r4.2xlarge", 8, 61, 0.48, 0.58),
        ("m4.xlarge", 4, 16, 0.15, 0.25),
        ("m4.2xlarge", 8, 32, 0.35, 0.45),
        ("m4.4xlarge", 16, 64, 0.75, 0.85),
    )
)
_CLUSTER = ((2, 16, 64), (2, 8, 32), (4, 4, 8), (8, 2, 4))
"""How many nodes have how many cores and GB: the paper's 16."""


class RequestKind(Enum):
    """How the options of a request are drawn."""

    SYNTHETIC = "synthetic"
    """Section V.C: one VM for 5 to 200 minutes; three times x as many, 1 to x times as fast."""
    BENCHMARK = "benchmark"
    """Section V.B, with irregular options in the place of the times of the NAS benchmarks."""


class Overshoot(Enum):
    """What becomes of the part of the last request that exceeds an interval's load."""

    CARRIED = "carried"
    """The next interval gets that much less, so that the average load is the one that is named."""
    KEPT = "kept"
    """It is left as it is: the paper's words, taken literally."""


class Drawing(Enum):
    """How what the paper leaves open of synthetic requests is drawn."""

    LITERAL = "literal"
    """Numbers of VMs rounded, times to a second, bids for a minute of a VM; who arrives within an interval
    is looked at when it ends."""
    BOUNDED = "bounded"
    """Whole minutes; numbers of VMs rounded down, a time shortened by no more than was added, no option
    larger than the cluster; bids for a VM, whatever its time; an interval's load within 40 % of the average;
    who arrives within an interval is known when it begins."""
    TRUNCATED = "truncated"
    """The same, but a time is shortened by no more than the ratio that was drawn, of which the number of VMs
    loses what is behind the point: some options are faster by more than they take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """The load of each interval. With `pattern` X, X intervals of `low` and one of `high`, in turn."""

    average: float = 1.0
    spread: float = 0.4
    low: float = 0.0
    high: float = 0.0
    pattern: int = 0

    @property
    def name(self) -> str:
        if self.pattern:
            return f"{self.pattern}:1 of {self.low:.0%} and {self.high:.0%}"
        return f"{self.average:g}"

    def of(self, interval: int, random: Random, *, is_relative: bool = False) -> float:
        if self.pattern:
            return self.high if interval % (self.pattern + 1) == self.pattern else self.low
        spread = self.spread * (self.average if is_relative else 1)
        return random.uniform(self.average - spread, self.average + spread)


def cluster(times: int = 1) -> tuple[Node, ...]:
    """The paper's 16 unlike nodes, or so many times as many."""
    return tuple(
        Node(name=f"n{cpus}-{number}", capacity=Resources.of(cpus=cpus, memory_mib=1024 * memory))
        for count, cpus, memory in _CLUSTER
        for number in range(count * times)
    )


def requests(
    kind: RequestKind,
    load: Load,
    seed: int,
    intervals: int,
    *,
    nodes: Sequence[Node],
    overshoot: Overshoot,
    drawing: Drawing = Drawing.LITERAL,
) -> list[list[Request]]:
    """Those that arrive within each interval."""
    random = Random(f"{kind.value} {load.name} {seed}")
    is_bounded = drawing is not Drawing.LITERAL
    draw = _synthetic if kind is RequestKind.SYNTHETIC else _benchmark
    names = ("cpus", "memory_mib")
    totals = [sum(node.capacity[name] for node in nodes) for name in names]
    found: list[list[Request]] = []
    owed, number = 0.0, 0
    for interval in range(intervals):
        target = load.of(interval, random, is_relative=is_bounded)
        target += owed if overshoot is Overshoot.CARRIED else 0.0
        arrived = []
        while target > 0:
            number += 1
            ways = _bounded(random, nodes, drawing) if is_bounded else draw(random)
            request = _request(f"r{number}", ways, interval * INTERVAL_S, random, is_bounded=is_bounded)
            first = request.options[0]
            share = max(first.total(name) / total for name, total in zip(names, totals, strict=True))
            target -= share * first.duration_s / INTERVAL_S
            arrived.append(request)
        owed = target
        found.append(sorted(arrived, key=lambda each: each.arrival_s))
    return found


def _request(
    name: str, ways: Sequence[tuple[VmType, int, int]], from_s: int, random: Random, *, is_bounded: bool
) -> Request:
    arrival_s = from_s + random.randrange(INTERVAL_S)
    longest_s = max(time_s for _, _, time_s in ways)
    bids = [
        random.uniform(kind.low_bid, kind.high_bid) * count * (1 if is_bounded else time_s / MINUTE_S)
        for kind, count, time_s in ways
    ]
    return Request(
        name=name,
        arrival_s=arrival_s,
        finish_by_s=arrival_s + round(random.uniform(2, 4) * longest_s),
        value=sum(bids) / len(bids),
        options=tuple(
            Option(instances=count, resources=kind.resources, duration_s=time_s)
            for kind, count, time_s in ways
        ),
    )


def _synthetic(random: Random) -> list[tuple[VmType, int, int]]:
    kind = random.choice(TABLE_II)
    amount, time_s = 1.0, random.uniform(5 * MINUTE_S, 200 * MINUTE_S)
    ways = [(kind, 1, round(time_s))]
    for _ in range(3):
        ratio = random.uniform(1, 3)
        amount, time_s = amount * ratio, time_s / random.uniform(1, ratio)
        ways.append((kind, max(ways[-1][1], round(amount)), max(1, round(time_s))))
    return _without_repetition(ways)


def _bounded(random: Random, nodes: Sequence[Node], drawing: Drawing) -> list[tuple[VmType, int, int]]:
    kind = random.choice(TABLE_II)
    amount, time_s = 1.0, float(random.randint(5, 200) * MINUTE_S)
    ways = [(kind, 1, round(time_s))]
    for _ in range(3):
        before = ways[-1][1]
        ratio = random.uniform(1, 3)
        amount *= ratio
        time_s /= random.uniform(1, ratio if drawing is Drawing.TRUNCATED else int(amount) / before)
        ways.append((kind, int(amount), max(1, round(time_s / MINUTE_S)) * MINUTE_S))
    needs = kind.resources.amounts
    most = min(sum(node.capacity[name] for node in nodes) // amount for name, amount in needs)
    return _without_repetition([way for way in ways if way[1] <= most])


def _benchmark(random: Random) -> list[tuple[VmType, int, int]]:
    serial_s = random.uniform(30 * MINUTE_S, 600 * MINUTE_S)
    parallel = random.uniform(0.8, 0.99)
    ways = []
    for _ in range(4):
        kind, count = random.choice(TABLE_II), random.choice((1, 1, 2, 2, 4))
        speed = 1 / ((1 - parallel) + parallel / (kind.cpus * count))
        ways.append((kind, count, max(1, round(serial_s / speed * random.uniform(0.8, 1.25)))))
    ways.sort(key=lambda way: -way[2])
    return _without_repetition(ways)


def _without_repetition(ways: Sequence[tuple[VmType, int, int]]) -> list[tuple[VmType, int, int]]:
    """The paper's times decrease from option to option: one that is as slow as the last one goes."""
    kept = [ways[0]]
    kept += [way for before, way in pairwise(ways) if way[2] < before[2]]
    return kept


def flat(arrivals: Sequence[Sequence[Request]]) -> Iterator[Request]:
    """All of them, by arrival."""
    for arrived in arrivals:
        yield from arrived
