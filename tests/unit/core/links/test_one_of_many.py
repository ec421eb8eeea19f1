"""Asking the link about one transfer, or the first few, is the same as looking at all that wait."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.links.deadline import DeadlineLink
from outrider.core.model import Image, Transfer

IMAGE = Image(uri="image", size_bytes=1)


def crowded(seed: int) -> DeadlineLink:
    """Transfers with few different deadlines and durations, some with releases, some taken out again."""
    random = Random(seed)
    link = DeadlineLink(reserve_s=random.choice((None, 0, 60)))
    for number in range(60):
        release_s = random.choice((0, 0, 0, 50 * random.randrange(10)))
        transfer = Transfer(
            number=number,
            image=IMAGE,
            nodes=("n1",),
            duration_s=random.randint(1, 10),
            release_s=release_s,
            deadline_s=release_s + 100 * random.randint(1, 8),
        )
        insertion = link.plan([transfer], 0)
        if insertion is not None:
            link.apply(insertion)
        if random.random() < 0.2:
            link.remove(random.randrange(60))
    return link


@pytest.mark.parametrize("seed", range(30))
def test_latest_start_of_one_is_that_of_all(seed: int) -> None:
    link = crowded(seed)

    for transfer, latest_s in link.latest_starts():
        assert link.latest_start(transfer.number) == latest_s


@pytest.mark.parametrize("seed", range(30))
def test_those_before_an_instant_are_those_of_all_that_are(seed: int) -> None:
    link = crowded(seed)

    for before_s in range(0, 1_300, 37):
        assert link.latest_starts(before_s) == [each for each in link.latest_starts() if each[1] < before_s]


@pytest.mark.parametrize("seed", range(30))
def test_next_start_is_the_first_of_the_plan(seed: int) -> None:
    link = crowded(seed)
    planned = link.planned(5)

    following = link.next_start(5)

    assert planned
    assert following is not None
    assert (link.waiting()[following[1]], following[0]) == planned[0]
