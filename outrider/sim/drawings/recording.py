"""A run of one of the examples, and what happened on nodes, links and disks as boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import as_file, files

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.board import Yielding
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.links.links import ExclusiveLinks, LinkEvent, Links
from outrider.core.model import Transfer
from outrider.core.reservations.book import Shipping
from outrider.sim.drawings.values import Box, BoxKind, Lane, Mark
from outrider.sim.results.occupancy import world_occupancy
from outrider.sim.setup import Setup
from outrider.sim.workload.formats.native import read_native
from outrider.sim.workload.trace import Trace
from outrider.sim.world import Simulation, SimulationResult

LINK = "link"


class _RecordedLinks(ExclusiveLinks):
    """The thesis' two links, which write down what they carried."""

    def __init__(self, setup: RecordedSetup) -> None:
        super().__init__(rate_bytes_per_s=setup.rate_bytes_per_s, reserve_s=setup.push_back_s)
        self._events = setup.events

    def advance(self, now_s: int) -> Iterator[LinkEvent]:
        for event in super().advance(now_s):
            self._events.append(event)
            yield event


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedSetup(Setup):
    """A site as the thesis has it, at the nominal rate, in seconds, and no slower in a virtual machine."""

    events: list[LinkEvent] = field(default_factory=list, compare=False)
    shipping: Shipping = Shipping.PER_NODE
    is_reusing: bool = False
    is_extending: bool = False
    is_packing: bool = False
    is_advancing: bool = False
    is_moving: bool = False
    suspension: SuspensionRules = field(default_factory=lambda: SuspensionRules(makes_way_for_all=True))
    backfilling: Backfilling = Backfilling.GREEDY
    yielding: Yielding = Yielding.SITE_ORDER

    def links(self) -> Links:
        return _RecordedLinks(self)


def example(name: str) -> Trace:
    """A workload that is part of the package."""
    with as_file(files("outrider.sim") / "published" / "drawings" / f"{name}.jsonl") as path:
        return read_native(path)


@dataclass(frozen=True, slots=True)
class Played:
    """An example, as it went."""

    trace: Trace
    outcome: SimulationResult
    sent: tuple[tuple[Transfer, int, int], ...]
    """What the link carried: from when, until when."""

    def nodes(self) -> list[Lane]:
        return [Lane(name=node.name, units=node.capacity["cpus"]) for node in self.trace.nodes]

    def on_nodes(self) -> list[Box]:
        """Who had which of a node's processors."""
        schedule = world_occupancy(self.outcome, self.trace.name)
        firsts: list[tuple[int, str]] = []
        total = 0
        for node in self.outcome.nodes:
            firsts.append((total, node.name))
            total += node.capacity["cpus"]
        boxes = []
        for bar in schedule.bars:
            for low, high in bar.processors:
                first, lane = max(each for each in firsts if each[0] <= low)
                kind = BoxKind.RESERVATION if bar.is_reservation else BoxKind.BEST_EFFORT
                boxes.append(
                    Box(
                        lane=lane, name=schedule.names[bar.job - 1], kind=kind, start_s=bar.start_s,
                        end_s=bar.end_s, low=low - first, high=high - first + 1,
                    )
                )  # fmt: skip
        return boxes

    def on_the_link(self) -> list[Box]:
        return [
            Box(
                lane=LINK, name=f"{transfer.image.uri} to {', '.join(transfer.nodes)}", kind=BoxKind.TRANSFER,
                start_s=start_s, end_s=end_s,
            )
            for transfer, start_s, end_s in self.sent
        ]  # fmt: skip

    def on_disks(self) -> list[Box]:
        """The images that each node's disk had, from the beginning of their transfers on."""
        return [
            Box(
                lane=f"disk of {self.outcome.nodes[stay.node].name}", name=stay.key, kind=BoxKind.IMAGE,
                start_s=stay.start_s, end_s=stay.end_s,
            )
            for stay in self.outcome.stays
        ]  # fmt: skip

    def deadlines(self) -> list[Mark]:
        return [
            Mark(lane=LINK, at_s=transfer.deadline_s, words=f"{transfer.image.uri} due")
            for transfer, _, _ in self.sent
            if transfer.deadline_s is not None
        ]

    def refusals(self) -> tuple[str, ...]:
        return tuple(
            f"{submission.workspace.name}: {rejected.refusal.sentence()}"
            for submission, rejected in self.outcome.refused
        )


def play(name: str, **changes: object) -> Played:
    """Let the scheduler have an example, on a site with these changes."""
    trace = example(name)
    setup = RecordedSetup(**changes)  # type: ignore[arg-type]
    outcome = Simulation(setup, trace.nodes, trace).run()
    begun_s: dict[int, int] = {}
    sent = []
    for event in setup.events:
        if event.has_begun:
            begun_s[event.transfer.number] = event.at_s
        else:
            sent.append((event.transfer, begun_s[event.transfer.number], event.at_s))
    return Played(trace, outcome, tuple(sent))
