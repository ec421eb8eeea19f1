"""What the pool counts on of a disk, asked of the real one and of the one in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cachemgr.base.disk import RealDisk, drop_drafts, replace_file
from tests.simulation.crash.memorydisk import MemoryDisk
from tests.simulation.crash.memorynodes import Fault

if TYPE_CHECKING:
    from cachemgr.base.disk import Disk

    Call = Callable[[Disk, str], object]


@pytest.fixture(params=["real", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """A disk, and an empty folder on it."""
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    disk = MemoryDisk()
    disk.make_folder("/pool", 0o700)
    return disk, "/pool"


@pytest.fixture
def disk(place: tuple[Disk, str]) -> Disk:
    return place[0]


@pytest.fixture
def root(place: tuple[Disk, str]) -> str:
    return place[1]


def put(disk: Disk, path: str, data: bytes) -> None:
    handle = disk.create(path, 0o600)
    handle.write_at(0, data)
    handle.close()


def test_what_is_written_is_read_back_at_its_offset(disk: Disk, root: str) -> None:
    handle = disk.create(f"{root}/a", 0o600)
    handle.allocate(10)
    handle.write_at(2, b"hello")
    handle.write_at(8, memoryview(b"!!!"))
    handle.sync()

    assert handle.read_at(0, 100) == b"\0\0hello\0!!!"
    assert handle.size() == disk.size(f"{root}/a") == 11
    handle.close()
    assert disk.read(f"{root}/a", 7) == b"\0\0hello"


def test_allocating_less_than_is_there_cuts_nothing(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"whole")
    handle = disk.open(f"{root}/a", for_writing=True)
    handle.allocate(2)
    handle.allocate(0)
    handle.close()

    assert disk.read(f"{root}/a", 10) == b"whole"


REFUSED: dict[str, tuple[Call, type[OSError]]] = {
    "create what is there": (lambda disk, at: disk.create(f"{at}/file", 0o600), FileExistsError),
    "make a folder that is there": (lambda disk, at: disk.make_folder(f"{at}/full", 0o700), FileExistsError),
    "open what is not there": (lambda disk, at: disk.open(f"{at}/no"), FileNotFoundError),
    "read what is not there": (lambda disk, at: disk.read(f"{at}/no", 1), FileNotFoundError),
    "read in what is not there": (lambda disk, at: disk.read(f"{at}/no/a", 1), FileNotFoundError),
    "read in a file": (lambda disk, at: disk.read(f"{at}/file/a", 1), NotADirectoryError),
    "list what is not there": (lambda disk, at: disk.names(f"{at}/no"), FileNotFoundError),
    "list a file": (lambda disk, at: disk.names(f"{at}/file"), NotADirectoryError),
    "size of what is not there": (lambda disk, at: disk.size(f"{at}/no"), FileNotFoundError),
    "create in what is not there": (lambda disk, at: disk.create(f"{at}/no/a", 0o600), FileNotFoundError),
    "remove what is not there": (lambda disk, at: disk.remove(f"{at}/no"), FileNotFoundError),
    "remove all of nothing": (lambda disk, at: disk.remove_all(f"{at}/no"), FileNotFoundError),
    "remove a folder as a file": (lambda disk, at: disk.remove(f"{at}/full"), IsADirectoryError),
    "remove a folder that is not empty": (lambda disk, at: disk.remove_folder(f"{at}/full"), OSError),
    "rename what is not there": (lambda disk, at: disk.rename(f"{at}/no", f"{at}/a"), FileNotFoundError),
    "rename onto a full folder": (lambda disk, at: disk.rename(f"{at}/empty", f"{at}/full"), OSError),
    "a file onto a folder": (lambda disk, at: disk.rename(f"{at}/file", f"{at}/empty"), IsADirectoryError),
    "a folder onto a file": (lambda disk, at: disk.rename(f"{at}/full", f"{at}/file"), NotADirectoryError),
    "lock what is not there": (
        lambda disk, at: disk.lock(f"{at}/no", is_shared=True, waits=False),
        FileNotFoundError,
    ),
    "sync what is not there": (lambda disk, at: disk.sync_folder(f"{at}/no"), FileNotFoundError),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_are_the_same_errors(disk: Disk, root: str, what: str) -> None:
    put(disk, f"{root}/file", b"x")
    disk.make_folder(f"{root}/empty", 0o700)
    disk.make_folder(f"{root}/full", 0o700)
    put(disk, f"{root}/full/inside", b"y")
    call, kind = REFUSED[what]

    with pytest.raises(kind):
        call(disk, root)
    assert disk.names(root) == ["empty", "file", "full"]


def test_rename_replaces_a_file_and_moves_a_folder_with_what_is_in_it(disk: Disk, root: str) -> None:
    put(disk, f"{root}/old", b"old")
    put(disk, f"{root}/new", b"new")
    disk.rename(f"{root}/new", f"{root}/old")
    disk.make_folder(f"{root}/from", 0o700)
    disk.make_folder(f"{root}/to", 0o700)
    put(disk, f"{root}/from/inside", b"x")
    disk.rename(f"{root}/from", f"{root}/to/moved")

    assert disk.read(f"{root}/old", 9) == b"new"
    assert disk.names(root) == ["old", "to"]
    assert disk.names(f"{root}/to/moved") == ["inside"]


def test_remove_all_takes_folders_in_folders_and_single_files(disk: Disk, root: str) -> None:
    disk.make_folder(f"{root}/a", 0o700)
    disk.make_folder(f"{root}/a/b", 0o700)
    put(disk, f"{root}/a/b/c", b"x")
    put(disk, f"{root}/file", b"x")
    disk.remove_all(f"{root}/a")
    disk.remove_all(f"{root}/file")

    assert disk.names(root) == []
    assert not disk.exists(f"{root}/a")


def test_lock_is_shared_with_sharers_only(disk: Disk, root: str) -> None:
    one = disk.lock(root, is_shared=True, waits=False)
    two = disk.lock(root, is_shared=True, waits=True)
    assert one is not None
    assert two is not None
    assert disk.lock(root, is_shared=False, waits=False) is None
    one.release()
    one.release()
    assert disk.lock(root, is_shared=False, waits=False) is None
    two.release()
    exclusive = disk.lock(root, is_shared=False, waits=False)

    assert exclusive is not None
    assert disk.lock(root, is_shared=True, waits=False) is None
    exclusive.release()


def test_lock_knows_whether_its_folder_is_still_at_its_path(disk: Disk, root: str) -> None:
    disk.make_folder(f"{root}/a", 0o700)
    lock = disk.lock(f"{root}/a", is_shared=True, waits=False)
    assert lock is not None
    assert lock.is_of(f"{root}/a")
    disk.rename(f"{root}/a", f"{root}/b")
    assert not lock.is_of(f"{root}/a")
    disk.make_folder(f"{root}/a", 0o700)

    assert not lock.is_of(f"{root}/a")
    assert lock.is_of(f"{root}/b")
    lock.release()


def test_replaced_file_has_the_new_content_and_leaves_no_draft(disk: Disk, root: str) -> None:
    replace_file(disk, f"{root}/a", b"one")
    replace_file(disk, f"{root}/a", b"two", mode=0o644)

    assert disk.read(f"{root}/a", 9) == b"two"
    assert disk.names(root) == ["a"]


def test_drafts_of_killed_writers_go_and_those_of_living_ones_stay(disk: Disk, root: str) -> None:
    dead, living = ".a.999999999-1.new", f".a.{os.getpid()}-1.new"
    if isinstance(disk, MemoryDisk):
        disk.living.add(os.getpid())
    for name in ("a", dead, living, "a.new"):
        put(disk, f"{root}/{name}", b"x")
    drop_drafts(disk, root)
    drop_drafts(disk, f"{root}/nowhere")

    assert sorted(disk.names(root)) == sorted(["a", living, "a.new"])


def test_sync_and_free_bytes_answer(disk: Disk, root: str) -> None:
    put(disk, f"{root}/a", b"x" * 1000)
    disk.sync_folder(root)

    assert disk.free_bytes(root) > 1 << 20
    assert disk.boot_id() == disk.boot_id() != ""


@pytest.fixture
def memory() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_folder("/pool", 0o700)
    disk.sync_folder("/")
    return disk


def test_power_cut_loses_names_whose_folder_was_not_synced(memory: MemoryDisk) -> None:
    memory.create("/pool/a", 0o600).sync()
    memory.sync_folder("/pool")
    memory.create("/pool/b", 0o600).sync()
    memory.lose_power("none", "new")

    assert memory.names("/pool") == ["a"]


def test_power_cut_keeps_names_of_each_folder_as_a_prefix(memory: MemoryDisk) -> None:
    for name in "abcdef":
        memory.create(f"/pool/{name}", 0o600).sync()
    seen = set()
    for seed in range(50):
        twin = memory.copy()
        twin.lose_power("prefix", "new", seed)
        seen.add("".join(twin.names("/pool")))

    assert seen <= {"abcdef"[:end] for end in range(7)}
    assert len(seen) > 3


@pytest.mark.parametrize(("contents", "expected"), [("old", b"old"), ("zeros", bytes(6)), ("new", b"newest")])
def test_power_cut_spoils_contents_that_were_not_synced(
    memory: MemoryDisk, contents: str, expected: bytes
) -> None:
    handle = memory.create("/pool/a", 0o600)
    handle.write_at(0, b"old")
    handle.sync()
    memory.sync_folder("/pool")
    handle.write_at(0, b"newest")
    memory.lose_power("none", contents)

    assert memory.read("/pool/a", 9) == expected


def test_rename_survives_in_both_folders_or_in_neither(memory: MemoryDisk) -> None:
    memory.make_folder("/pool/to", 0o700)
    memory.create("/pool/a", 0o600).sync()
    memory.sync_folder("/pool")
    memory.rename("/pool/a", "/pool/to/a")
    lost, kept, synced = memory.copy(), memory.copy(), memory.copy()
    lost.lose_power("none", "new")
    kept.lose_power("all", "new")
    synced.sync_folder("/pool/to")
    synced.lose_power("none", "new")

    assert lost.exists("/pool/a")
    assert not lost.exists("/pool/to/a")
    assert not kept.exists("/pool/a")
    assert kept.exists("/pool/to/a")
    assert not synced.exists("/pool/a")
    assert synced.exists("/pool/to/a")


def test_failed_sync_makes_nothing_safe_even_if_the_next_one_succeeds(memory: MemoryDisk) -> None:
    handle = memory.create("/pool/a", 0o600)
    memory.sync_folder("/pool")
    handle.write_at(0, b"x")
    memory.arm(Fault("EIO", 0))
    with pytest.raises(OSError, match="Input/output"):
        handle.sync()
    memory.arm(None)
    handle.sync()
    memory.lose_power("none", "new")

    assert memory.read("/pool/a", 9) == b""


def test_full_disk_refuses_to_grow_a_file(memory: MemoryDisk) -> None:
    memory.capacity_bytes = 10
    handle = memory.create("/pool/a", 0o600)
    handle.allocate(8)
    with pytest.raises(OSError, match="No space left"):
        handle.allocate(11)
    handle.write_at(0, b"12345678")

    assert memory.free_bytes("/pool") == 2
