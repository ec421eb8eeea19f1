"""Random sites and traces, and a world that writes down what its links did and is sure to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.links.links import LinkEvent, Links
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.core.reservations.book import Shipping
from outrider.sim.faults import Fault, LinkFault, NodeFault
from outrider.sim.setup import Setup
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import EventOrder, Simulation, SimulationResult

RATE = 100
MOST_EVENTS = 20_000
"""Far more than the traces of these tests need, which have a few dozen submissions."""


@dataclass(frozen=True, kw_only=True)
class RecordedSetup(Setup):
    """A setup whose links write down their events."""

    events: list[LinkEvent] = field(default_factory=list, compare=False)

    def links(self) -> Links:
        links = super().links()
        advance = links.advance

        def recorded(now_s: int) -> Iterator[LinkEvent]:
            for event in advance(now_s):
                self.events.append(event)
                yield event

        links.advance = recorded  # type: ignore[method-assign]
        return links


class FiniteWorld(Simulation):
    """A world that complains instead of going on forever."""

    def _at(self, at_s: int, order: EventOrder, happen: Callable[..., None], *arguments: object) -> None:
        assert at_s >= self.now_s, f"at {self.now_s} something is to happen at {at_s}"
        assert self._sequence < MOST_EVENTS, f"at {self.now_s} after {self._sequence} events"
        super()._at(at_s, order, happen, *arguments)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A site, a trace and faults, all drawn from one seed."""

    setup: RecordedSetup
    nodes: tuple[Node, ...]
    trace: Trace
    faults: tuple[Fault, ...] = ()

    def run(self) -> SimulationResult:
        return FiniteWorld(self.setup, self.nodes, self.trace, self.faults).run()


MOST_NODES = 16


def random_rules(random: Random) -> SuspensionRules:
    # What is drawn here leaves all else as it would be drawn without it.
    beside = Random(str(random.getstate()[1][:4]))
    percents = [beside.choice([100, 100, 50, 300]) for _ in range(MOST_NODES)]
    return SuspensionRules(
        node_percents=tuple(percents) if beside.random() < 0.5 else (),
        is_allowed=random.random() < 0.8,
        disk_bytes_per_s=random.choice([None, 1 << 20, 1 << 20, 3 << 20]),
        is_serialised=random.random() < 0.7,
        is_migrating=random.random() < 0.3,
        migration_bytes_per_s=random.choice([1 << 20, 1 << 24]),
        makes_way_for_all=random.random() < 0.4,
        least_run_s=random.choice([1, 1, 10, 60]),
    )


def oldest_first(entry: object, now_s: int) -> tuple[int, ...]:
    """A policy for images that linger: all alike, so their names decide."""
    return ()


def random_setup(random: Random) -> RecordedSetup:
    keep = random.choice([0, 0, 5_000])
    return RecordedSetup(
        rate_bytes_per_s=RATE,
        quantum_s=random.choice([1, 1, 7, 60]),
        slowdown_percent=random.choice([0, 10]),
        shipping=random.choice(list(Shipping)),
        is_reusing=random.random() < 0.7,
        is_extending=random.random() < 0.5,
        pool_bytes=random.choice([None, None, 4_000, 9_000]),
        keep_bytes=keep,
        rank=oldest_first if keep else None,
        best_effort_percent=random.choice([None, None, 0, 20, 50]),
        push_back_s=random.choice([None, 0, 0, 30]),
        backfilling=random.choice(list(Backfilling)),
        places=random.choice([1, 1, 2, None]),
        suspension=random_rules(random),
    )


def random_trace(random: Random, nodes: Sequence[Node], submissions: int) -> Trace:
    images = [
        Image(uri=f"image-{number}", size_bytes=random.randint(1, 4_000))
        for number in range(random.randint(1, 5))
    ]
    made: list[TraceSubmission] = []
    at_s = 0
    for number in range(submissions):
        at_s += random.choice([0, 0, random.randint(0, 30), random.randint(0, 200)])
        duration_s = random.choice([random.randint(1, 30), random.randint(1, 400)])
        start_s = None
        if random.random() < 0.35:
            start_s = at_s + random.choice([0, random.randint(0, 60), random.randint(0, 800)])
        workspace = Workspace(
            name=f"{'r' if start_s is not None else 'b'}{number}",
            instances=random.randint(1, len(nodes) + 1),
            resources=Resources.of(cpus=random.randint(1, 2), memory_mib=random.randint(1, 20)),
            duration_s=duration_s,
            image=random.choice(images) if random.random() < 0.8 else None,
            start_s=start_s,
            is_parallel=random.random() < 0.7,
            is_preemptible=random.random() < 0.8,
        )
        run_s = random.choice([duration_s, duration_s, 0, random.randint(0, duration_s)])
        made.append(TraceSubmission(at_s=at_s, workspace=workspace, run_s=run_s))
    return Trace(name="random", submissions=made)


def random_faults(random: Random, nodes: Sequence[Node]) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    for _ in range(random.randint(0, 4)):
        at_s = random.randint(0, 1500)
        node = random.choice(nodes).name
        faults.append(NodeFault(node=node, at_s=at_s, until_s=at_s + random.randint(1, 600)))
    for _ in range(random.randint(0, 3)):
        at_s = random.randint(0, 1500)
        faults.append(
            LinkFault(at_s=at_s, until_s=at_s + random.randint(1, 500), percent=random.randint(1, 300))
        )
    return tuple(faults)


def random_case(seed: int, *, has_faults: bool) -> Case:
    random = Random(seed)
    nodes = tuple(
        Node(name=f"n{number}", capacity=Resources.of(cpus=random.choice([1, 2, 4]), memory_mib=64))
        for number in range(random.randint(1, 5))
    )
    setup = random_setup(random)
    trace = random_trace(random, nodes, random.randint(1, 25))
    case = Case(setup=setup, nodes=nodes, trace=trace)
    return replace(case, faults=random_faults(random, nodes)) if has_faults else case


@pytest.fixture
def case_of() -> Callable[..., Case]:
    """Makes the random case of a seed."""
    return random_case
