"""For how many instances a node has room, and until when for each, beside a look at every second."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.model import Resources
from outrider.core.nodes.capacity import ResourceLayout
from outrider.core.nodes.node_timeline import NodeTimeline
from tests.amount import examples

HORIZON_S = 20


@pytest.mark.parametrize("seed", range(examples(60)))
def test_room_is_what_is_found_second_by_second(seed: int) -> None:
    """Of two resources, of which either may be the one that is short."""
    chance = Random(seed)
    layout = ResourceLayout(["cpus", "gpus"])
    cpus, gpus = chance.randint(1, 6), chance.randint(1, 4)
    row = NodeTimeline(layout, layout.pack(Resources.of(cpus=cpus, gpus=gpus)))
    free = [[cpus, gpus] for _ in range(HORIZON_S)]
    for _ in range(chance.randint(0, 5)):
        start_s = chance.randrange(HORIZON_S)
        end_s, taken = chance.randint(start_s + 1, HORIZON_S), (chance.randint(0, 2), chance.randint(0, 2))
        if all(each[0] >= taken[0] and each[1] >= taken[1] for each in free[start_s:end_s]) and any(taken):
            row.reserve(layout.pack(Resources.of(cpus=taken[0], gpus=taken[1])), start_s, end_s)
            for each in free[start_s:end_s]:
                each[0], each[1] = each[0] - taken[0], each[1] - taken[1]
    wanted = chance.randint(1, 2), chance.randint(0, 2)
    need = layout.pack(Resources.of(cpus=wanted[0], gpus=wanted[1]))
    full = layout.most(need, row.capacity, 9)
    start_s = chance.randrange(HORIZON_S)
    end_s = chance.randint(start_s + 1, HORIZON_S)
    rooms = [
        min(each[0] // wanted[0], each[1] // wanted[1] if wanted[1] else 9) for each in free[start_s:end_s]
    ]
    ends = [start_s + next((at_s for at_s, room in enumerate(rooms) if room < count), len(rooms))
            for count in range(1, full + 1)]  # fmt: skip

    assert full == 0 or row.room(need, full, start_s, end_s) == min(rooms)
    assert full == 0 or row.most(need, start_s, end_s, 9) == min(rooms)
    told = [at_s for at_s in ends if at_s > start_s]
    assert sorted(row.room_ends(need, start_s, end_s, 9), reverse=True) == told
