"""Faults of the book of instances that crashes and refusals brought to light."""

from __future__ import annotations

from contextlib import suppress

import pytest

from cachemgr.base.errors import DiskFailed
from cachemgr.pool.check import check
from cachemgr.pool.instance_book import Instance, make_instance, remove_instances
from tests.simulation.crash.memorynodes import Crash, Fault
from tests.simulation.crash.striking import die_when, refuse_when, strike_when
from tests.simulation.crash.world import ROOT, World

A, B = b"alma" * 10, b"bookworm" * 5


@pytest.fixture
def world() -> World:
    world = World()
    world.create()
    with world.pool.changing("filling the index"):
        pass
    return world


def test_instance_half_removed_is_made_anew_when_it_is_wanted_again(world: World) -> None:
    image = world.add(A)
    until_s = world.clock.now_s() + 100

    def make(world: World) -> Instance:
        return make_instance(world.pool, world.maker, image, owner="job 1", uid=1000, until_s=until_s)

    make(world)
    lost = []
    for at in range(30):
        twin = world.copy()
        twin.disk.arm(Fault("crash", at))
        with suppress(Crash):
            remove_instances(twin.pool, twin.maker, "job 1")
        twin.after_crash()
        if not twin.disk.exists(make(twin).path):
            lost.append(at)

    assert lost == []


def test_full_disk_hinders_nobody_from_removing_an_instance(world: World) -> None:
    image = world.add(A)
    until_s = world.clock.now_s() + 100
    make_instance(world.pool, world.maker, image, owner="job 1", uid=1000, until_s=until_s)
    strike_when(world, "ENOSPC", "create", ".new")
    removed = remove_instances(world.pool, world.maker, "job 1")

    assert removed == 1
    assert world.disk.names(f"{ROOT}/instances") == []


def test_copy_made_again_after_a_crash_counts_once(world: World) -> None:
    """A pool of 100 bytes holds an image of 40 and one copy of it, but no second copy."""
    image = world.add(A, owner="keeper")
    until_s = world.clock.now_s() + 100
    die_when(world, "write", "/disk")
    with suppress(Crash):
        make_instance(world.pool, world.maker, image, owner="job 1", uid=1000, until_s=until_s)
    world.after_crash()
    made = make_instance(world.pool, world.maker, image, owner="job 1", uid=1000, until_s=until_s)

    assert world.disk.size(made.path) == 40


def test_unreadable_folder_of_instances_is_an_error_with_a_sentence(world: World) -> None:
    refuse_when(world, "list", "/instances")
    with pytest.raises(DiskFailed, match="the disk reports a fault"):
        check(world.pool, world.maker, fix=False)

    assert check(world.pool, world.maker, fix=False) == []


def test_copy_is_given_back_even_if_its_size_cannot_be_read(world: World) -> None:
    image = world.add(A)
    until_s = world.clock.now_s() + 100
    make_instance(world.pool, world.maker, image, owner="job 1", uid=1000, until_s=until_s)
    refuse_when(world, "read", "/bytes")
    remove_instances(world.pool, world.maker, "job 1")

    assert world.pool.index.used_bytes() == 40


def test_instance_whose_removal_cannot_be_noted_is_not_handed_out_either(world: World) -> None:
    image = world.add(A)
    until_s = world.clock.now_s() + 100
    make_instance(world.pool, world.maker, image, owner="job 1", uid=1000, until_s=until_s)
    world.disk.arm(Fault("ENOSPC", 0, is_lasting=True))
    with pytest.raises(DiskFailed):
        remove_instances(world.pool, world.maker, "job 1")
    world.disk.arm(None)
    made = make_instance(world.pool, world.maker, image, owner="job 1", uid=1000, until_s=until_s)

    assert world.disk.size(made.path) == 40
