"""Two processes at a time: while one acts, another one gets a turn at each of its steps.

Who would have to wait for a lock is taken for killed while it waited, so both orders of a
lock are seen. Afterwards everything that either of them was told has to hold.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from cachemgr.base.errors import CacheError, NotInPool
from cachemgr.pool import room
from cachemgr.pool.check import check
from cachemgr.pool.ingest import Ingest, cancel, drop_stale
from cachemgr.pool.pool import INGEST_LEASE_S
from cachemgr.pool.records import Alias
from tests.simulation.crash.memorynodes import WouldBlock
from tests.simulation.crash.scenarios import A, B, C
from tests.simulation.crash.world import ROOT, World, digest_of

Act = Callable[[World], object]
DIGEST = digest_of(A)


def with_a(world: World) -> None:
    world.add(A, uri="http://site/a")


def with_expired_pin(world: World) -> None:
    world.add(A, uri="http://site/a", owner="job 2")
    world.pass_time(10_000)


def arriving(world: World) -> None:
    world.begin(A, owner="job 1")


def arriving_for_nobody(world: World) -> None:
    arriving(world)
    world.pass_time(2 * INGEST_LEASE_S)


def written(world: World) -> None:
    found = world.begin(A)
    assert isinstance(found, Ingest)
    with world.writing(found) as writer:
        writer.write(A)
        writer.pause()


# What the first one does. It may lose the image, but not what the second one was told.


def evict(world: World) -> None:
    world.promises.images.discard(DIGEST)
    with world.pool.changing("evicting"):
        room.evict(world.pool, DIGEST)


def evict_for_another(world: World) -> None:
    world.promises.images.discard(DIGEST)
    world.add(C, uri="http://site/c", owner="job 9")


def commit(world: World) -> None:
    found = world.pool.ingest(DIGEST)
    assert found is not None
    with world.writing(found) as writer:
        world.commit(writer, A)


def stale(world: World) -> None:
    drop_stale(world.pool)


def cancelled(world: World) -> None:
    world.promises.pins.pop((DIGEST, "job 1"), None)
    with suppress(NotInPool):
        cancel(world.pool, DIGEST, "job 1")


def mended(world: World) -> None:
    check(world.pool, world.maker, fix=True)


def rescanned(world: World) -> None:
    with world.pool.changing("looking again"):
        room.rescan(world.pool)


def renamed(world: World) -> None:
    world.pool.add_alias(Alias("latest", DIGEST))


# What the second one does meanwhile, in a process of its own.


def pin(world: World) -> None:
    lease = world.pin("job 2")
    world.another_process().pin(DIGEST, lease)
    world.promises.pins[DIGEST, "job 2"] = lease.expires_s


def want(world: World) -> None:
    world.begin(A, owner="job 2", pool=world.another_process())


def unpin(world: World) -> None:
    """Of the pin that its owner took before."""
    world.promises.pins.pop((DIGEST, "job 1"), None)
    world.another_process().unpin(DIGEST, "job 1")
    world.promises.unpinned.add((DIGEST, "job 1"))


def use(world: World) -> None:
    world.another_process().use(DIGEST)


def add_another(world: World) -> None:
    world.begin(B[:20], owner="job 3", uri="http://site/b", pool=world.another_process())


PAIRS: dict[str, tuple[Act, Act, Act]] = {
    "evict, pin": (with_a, evict, pin),
    "evict, want": (with_a, evict, want),
    "evict, use": (with_a, evict, use),
    "evict for another, pin": (with_a, evict_for_another, pin),
    "evict for another, want": (with_a, evict_for_another, want),
    "commit, want": (written, commit, want),
    "commit, pin": (written, commit, pin),
    "commit, add another": (written, commit, add_another),
    "drop what is stale, want": (arriving_for_nobody, stale, want),
    "cancel, want": (arriving, cancelled, want),
    "cancel, unpin": (arriving, cancelled, unpin),
    "mend, pin anew": (with_expired_pin, mended, pin),
    "mend, want": (arriving_for_nobody, mended, want),
    "mend, add another": (with_a, mended, add_another),
    "rescan, pin": (with_a, rescanned, pin),
    "rescan, want": (arriving, rescanned, want),
    "name, want": (with_a, renamed, want),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_both_were_told_holds_wherever_the_second_one_comes_in(name: str) -> None:
    prepare, first, second = PAIRS[name]
    start = World()
    start.create()
    prepare(start)
    start.forget_process()
    wrong, turns, done = [], 0, 0
    while turns < 300:
        world = start.copy()
        world.disk.living.add(1)
        is_over, is_done = run(world, first, second, turns)
        turns += 1
        done += is_done
        wrong += [f"step {turns}: {text}" for text in broken(world)]
        if is_over:
            break

    assert wrong == []
    assert done > 0
    assert turns > 5


def run(world: World, first: Act, second: Act, at: int) -> tuple[bool, bool]:
    """Whether the first one was over before that step, and whether the second one got through."""
    steps = 0
    is_done = False

    def turn(step: str, path: str) -> None:
        nonlocal steps, is_done
        steps += 1
        if steps == at + 1:
            world.disk.before_step = None
            before = dict(world.promises.pins)
            try:
                second(world)
                is_done = True
            except WouldBlock:
                world.promises.pins = before
            except CacheError:
                pass

    world.disk.before_step = turn
    with suppress(CacheError, WouldBlock):
        first(world)
    is_over = world.disk.before_step is not None
    world.disk.before_step = None
    if not is_done and is_over:
        with suppress(CacheError):
            second(world)
            is_done = True
    return is_over, is_done


def broken(world: World) -> list[str]:
    world.after_crash()
    with world.pool.changing("looking"):
        pass
    return world.faults_found()


def test_reader_waits_for_nobody_who_writes_commits_or_evicts() -> None:
    """Finding and pinning, with the pool's lock held and the other image's folder locked."""
    world = World()
    world.create()
    world.add(A, uri="http://site/a")
    world.add(B, uri="http://site/b")
    locks = [
        world.disk.lock(f"{ROOT}/lock", is_shared=False, waits=False),
        world.disk.lock(f"{ROOT}/images/{digest_of(B)}", is_shared=False, waits=False),
    ]
    image = world.another_process().pin(DIGEST, world.pin("job 1"))

    assert None not in locks
    assert image.digest == DIGEST
