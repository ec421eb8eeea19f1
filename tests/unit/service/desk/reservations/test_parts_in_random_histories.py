"""Reservations of parts of nodes and of whole ones, made, changed and cancelled, beside a model that looks at
every second of every node."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from outrider.metadata.notation.hostlists import expand
from outrider.service.answers.decision import Decision
from outrider.service.requests import Cancel, Modify
from outrider.service.settings import Settings
from tests.amount import few
from tests.unit.service.desk.sandbox import ADMIN, ALICE, BOB, RATE, Sandbox, wanted

NODES, CPUS, STEPS = 3, 5, 30
SETTINGS = Settings(
    link_rate_bytes_per_s=RATE, reserve_s=60, look_every_s=5, offers_held_s=0, parts=("cpus",)
)


@dataclass(frozen=True, kw_only=True)
class Held:
    """A reservation. Without processors it has its nodes as a whole."""

    nodes: tuple[str, ...]
    start_s: int
    end_s: int
    cpus: int | None


@dataclass
class Naive:
    """Who has what, and nothing derived from it."""

    held: dict[str, Held] = field(default_factory=dict)
    has_cores: bool = False
    kept: dict[str, dict[str, set[int]]] = field(default_factory=dict)
    """By reservation and node, which processors it has."""

    def enter(self, name: str, held: Held) -> None:
        self.held[name] = held
        if self.has_cores:
            self.cores(name)

    def room(self, node: str, at_s: int, without: str) -> int | None:
        """The processors that are free at that second; None if the node is nobody's at all."""
        here = [
            each
            for name, each in self.held.items()
            if name != without and node in each.nodes and each.start_s <= at_s < each.end_s
        ]
        if not here:
            return None
        return CPUS - sum(CPUS if each.cpus is None else each.cpus for each in here)

    def has_room(self, node: str, cpus: int | None, start_s: int, end_s: int, without: str) -> bool:
        rooms = {self.room(node, at_s, without) for at_s in range(start_s, end_s)}
        if cpus is None:
            return rooms == {None}
        return all(room is None or room >= cpus for room in rooms) and cpus <= CPUS

    def could(self, nodes: int, cpus: int | None, start_s: int, end_s: int, without: str = "") -> bool:
        names = [f"n{number}" for number in range(1, NODES + 1)]
        return sum(self.has_room(name, cpus, start_s, end_s, without) for name in names) >= nodes

    def cores(self, name: str) -> None:
        """Give a reservation certain processors on each of its nodes, the lowest that are nobody else's at
        any instant of its time, as Slurm does; there have to be enough."""
        mine = self.held[name]
        self.kept.pop(name, None)
        found = {}
        for node in mine.nodes:
            others = [
                self.kept[other][node]
                for other, each in self.held.items()
                if other != name
                and node in each.nodes
                and each.start_s < mine.end_s
                and mine.start_s < each.end_s
            ]
            free = sorted(set(range(CPUS)).difference(*others))
            count = CPUS if mine.cpus is None else mine.cpus
            assert len(free) >= count, (name, node, others)
            found[node] = set(free[:count])
        self.kept[name] = found

    def check(self, name: str, held: Held, nodes: int) -> None:
        assert len(set(held.nodes)) == len(held.nodes) == nodes
        for node in held.nodes:
            assert self.has_room(node, held.cpus, held.start_s, held.end_s, name), (name, held)


@pytest.mark.parametrize("has_cores", [False, True])
@pytest.mark.parametrize("seed", range(few(36)))
def test_parts_are_never_promised_twice_and_never_refused_in_vain(
    tmp_path: Path, seed: int, has_cores: bool
) -> None:
    """Where a reservation has certain processors there are as many for it; more may be refused."""
    chance, naive = random.Random(seed), Naive(has_cores=has_cores)
    site = Sandbox(tmp_path, nodes=NODES, cpus=CPUS, settings=replace(SETTINGS, has_fixed_parts=has_cores))
    site.sleep(320)
    decided = {"accepted": 0, "refused": 0}
    for _ in range(STEPS * 2 if has_cores else STEPS):
        site.sleep(chance.choice((1, 7, 60)))
        naive.held = {name: each for name, each in naive.held.items() if each.end_s > site.now_s}
        waiting = sorted(name for name, each in naive.held.items() if each.start_s > site.now_s)
        what = chance.random()
        if what < (0.3 if has_cores else 0.15) and waiting:
            name = chance.choice(waiting)
            site.ask(Cancel(name=name), ADMIN)
            del naive.held[name]
        elif what < 0.4 and waiting:
            _change(site, naive, chance, chance.choice(waiting), decided)
        else:
            _reserve(site, naive, chance, decided)
    seen = {each.name: each for each in site.rms.look().reservations}
    for name, held in naive.held.items():
        assert seen[name].nodes == held.nodes
        assert seen[name].size["cpus"] == (held.cpus or 0)
    site.close()
    assert decided["accepted"] > 0
    assert has_cores or decided["refused"] > 0


def _reserve(site: Sandbox, naive: Naive, chance: random.Random, decided: dict[str, int]) -> None:
    nodes, cpus = chance.randint(1, NODES), chance.choice((None, *range(1, CPUS + 1)))
    if naive.has_cores:
        # Small ones that come and go leave others' processors scattered.
        nodes, cpus = chance.randint(1, 2), chance.choice((1, 2, 2))
    start_s = site.now_s + chance.randrange(120, 900, 20)
    lasts_s = chance.randrange(60, 600, 20)
    request = wanted(
        site, nodes=nodes, cpus=cpus or 1, start=f"uts{start_s}", duration=f"{lasts_s}s", size_bytes=RATE
    )
    if cpus is None:
        deployment = request.workspace.deployment
        assert deployment is not None
        deployment.__pydantic_fields_set__.discard("cpus")
    answer = site.ask(request, chance.choice((ALICE, BOB)))
    assert isinstance(answer, Decision)
    decided[answer.result] += 1
    if answer.result == "accepted":
        held = Held(nodes=expand(answer.nodes), start_s=start_s, end_s=start_s + lasts_s, cpus=cpus)
        naive.check(answer.name, held, nodes)
        naive.enter(answer.name, held)
    elif not naive.has_cores:
        assert answer.cause == "slots", answer.reason
        assert not naive.could(nodes, cpus, start_s, start_s + lasts_s), answer.reason
        _check_earliest(naive, nodes, cpus, start_s, lasts_s, answer.earliest_start_s)


def _check_earliest(
    naive: Naive, nodes: int, cpus: int | None, start_s: int, lasts_s: int, earliest_s: int | None
) -> None:
    """It works, and a second sooner does not."""
    assert earliest_s is not None
    assert naive.could(nodes, cpus, earliest_s, earliest_s + lasts_s)
    assert not naive.could(nodes, cpus, earliest_s - 1, earliest_s - 1 + lasts_s)


def _change(site: Sandbox, naive: Naive, chance: random.Random, name: str, decided: dict[str, int]) -> None:
    before = naive.held[name]
    nodes = chance.choice((None, chance.randint(1, NODES)))
    cpus = chance.choice((None, chance.randint(1, CPUS)))
    lasts_s = before.end_s - before.start_s + chance.choice((0, 60, -20))
    answer = site.ask(Modify(name=name, nodes=nodes, cpus=cpus, duration_s=max(20, lasts_s)), ADMIN)
    assert isinstance(answer, Decision)
    decided[answer.result] += 1
    end_s, count = before.start_s + max(20, lasts_s), nodes or len(before.nodes)
    if answer.result == "accepted":
        after = replace(before, nodes=expand(answer.nodes), end_s=end_s, cpus=cpus or before.cpus)
        naive.check(name, after, count)
        naive.enter(name, after)
    elif not naive.has_cores:
        assert answer.cause == "slots", answer.reason
        assert not naive.could(count, cpus or before.cpus, before.start_s, end_s, without=name)
