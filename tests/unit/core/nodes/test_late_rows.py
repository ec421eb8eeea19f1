"""A table that enters whole nodes late, beside one that enters everything at once."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.model import Node, Resources
from outrider.core.nodes import late_rows
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import SiteTimeline
from tests.amount import examples

NODES, CPUS, HORIZON_S = 7, 2, 500


class TwoTables:
    """The same leases in both, which come, end early and are looked at at random."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        nodes = [Node(name=f"n{each}", capacity=Resources.of(cpus=CPUS)) for each in range(NODES)]
        self.late, self.plain = SiteTimeline(nodes, is_tidy=False), SiteTimeline(nodes)
        self.needs = [self.plain.layout.pack(Resources.of(cpus=cpus)) for cpus in (1, CPUS)]
        self.leases: list[tuple[list[tuple[int, int]], int, int]] = []
        self.now_s = 0

    def change(self) -> None:
        chance, now_s = self.chance, self.now_s
        if self.leases and chance.random() < 0.2:
            self.interrupt(chance.randrange(len(self.leases)))
            return
        if self.leases and chance.random() < 0.45:
            amounts, start_s, end_s = self.leases.pop(chance.randrange(len(self.leases)))
            from_s = max(start_s, now_s + chance.choice((0, 0, 10)))
            for table in (self.late, self.plain):
                if from_s < end_s:
                    table.release_all(amounts, from_s, end_s)
            return
        start_s = now_s + chance.randrange(HORIZON_S)
        end_s = start_s + chance.randrange(1, HORIZON_S)
        need = self.needs[chance.random() < 0.8]
        free = [node for node, row in enumerate(self.plain.rows) if row.fits(need, start_s, end_s)]
        amounts = [(node, need) for node in chance.sample(free, min(len(free), chance.randrange(1, 5)))]
        if amounts:
            self.late.reserve_all(amounts, start_s, end_s)
            self.plain.reserve_all(amounts, start_s, end_s)
            self.leases.append((amounts, start_s, end_s))

    def interrupt(self, which: int) -> None:
        """A lease gives a part of its time back and has it again, or is two from then on."""
        chance = self.chance
        amounts, start_s, end_s = self.leases[which]
        from_s = max(start_s, self.now_s) + chance.randrange(60)
        until_s = from_s + chance.randrange(1, 60)
        if until_s >= end_s:
            return
        for table in (self.late, self.plain):
            table.release_all(amounts, from_s, until_s)
        if chance.random() < 0.5:
            for table in (self.late, self.plain):
                table.reserve_all(amounts, from_s, until_s)
        else:
            self.leases[which] = amounts, start_s, from_s
            self.leases.append((amounts, until_s, end_s))

    def steps(self, table: SiteTimeline, node: int) -> list[tuple[int, int, int]]:
        return list(table.rows[node].steps(self.now_s, self.now_s + 4 * HORIZON_S))


@pytest.mark.parametrize("seed", range(examples(60)))
def test_whoever_asks_is_told_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_rows, "FEWEST", 1 + seed % 9)
    tables, chance = TwoTables(seed), Random(seed)
    whole = tables.needs[1]
    for _ in range(80):
        tables.change()
        if chance.random() < 0.3:
            tables.now_s += chance.randrange(60)
            tables.late.pass_until(tables.now_s)
        at_s = tables.now_s + chance.randrange(HORIZON_S)
        nodes = chance.sample(range(NODES), chance.randrange(1, 4))
        shares = [(node, 1, whole) for node in nodes]
        mask = sum(1 << node for node in nodes)
        rows = [tables.plain.rows[node] for node in nodes]

        for need in tables.needs:
            assert tables.late.free_nodes(need, at_s) == tables.plain.free_nodes(need, at_s)
        if chance.random() < 0.3:
            node = chance.randrange(NODES)
            assert tables.steps(tables.late, node) == tables.steps(tables.plain, node)
        masks = tables.late.whole_masks(shares)
        assert masks is not None
        until_s = min(row.free_until(whole, at_s) for row in rows)
        assert masks.all_until(mask, at_s, FOREVER) == until_s
        next_s = masks.next_all(mask, at_s, FOREVER)
        assert all(row.fits(whole, next_s, next_s + 1) for row in rows)
        edges = {at_s, *(edge_s for row in rows for edge_s in row.times if at_s < edge_s < next_s)} - {next_s}
        assert not any(all(row.fits(whole, each, each + 1) for row in rows) for each in edges)
        losses = list(masks.losses(at_s, mask))
        untils = {row.free_until(whole, at_s) for row in rows if row.fits(whole, at_s, at_s + 1)}
        assert losses == sorted(untils - {FOREVER})


def test_what_is_taken_twice_or_was_never_taken_is_an_error() -> None:
    tables = TwoTables(0)
    whole = tables.needs[1]
    tables.late.reserve_all([(0, whole), (1, whole)], 10, 20)

    with pytest.raises(ValueError, match="not free"):
        tables.late.reserve_all([(1, whole), (2, whole)], 15, 30)
    with pytest.raises(ValueError, match="never reserved"):
        tables.late.release_all([(1, whole), (2, whole)], 15, 20)
    assert tables.late.free_nodes(whole, 15) == 0b1111100


def test_parts_of_nodes_and_unlike_nodes_are_not_taken_as_a_whole() -> None:
    tables = TwoTables(0)
    unlike = SiteTimeline(
        [Node(name=f"n{cpus}", capacity=Resources.of(cpus=cpus)) for cpus in (1, 2)], is_tidy=False
    )

    assert tables.late.whole_masks([(0, 2, tables.needs[1])]) is None
    assert tables.late.whole_masks([(0, 1, tables.needs[0])]) is None
    assert unlike.whole_masks([(0, 1, 1)]) is None
