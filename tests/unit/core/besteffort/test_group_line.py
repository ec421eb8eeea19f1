"""Those of one group that may start are found in order, as a look at each would find them."""

from __future__ import annotations

from functools import partial
from random import Random

from outrider.core.besteffort.backfilling.group_line import GroupLine
from tests.amount import examples


def random_line(chance: Random) -> tuple[GroupLine[int], dict[int, int]]:
    """A line from which some have left, and how long each lasts."""
    line, lengths = GroupLine[int](), dict[int, int]()
    for place in chance.sample(range(40), chance.randrange(1, 20)):
        lengths[place] = chance.randrange(1, 9)
        line.add(place, lengths[place])
        assert line.shortest_s == min(lengths.values())
    for place in chance.sample(sorted(lengths), len(lengths) // 3):
        del lengths[place]
        line.remove(place)
    return line, lengths


def test_first_behind_a_place_is_what_a_look_at_each_finds() -> None:
    for seed in range(examples(300)):
        chance = Random(seed)
        line, lengths = random_line(chance)
        behind, longest_s, before = chance.randrange(40), chance.randrange(10), chance.randrange(50)

        found = [place for place in sorted(lengths) if place > behind and lengths[place] <= longest_s]
        assert line.first_after(behind, longest_s, before) == min([*found, before]), f"seed {seed}"


def test_who_fits_while_less_and_less_is_free_is_given_in_order_and_may_leave() -> None:
    given = 0
    for seed in range(examples(300)):
        chance = Random(seed)
        line, lengths = random_line(chance)
        first, free_s = chance.randrange(40), chance.randrange(10)
        # By how much less is free after each of them.
        less = {place: chance.choice((0, 0, 1, 2)) for place in lengths}
        expected, left_s = list[int](), free_s
        for place in sorted(lengths):
            if place >= first and lengths[place] <= left_s:
                expected.append(place)
                left_s -= less[place]

        free, found = [free_s], list[int]()
        for place in line.fitting(first, partial(free.__getitem__, 0)):
            found.append(place)
            line.remove(place)
            free[0] -= less[place]

        assert found == expected, f"seed {seed}"
        given += len(found)
    assert given > examples(300)
