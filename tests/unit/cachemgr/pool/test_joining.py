"""Who joins an ingest while another process drops or merges it keeps what it was told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from cachemgr.base.errors import CacheError, NotInPool
from cachemgr.pool.ingest import Ingest, cancel, drop_stale
from cachemgr.pool.pool import INGEST_LEASE_S, ImagePool
from tests.simulation.crash.memorynodes import WouldBlock
from tests.simulation.crash.world import World, digest_of

A, B = b"alma" * 10, b"bookworm" * 5


@pytest.fixture
def world() -> World:
    world = World()
    world.create()
    with world.pool.changing("filling the index"):
        pass
    return world


def dropped_while_somebody_joins(world: World, drop: Callable[[ImagePool], object]) -> list[str]:
    """Whoever joins an ingest at a step of its dropping and finds that it did not keep."""
    found = world.begin(A, owner="first")
    assert isinstance(found, Ingest)
    world.pass_time(2 * INGEST_LEASE_S)
    lost = []
    for at in range(80):
        twin = world.copy()
        if join_at(twin, at, partial(drop, twin.pool)) and not twin.pool.ingests():
            lost.append(f"step {at}")
    return lost


def join_at(world: World, at: int, act: Callable[[], object]) -> bool:
    """Act, and at that step another process joins; whether its pin was acknowledged while
    the ingest was the one that is being dropped."""
    steps = 0
    is_joined = False

    def before(step: str, path: str) -> None:
        nonlocal steps, is_joined
        steps += 1
        if steps == at + 1:
            world.disk.before_step = None
            with suppress(WouldBlock):
                world.begin(A, owner="second", pool=world.another_process())
                is_joined = True

    world.disk.before_step = before
    with suppress(WouldBlock, CacheError):
        act()
    world.disk.before_step = None
    return is_joined


def test_stale_ingest_is_not_dropped_from_under_who_joins_it(world: World) -> None:
    assert dropped_while_somebody_joins(world, drop_stale) == []


def test_cancelled_ingest_is_not_dropped_from_under_who_joins_it(world: World) -> None:
    assert dropped_while_somebody_joins(world, lambda pool: cancel(pool, digest_of(A), "first")) == []


def test_lease_on_what_turns_out_to_be_here_already_is_not_lost_to_who_takes_it_meanwhile(
    world: World,
) -> None:
    world.add(A, uri="http://site/a")
    found = world.begin(A, uri="http://site/other", is_known=False)
    assert isinstance(found, Ingest)
    lost = []
    for at in range(80):
        twin = world.copy()
        again = twin.begin(A, uri="http://site/other", is_known=False)
        assert isinstance(again, Ingest)
        with twin.writing(again) as writer:
            writer.write(A)
            steps = 0

            def before(step: str, path: str, twin: World = twin, at: int = at) -> None:
                nonlocal steps
                steps += 1
                if steps == at + 1:
                    twin.disk.before_step = None
                    with suppress(WouldBlock, NotInPool):
                        other = twin.another_process()
                        twin.begin(A, owner="second", uri="http://site/other", is_known=False, pool=other)

            twin.disk.before_step = before
            with suppress(WouldBlock):
                twin.commit(writer, A)
            twin.disk.before_step = None
        lost += twin.faults_found()

    assert lost == []
