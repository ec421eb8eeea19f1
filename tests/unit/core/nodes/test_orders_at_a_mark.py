"""A forecast that goes back to the orders of a mark, beside one that is made anew of what is known."""

from __future__ import annotations

import random
from functools import partial

import pytest

from outrider.core.model import Resources
from outrider.core.nodes import together
from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.forecast import BusyForecast, Taken
from outrider.core.nodes.together import earliest_together
from tests.amount import examples

LAYOUT = ResourceLayout(["cpus"])
NEEDS = [LAYOUT.pack(Resources.of(cpus=count)) for count in (1, 2, 4)]


class Beside:
    """What is known of some nodes, in a forecast that lives on, and by name."""

    def __init__(self, chance: random.Random, patch: pytest.MonkeyPatch) -> None:
        self.chance, self.patch = chance, patch
        # So many that single nodes are put into an order, and so few that it is sorted anew.
        self.count = chance.choice((5, 12, 150))
        self.capacities = [chance.choice(NEEDS[1:]) for _ in range(self.count)]
        self.forecast = BusyForecast(LAYOUT, self.capacities)
        self.known: dict[str, tuple[Taken, ...]] = {}
        self.now_s = 0

    def change(self) -> None:
        """Something else is known, time goes on, or orders are kept in mind, or are those of before."""
        chance, what = self.chance, self.chance.random()
        if what < 0.1:
            self.forecast.mark(self.now_s)
        elif what < 0.2:
            self.forecast.back_to_mark()
        elif what < 0.3:
            self.now_s += chance.choice((1, 5, 40))
        elif what < 0.5 and self.known:
            self.know(chance.choice(list(self.known)), ())
        else:
            start_s = self.now_s + chance.choice((0, 0, 3, 20))
            nodes = chance.sample(range(self.count), chance.randint(1, min(8, self.count)))
            amount = chance.choice((None, *NEEDS))
            taken = Taken(tuple(nodes), start_s, start_s + chance.randint(1, 60), amount)
            self.know(f"job {chance.randrange(40)}", (taken,))

    def know(self, name: str, taken: tuple[Taken, ...]) -> None:
        self.forecast.know(name, taken)
        self.known[name] = taken
        if not taken:
            del self.known[name]

    def answers(self) -> list[tuple[object, object]]:
        """What the forecast says, and what a new one in which nodes are taken as they come, about two
        questions."""
        anew = BusyForecast(LAYOUT, self.capacities)
        for name, taken in self.known.items():
            anew.know(name, taken)
        few = together.MOST_MORE
        found: list[tuple[object, object]] = []
        for _ in range(2):
            need, count = self.chance.choice(NEEDS), self.chance.randint(1, min(6, self.count))
            duration_s = self.chance.choice((1, 10, 50))
            eligible = self.chance.getrandbits(self.count) if self.chance.random() < 0.3 else -1
            ask = partial(
                earliest_together,
                need=need,
                count=count,
                duration_s=duration_s,
                eligible=eligible & ((1 << self.count) - 1),
                now_s=self.now_s,
            )
            ours = ask(self.forecast)
            self.patch.setattr(together, "MOST_MORE", 0)
            found.append((ours, ask(anew)))
            self.patch.setattr(together, "MOST_MORE", few)
        return found


@pytest.mark.parametrize("most_more", [0, 2, 64])
@pytest.mark.parametrize("seed", range(examples(60)))
def test_orders_of_a_mark_answer_what_those_made_anew_do(
    seed: int, most_more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "MOST_MORE", most_more)
    beside = Beside(random.Random(f"{seed} {most_more}"), monkeypatch)
    for _ in range(60):
        beside.change()
        if beside.chance.random() < 0.6:
            for ours, anew in beside.answers():
                assert ours == anew


def test_nodes_that_were_given_back_since_a_mark_are_not_looked_at_again() -> None:
    forecast = BusyForecast(LAYOUT, [NEEDS[0]] * 100)
    list(forecast.openings(NEEDS[0], 0, (1 << 100) - 1))
    forecast.mark(0)
    forecast.know("place", (Taken(tuple(range(50)), 0, 10),))
    list(forecast.openings(NEEDS[0], 0, (1 << 100) - 1))
    forecast.know("place", ())
    forecast.know("job", (Taken((7, 8), 0, 10),))
    forecast.back_to_mark()

    assert forecast.unknown(NEEDS[0]) == 2
    assert [node for at_s, node in forecast.openings(NEEDS[0], 0, 0b111 << 7)] == [9, 7, 8]
