"""Faults of the pool that crashes and refusals brought to light, one test each."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.crash.memorynodes import Crash, Fault
from tests.crash.world import World

A, B = b"alma" * 10, b"bookworm" * 5


@pytest.fixture
def world() -> World:
    world = World()
    world.create()
    return world


def test_init_that_died_while_writing_its_settings_can_be_run_again() -> None:
    limits = []
    for at in range(30):
        world = World()
        world.disk.arm(Fault("crash", at))
        with suppress(Crash):
            world.create()
        world.after_crash()
        world.create()
        limits.append(world.pool.settings.limit_bytes)

    assert limits == [100] * 30


def test_second_init_makes_the_pool_folder_safe_that_the_first_one_did_not_sync() -> None:
    world = World()
    world.disk.arm(Fault("crash", 1))
    with suppress(Crash):
        world.create()
    world.after_crash()
    world.create()
    world.after_power_loss("none", "old")

    assert world.pool.images() == []
