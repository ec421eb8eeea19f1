"""For how long nodes stay free, beside a look at every second; and the offers that follow from it."""

from __future__ import annotations

import random

import pytest

from outrider.core.alternatives import Alternative, AlternativeKind, Question, alternatives
from outrider.core.model import Node, Resources, Workspace
from outrider.core.nodes.free_lengths import longest_free
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import SiteTimeline
from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.refusal import Cause, Refusal
from tests.amount import examples

HORIZON_S = 60


@pytest.mark.parametrize("seed", range(examples(60)))
def test_lengths_are_those_that_a_look_at_every_second_finds(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randint(1, 8)
    sizes = [chance.choice((2, 3)) for _ in range(count)]
    timeline = SiteTimeline(
        [Node(name=f"n{node}", capacity=Resources.of(cpus=size)) for node, size in enumerate(sizes)]
    )
    free = [[size] * HORIZON_S for size in sizes]
    for node in range(count):
        for _ in range(chance.randint(0, 2)):
            start_s = chance.randrange(HORIZON_S - 1)
            end_s = chance.randint(start_s + 1, HORIZON_S)
            if min(free[node][start_s:end_s]) >= 1:
                timeline.reserve(node, timeline.layout.pack(Resources.of(cpus=1)), start_s, end_s)
                free[node][start_s:end_s] = [each - 1 for each in free[node][start_s:end_s]]
    available, at_s, wanted = chance.randrange(1 << count), chance.randrange(HORIZON_S), chance.randint(1, 3)
    instances, on_each = chance.randint(1, 12), chance.choice((None, 1, 2))
    within_s = chance.choice((FOREVER, chance.randint(1, HORIZON_S)))
    expected = []
    for node in range(count):
        for number in range(1, (instances if on_each is None else on_each) + 1):
            seconds = 0
            while at_s + seconds < HORIZON_S and free[node][at_s + seconds] >= number * wanted:
                seconds += 1
            if at_s + seconds == HORIZON_S and sizes[node] >= number * wanted:
                seconds = FOREVER
            if seconds and available >> node & 1:
                expected.append(FOREVER if seconds >= within_s else seconds)

    need = timeline.layout.pack(Resources.of(cpus=wanted))
    found = longest_free(
        timeline,
        need=need,
        instances=instances,
        at_s=at_s,
        within_s=within_s,
        available=available,
        most_per_node=on_each,
    )

    assert found == sorted(expected, reverse=True)[:instances]


@pytest.mark.parametrize(
    ("lengths", "shorter_s"), [([3000, 2500, 2000, 1500], 1980), ([3000, 2500, 500], None)]
)
def test_shorter_time_that_is_offered_is_the_longest_for_which_nodes_are_free(
    lengths: list[int], shorter_s: int | None
) -> None:
    workspace = Workspace(name="w", instances=3, resources=Resources.of(cpus=1), start_s=100, duration_s=2400)
    rejected = Rejected(refusal=Refusal(cause=Cause.SLOTS, start_s=100, end_s=2500, room=2))
    asked: list[tuple[int, int]] = []

    def answer(question: Question) -> ReservationPlan | Rejected:
        wanted = question.workspace
        asked.append((wanted.instances, wanted.duration_s))
        if lengths[wanted.instances - 1] < wanted.duration_s:
            return rejected
        return ReservationPlan(workspace=wanted, start_s=100, end_s=100 + wanted.duration_s, fits=())

    def searched() -> tuple[Alternative, ...]:
        search = alternatives(workspace, rejected, lengths=lengths)
        question = next(search)
        while True:
            try:
                question = search.send(answer(question))
            except StopIteration as ended:
                return tuple(ended.value)

    found = searched()

    told = {each.kind: each.workspace.duration_s for each in found}
    assert told.get(AlternativeKind.SHORTER) == shorter_s
    assert len([each for each in asked if each[0] == 3]) == (shorter_s is not None)
