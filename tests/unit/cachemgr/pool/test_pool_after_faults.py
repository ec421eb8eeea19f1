"""Faults of the pool that crashes and refusals brought to light, one test each."""

from __future__ import annotations

import dataclasses
from contextlib import closing, suppress

import pytest

from cachemgr.base.errors import DiskFailed
from cachemgr.base.hashing import InlineHasher
from cachemgr.pool import room
from cachemgr.pool.ingest import Ingest
from cachemgr.pool.records import Alias, ImageAccess
from tests.simulation.crash.memorynodes import Crash, Fault, File
from tests.simulation.crash.striking import die_when, refuse_when
from tests.simulation.crash.world import ROOT, World, digest_of

A, B = b"alma" * 10, b"bookworm" * 5


@pytest.fixture
def world() -> World:
    world = World()
    world.create()
    with world.pool.changing("filling the index"):
        pass
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


def test_name_keeps_its_old_meaning_until_the_new_image_is_visible(world: World) -> None:
    world.add(A, uri="http://site/a", aliases=("latest",))
    answers = set()
    for at in range(120):
        twin = world.copy()
        twin.disk.arm(Fault("crash", at))
        with suppress(Crash):
            twin.add(B, uri="http://site/b", aliases=("latest",))
        twin.after_crash()
        twin.recover()
        answers.add(twin.named("latest"))

    assert answers == {digest_of(A), digest_of(B)}


def test_image_that_became_visible_just_before_a_crash_gets_its_names_afterwards(world: World) -> None:
    die_when(world, "sync folder", "/images")
    with suppress(Crash):
        world.add(A, aliases=("latest",))
    world.after_crash()
    world.recover()

    assert world.named("latest") == digest_of(A)
    assert {*world.disk.names(f"{ROOT}/images/{digest_of(A)}")} - {"pins"} == {"data", "image.json"}


def test_name_that_was_moved_later_does_not_return_with_what_an_ingest_left(world: World) -> None:
    world.add(A, uri="http://site/a", aliases=("latest",))
    world.add(B, uri="http://site/b", aliases=("latest",))
    world.after_power_loss("none", "old")
    world.recover()

    assert world.named("latest") == digest_of(B)


def test_commit_cut_short_after_it_made_the_data_read_only_can_be_resumed(world: World) -> None:
    die_when(world, "rename", f"/images/{digest_of(A)}")
    with suppress(Crash):
        world.add(A)
    world.after_crash()
    world.recover()

    assert world.add(A).digest == digest_of(A)


def test_what_came_from_an_address_may_change_after_a_commit_that_was_cut_short(world: World) -> None:
    die_when(world, "rename", f"/images/{digest_of(A)}")
    with suppress(Crash):
        world.add(A, is_known=False)
    world.after_power_loss("none", "old")
    world.recover()

    assert world.add(B, is_known=False).digest == digest_of(B)


def test_lease_survives_a_power_cut_although_the_first_pin_beside_it_was_not_durable(world: World) -> None:
    world.add(A)
    world.pool.pin(digest_of(A), world.pin("instance"), is_durable=False)
    world.pool.pin(digest_of(A), world.pin("job 1"))
    world.after_power_loss("none", "old")

    assert "job 1" in [pin.owner for pin in world.pool.pins(digest_of(A))]


def test_pin_that_was_given_back_does_not_return_with_the_power(world: World) -> None:
    world.add(A, owner="job 1")
    assert world.pool.unpin(digest_of(A), "job 1")
    world.after_power_loss("none", "old")

    assert world.pool.pins(digest_of(A)) == []


def test_name_that_was_removed_does_not_return_with_the_power(world: World) -> None:
    world.add(A, aliases=("latest",))
    assert world.pool.remove_alias("latest")
    world.after_power_loss("none", "old")

    assert world.pool.alias("latest") is None


def test_writer_whose_note_fails_lets_others_write(world: World) -> None:
    found = world.begin(A)
    assert isinstance(found, Ingest)
    writer = found.writer(InlineHasher())
    assert writer is not None
    writer.write(A[:10])
    world.disk.arm(Fault("EROFS", 0, is_lasting=True))
    with pytest.raises(DiskFailed):
        writer.pause()
    world.disk.arm(None)
    other = found.writer(InlineHasher())

    assert other is not None
    other.close()


def test_writer_who_cannot_abandon_lets_others_write(world: World) -> None:
    found = world.begin(A)
    assert isinstance(found, Ingest)
    writer = found.writer(InlineHasher())
    assert writer is not None
    world.disk.arm(Fault("EROFS", 0, is_lasting=True))
    with pytest.raises(DiskFailed):
        writer.abandon()
    world.disk.arm(None)
    other = found.writer(InlineHasher())

    assert other is not None
    other.close()


def test_ingest_whose_data_somebody_cut_goes_on_where_they_end(world: World) -> None:
    found = world.begin(A)
    assert isinstance(found, Ingest)
    with world.writing(found) as writer:
        writer.write(A[:30])
        writer.checkpoint()
    data = world.disk.node_at(f"{found.folder}/data")
    assert isinstance(data, File)
    del data.content[20:]
    with world.writing(found) as writer:
        offset = writer.offset
        writer.write(A[20:])
        image = world.commit(writer, A)

    assert offset == 20
    assert image.size_bytes == 40


def test_failed_sync_is_not_taken_back_by_the_next_one(world: World) -> None:
    found = world.begin(A)
    assert isinstance(found, Ingest)
    with world.writing(found) as writer:
        writer.write(A[:30])
        refuse_when(world, "sync", "/data")
        with pytest.raises(DiskFailed):
            writer.checkpoint()
    world.add(A, owner="job 1")
    world.after_power_loss("none", "old")
    world.recover()

    assert world.faults_found() == []


def test_commit_replaces_what_stands_damaged_at_its_place_and_keeps_its_leases(world: World) -> None:
    world.add(A, owner="keeper")
    world.disk.remove(f"{ROOT}/images/{digest_of(A)}/image.json")
    world.promises.images.clear()
    world.add(A, owner="job 1")

    assert world.faults_found() == []
    assert [pin.owner for pin in world.pool.pins(digest_of(A))] == ["job 1", "keeper"]


def test_refused_ingest_leaves_no_bytes_allocated(world: World) -> None:
    world.disk.capacity_bytes = (2 << 20) + 30
    world.add(B[:20], owner="keeper")
    free_bytes = world.disk.free_bytes(ROOT)
    refuse_when(world, "write", ".new")
    with pytest.raises(DiskFailed):
        world.begin(A)

    assert world.disk.names(f"{ROOT}/trash") == []
    assert world.disk.free_bytes(ROOT) == free_bytes


def test_refused_small_file_leaves_no_draft(world: World) -> None:
    world.add(A)
    refuse_when(world, "write", ".new")
    with pytest.raises(DiskFailed):
        world.pool.pin(digest_of(A), world.pin("job 1"))

    assert world.disk.names(f"{ROOT}/images/{digest_of(A)}/pins") == []


def test_image_that_becomes_public_or_private_has_the_mode_of_that(world: World) -> None:
    image = world.add(A, readers=ImageAccess(is_public=False))
    modes = []
    for readers in (ImageAccess(), ImageAccess(is_public=False)):
        world.pool.change_image(dataclasses.replace(image, readers=readers))
        node = world.disk.node_at(world.pool.data_path(image.digest))
        assert node is not None
        modes.append(node.mode)

    assert modes == [0o444, 0o400]


def test_writer_whose_ingest_cannot_be_read_gives_the_lock_back(world: World) -> None:
    found = world.begin(A)
    assert isinstance(found, Ingest)
    refuse_when(world, "read", "/image.json")
    with pytest.raises(DiskFailed):
        found.writer(InlineHasher())
    world.disk.arm(None)
    writer = found.writer(InlineHasher())

    assert writer is not None
    writer.close()


def test_name_that_was_there_unsynced_is_synced_before_it_is_acknowledged_again(world: World) -> None:
    image = world.add(A)
    die_when(world, "sync folder", "/aliases")
    with suppress(Crash):
        world.pool.add_alias(Alias("latest", image.digest))
    world.after_crash()
    world.pool.add_alias(Alias("latest", image.digest))
    world.after_power_loss("none", "old")

    assert world.named("latest") == image.digest


def test_half_done_eviction_is_synced_before_its_deletion_is_finished(world: World) -> None:
    """Otherwise a power cut brings the name back, and not the data."""
    world.add(A)
    world.disk.sync_folder(f"{ROOT}/images/{digest_of(A)}")
    die_when(world, "sync folder", "/images")
    with suppress(Crash), world.pool.changing("evicting"):
        room.evict(world.pool, digest_of(A))
    world.after_crash()
    world.gives_up(A)
    world.recover()
    left = []
    for seed in range(20):
        twin = world.copy()
        twin.after_power_loss("prefix", "old", seed)
        twin.recover()
        left += twin.faults_found()

    assert left == []
    assert world.disk.names(f"{ROOT}/trash") == []


def test_image_is_never_more_readable_than_its_record_says(world: World) -> None:
    image = world.add(A, readers=ImageAccess(is_public=False))
    public = dataclasses.replace(image, readers=ImageAccess())
    found = []
    for first, second in ((public, image), (image, public)):
        world.pool.change_image(first)
        for at in range(30):
            twin = world.copy()
            twin.disk.arm(Fault("crash", at))
            with suppress(Crash):
                twin.pool.change_image(second)
            twin.after_crash()
            record = twin.pool.find(image.digest)
            node = twin.disk.node_at(twin.pool.data_path(image.digest))
            assert record is not None
            assert node is not None
            found.append(node.mode & ~record.data_mode)
            twin.pool.change_image(second)
            assert node.mode == second.data_mode

    assert set(found) == {0}


def test_pin_that_a_power_cut_tore_holds_nothing(world: World) -> None:
    image = world.add(A)
    held = []
    for contents, seed in (("zeros", 0), ("old", 0), *(("torn", seed) for seed in range(30))):
        twin = world.copy()
        twin.pool.pin(image.digest, twin.pin("instance:1", "instance"), is_durable=False)
        twin.after_power_loss("all", contents, seed)
        held += [pin.owner for pin in twin.pool.pins(image.digest)]

    assert set(held) <= {"instance:1"}


def test_pin_that_was_edited_by_hand_holds_until_it_is_mended(world: World) -> None:
    image = world.add(A, owner="job 1")
    (path,) = (path for path, _ in world.disk.files(f"{ROOT}/images/{image.digest}/pins"))
    node = world.disk.node_at(path)
    assert isinstance(node, File)
    node.content[5:9] = b"oops"
    with world.pool.changing("evicting"):
        is_evicted = room.evict(world.pool, image.digest)

    assert not is_evicted
    assert world.pool.find(image.digest) == image


def test_shared_blocks_are_safe_before_they_take_the_place_of_the_reserved_ones(world: World) -> None:
    world.disk.make_folder("/source", 0o755)
    with closing(world.disk.create("/source/a.img", 0o644)) as handle:
        handle.write_at(0, A)
    found = world.begin(A)
    assert isinstance(found, Ingest)
    with world.writing(found) as writer:
        writer.adopt("/source/a.img")
        writer.restart()
    world.after_power_loss("all", "old")

    assert world.disk.size(f"{found.folder}/data") == 40


def test_bytes_are_copied_after_the_disk_refused_to_make_shared_ones_safe(world: World) -> None:
    world.disk.make_folder("/source", 0o755)
    with closing(world.disk.create("/source/a.img", 0o644)) as source:
        source.write_at(0, A)
    ingest = world.begin(A)
    assert isinstance(ingest, Ingest)
    with world.writing(ingest) as writer:
        refuse_when(world, "sync", "data.new")
        with pytest.raises(DiskFailed):
            writer.adopt("/source/a.img")
        writer.write(A)
        image = writer.commit()

    assert image.digest == digest_of(A)
