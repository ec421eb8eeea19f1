"""The paper's example: Table I and Figure 1, and what it prints of them."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.core.model import Node, Resources
from outrider.core.options.machines import Mapping
from outrider.core.options.plan import provisioner
from outrider.core.options.priority import FactorReading
from outrider.core.options.request import Option, Request
from outrider.core.options.schemes import Rules, Scheme, Service, Starts

INTERVAL = 10
_TYPES = {
    1: Resources.of(cpus=2, memory=4),
    2: Resources.of(cpus=4, memory=8),
    3: Resources.of(cpus=8, memory=16),
}
NODES = (
    Node(name="N1", capacity=Resources.of(cpus=4, memory=8)),
    Node(name="N2", capacity=Resources.of(cpus=16, memory=32)),
)
_TABLE_I = {
    "th1": (0, 26, 16, ((1, 1, 21), (2, 1, 11), (3, 1, 7))),
    "th2": (0, 29, 10, ((2, 1, 27), (3, 1, 14))),
    "th3": (0, 24, 4, ((2, 1, 20), (2, 2, 11), (2, 4, 6))),
    "th4": (10, 20, 9, ((2, 1, 7), (2, 2, 4), (2, 4, 3))),
    "th5": (10, 24, 3, ((3, 1, 9), (3, 2, 5))),
    "th6": (10, 37, 18, ((1, 1, 17), (1, 2, 10))),
    "th7": (20, 36, 25, ((2, 1, 15), (2, 2, 11))),
    "th8": (20, 42, 17, ((2, 1, 19), (3, 2, 7))),
    "th9": (20, 44, 9, ((2, 1, 20), (2, 2, 12))),
    "th10": (20, 41, 3, ((2, 2, 8), (2, 4, 5))),
    "th11": (20, 36, 1, ((2, 1, 10), (2, 2, 6))),
}
"""Arrival, deadline, bid, options (VM type, count, time)."""

PRINTED_LOST = {
    Scheme.FIRST: ("th5", "th10", "th11"),
    Scheme.LAST: ("th4", "th5", "th8", "th10"),
    Scheme.ADAPTIVE: (),
}
SCHEMES = (
    Scheme.FIRST, Scheme.LAST, Scheme.GREEDY_FIRST, Scheme.GREEDY_LAST, Scheme.ADAPTIVE,
    Scheme.ADAPTIVE_FALLBACK, Scheme.PLAN, Scheme.PLAN_SCALED,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class ExampleRun:
    """What one scheme makes of the example."""

    scheme: str
    lost: tuple[str, ...]
    printed_lost: tuple[str, ...] | None
    benefit: float
    schedule: tuple[str, ...]


def requests() -> tuple[Request, ...]:
    """Table I."""
    return tuple(
        Request(
            name=name,
            arrival_s=arrival,
            finish_by_s=deadline,
            value=bid,
            options=tuple(
                Option(instances=count, resources=_TYPES[kind], duration_s=time) for kind, count, time in ways
            ),
        )
        for name, (arrival, deadline, bid, ways) in _TABLE_I.items()
    )


def rules(scheme: Scheme, reading: FactorReading = FactorReading.GOLDEN) -> Rules:
    """The reading that gives the printed orders: places kept until later, each request on one node."""
    return Rules(
        scheme=scheme, reading=reading, starts=Starts.PLANNED, mapping=Mapping.NEAREST, is_bundled=True
    )


def served(scheme: Scheme, reading: FactorReading = FactorReading.GOLDEN) -> tuple[Service, ...]:
    """Who is served, by start."""
    asked = requests()
    site = provisioner(NODES, rules(scheme, reading))
    last = max(request.finish_by_s for request in asked)
    for now in range(0, last + 1, INTERVAL):
        site.step(now, [request for request in asked if request.arrival_s == now])
    site.finish()
    return tuple(sorted(site.outcome.served, key=lambda each: (each.start_s, each.request.name)))


def example(reading: FactorReading = FactorReading.GOLDEN) -> tuple[ExampleRun, ...]:
    """All schemes, beside what the paper prints."""
    asked = requests()
    found = []
    for scheme in SCHEMES:
        runs = served(scheme, reading)
        names = {each.request.name for each in runs}
        found.append(
            ExampleRun(
                scheme=scheme.value,
                lost=tuple(each.name for each in asked if each.name not in names),
                printed_lost=PRINTED_LOST.get(scheme),
                benefit=sum(each.request.value for each in runs) / sum(each.value for each in asked),
                schedule=tuple(
                    f"{each.request.name}o{each.index + 1}[{each.start_s},{each.end_s})" for each in runs
                ),
            )
        )
    return tuple(found)
