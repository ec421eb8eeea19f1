"""What others hold in a pool, counted beside the lives of the book, against a look at every second."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.images.encumbrance import NOTHING, Encumbrance, ForeignHold
from outrider.core.images.pools import Life, PlannedPool
from outrider.core.model import Image

KEYS = ("a", "b", "c")
SIZES = {"a": 3, "b": 5, "c": 4}


def pool_of(
    lives: list[tuple[str, int, int]], encumbrance: Encumbrance, limit_bytes: int | None = 12
) -> PlannedPool:
    pool = PlannedPool(limit_bytes, 0)
    for key, start_s, end_s in lives:
        image = Image(uri=key, size_bytes=SIZES[key], digest=key)
        pool.lives.setdefault(key, []).append(Life(image, start_s, start_s, end_s))
        pool.promised_bytes += image.size_bytes
    pool.encumber(encumbrance)
    return pool


def naive_has_room(
    lives: list[tuple[str, int, int]], encumbrance: Encumbrance, most: int, key: str, start_s: int, end_s: int
) -> bool:
    """Second by second: an image that is both held and promised takes its bytes once."""
    for at_s in range(start_s, end_s):
        there = [each for each, from_s, until_s in lives if from_s <= at_s < until_s]
        held = [
            hold.size_bytes
            for hold in encumbrance.holds
            if at_s < hold.until_s and (not hold.key or hold.key not in (*there, key))
        ]
        if sum(SIZES[each] for each in there) + sum(held) + SIZES[key] > most:
            return False
    return True


@pytest.mark.parametrize("seed", range(300))
def test_room_beside_what_others_hold_is_that_of_every_second(seed: int) -> None:
    random = Random(seed)
    lives = []
    for _ in range(random.randrange(4)):
        start_s = random.randrange(0, 15)
        lives.append((random.choice(KEYS), start_s, start_s + random.randrange(1, 8)))
    holds = tuple(
        ForeignHold(key=key, size_bytes=SIZES.get(key, 2), until_s=random.randrange(1, 20))
        for key in random.sample(("", *KEYS), random.randrange(3))
    )
    capacity_bytes = random.choice((None, 9, 11))
    encumbrance = Encumbrance(holds=holds, capacity_bytes=capacity_bytes)
    most = min(12, capacity_bytes or 12)
    pool = pool_of(lives, encumbrance)
    start_s, key = random.randrange(0, 15), random.choice(KEYS)
    end_s = start_s + random.randrange(1, 8)

    has_room = pool.has_room(((start_s, end_s, SIZES[key]),), 0, key)

    assert has_room == naive_has_room(lives, encumbrance, most, key, start_s, end_s)


def test_pool_that_is_too_full_at_one_time_has_room_at_another() -> None:
    pool = pool_of([("a", 0, 10)], Encumbrance(holds=(ForeignHold(key="", size_bytes=11, until_s=10),)))

    assert not pool.has_room(((5, 20, 1),), 0)
    assert pool.has_room(((10, 20, 12),), 0)


def test_hold_of_unknown_content_is_never_taken_for_the_image() -> None:
    pool = pool_of([], Encumbrance(holds=(ForeignHold(key="", size_bytes=8, until_s=10),)))

    assert not pool.has_room(((0, 5, 5),), 0)
    assert not pool.has_room(((0, 5, 5),), 0, "b")


def test_pool_without_a_limit_is_bound_by_its_disk() -> None:
    pool = pool_of([], Encumbrance(capacity_bytes=4), limit_bytes=None)

    assert (pool.has_room(((0, 5, 4),), 0), pool.has_room(((0, 5, 5),), 0)) == (True, False)
    pool.encumber(NOTHING)
    assert pool.has_room(((0, 5, 500),), 0)
