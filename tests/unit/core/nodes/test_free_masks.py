"""Which nodes are free when: as the tables of single nodes say it, after any changes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from outrider.core.model import Node, Resources
from outrider.core.nodes import timeline as slot_table
from outrider.core.nodes.earliest_slots import SlotSweep
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.selection import first_whole, fit
from outrider.core.nodes.timeline import BUCKET_S, SiteTimeline
from tests.amount import examples

NODES, CPUS, HORIZON_S = 6, 2, 3 * BUCKET_S


class ChangingSite:
    """A table in which leases come and go at random."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        nodes = [Node(name=f"n{each}", capacity=Resources.of(cpus=CPUS)) for each in range(NODES)]
        self.table = SiteTimeline(nodes, is_tidy=False)
        self.needs = [self.table.layout.pack(Resources.of(cpus=cpus)) for cpus in (1, CPUS)]
        self.leases: list[tuple[list[tuple[int, int]], int, int]] = []

    def change(self, from_s: int) -> None:
        """One lease more, or one less."""
        chance, table = self.chance, self.table
        if self.leases and chance.random() < 0.4:
            amounts, start_s, end_s = self.leases.pop(chance.randrange(len(self.leases)))
            if max(start_s, from_s) < end_s:
                table.release_all(amounts, max(start_s, from_s), end_s)
            return
        start_s = from_s + chance.randrange(HORIZON_S)
        end_s = start_s + chance.randrange(1, HORIZON_S)
        need = chance.choice(self.needs)
        free = [node for node, row in enumerate(table.rows) if row.fits(need, start_s, end_s)]
        amounts = [(node, need) for node in chance.sample(free, min(len(free), chance.randrange(1, 4)))]
        if amounts:
            table.reserve_all(amounts, start_s, end_s)
            self.leases.append((amounts, start_s, end_s))


@pytest.mark.parametrize("seed", range(examples(40)))
def test_masks_say_what_the_tables_of_nodes_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_table, "MOST_PENDING", 5)
    monkeypatch.setattr(slot_table, "MOST_NEEDS", seed % 2 + 1)
    site, now_s = ChangingSite(seed), 0
    rows, everyone = site.table.rows, site.table.everyone
    for _ in range(60):
        for _ in range(site.chance.randrange(8)):
            site.change(now_s)
        if site.chance.random() < 0.1:
            now_s += site.chance.randrange(BUCKET_S)
            site.table.forget_before(now_s)
        need = site.chance.choice(site.needs)
        at_s = now_s + site.chance.randrange(HORIZON_S)
        end_s = at_s + site.chance.randrange(1, HORIZON_S)
        nodes = site.chance.randrange(everyone + 1)
        masks = site.table.free_masks(need)

        untils = sorted((row.free_until(need, at_s) for row in rows), reverse=True)
        some = sorted(rows[node].free_until(need, at_s) for node in range(NODES) if nodes >> node & 1)
        stairs = masks.stairs(at_s, everyone)
        assert masks.at(at_s) == sum(
            1 << node for node, row in enumerate(rows) if row.fits(need, at_s, at_s + 1)
        )
        assert masks.throughout(at_s, end_s) == sum(
            1 << node for node, row in enumerate(rows) if row.fits(need, at_s, end_s)
        )
        assert [stairs.until_s(each) for each in (3, 1, 6, 2, 5, 4)] == [
            untils[each - 1] for each in (3, 1, 6, 2, 5, 4)
        ]
        assert stairs.count == sum(until_s > at_s for until_s in untils)
        if some:
            assert masks.together_until(at_s, nodes, 1) == some[-1]
        instants = {at_s, *(each for row in rows for each in row.times if at_s < each < end_s)}
        assert masks.has_many(at_s, end_s, nodes, 2) == any(
            sum(nodes >> node & 1 and row.fits(need, each, each + 1) for node, row in enumerate(rows)) >= 2
            for each in instants
        )


@pytest.mark.parametrize("seed", range(examples(40)))
def test_gang_of_whole_nodes_gets_those_that_a_look_at_single_nodes_finds(seed: int) -> None:
    site = ChangingSite(seed)
    table, whole = site.table, site.needs[-1]
    for _ in range(40):
        site.change(0)
        start_s = site.chance.randrange(HORIZON_S)
        wanted, duration_s = site.chance.randrange(1, NODES + 1), site.chance.randrange(1, HORIZON_S)
        available = site.chance.randrange(table.everyone + 1)
        holders = site.chance.randrange(table.everyone + 1) & available
        same: dict[str, Any] = {
            "instances": wanted,
            "start_s": start_s,
            "end_s": start_s + duration_s,
            "holders": holders,
            "available": available,
        }

        one_by_one = fit(table, need=whole, **same)
        nodes = None if isinstance(one_by_one, int) else [each.node for each in one_by_one]
        assert first_whole(table, table.free_masks(whole), **same) == nodes
        sweep = SlotSweep(
            table,
            instances=wanted,
            need=whole,
            duration_s=duration_s,
            start_s=start_s,
            available=available,
        )
        found = table.free_masks(whole).first_start(start_s, duration_s, available, wanted)
        assert found == sweep.advance()


def test_steps_do_not_pile_up() -> None:
    site = ChangingSite(0)
    need = site.needs[0]
    site.table.free_masks(need)
    for number in range(1, 200):
        site.table.reserve(number % NODES, site.needs[-1], number, number + 50)
        site.table.free_masks(need)
        site.table.release(number % NODES, site.needs[-1], number, number + 50)

    masks = site.table.free_masks(need)

    assert masks.times == [0]
    assert masks.together_until(0, site.table.everyone, NODES) == FOREVER
