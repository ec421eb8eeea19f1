"""Faults planted into the pool, to see that the crash kit finds each of them.

Each takes one step of the order away that `docs/explanation/durability.md` promises.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from cachemgr.base import disk as disk_module
from cachemgr.pool import ingest, instance_book, layout, pins, room
from cachemgr.pool.files import PoolFiles
from cachemgr.pool.ingest import Writer
from cachemgr.pool.instance_book import Instance
from cachemgr.pool.pool import ImagePool
from cachemgr.pool.records import PoolImage
from tests.simulation.crash.memorydisk import MemoryDisk, MemoryHandle
from tests.simulation.crash.memoryindex import MemoryIndex

if TYPE_CHECKING:
    from cachemgr.pool.instance_book import Maker

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Planted:
    """A fault, a scenario that comes across it, and which kinds of accident show it."""

    name: str
    plant: Plant
    scenario: str
    found_by: frozenset[str]


def data_not_synced(patch: pytest.MonkeyPatch) -> None:
    sync = MemoryHandle.sync

    def only_small_files(handle: MemoryHandle) -> None:
        if not handle._path.endswith("/data"):
            sync(handle)

    patch.setattr(MemoryHandle, "sync", only_small_files)


def small_files_not_synced(patch: pytest.MonkeyPatch) -> None:
    sync = MemoryHandle.sync

    def only_data(handle: MemoryHandle) -> None:
        if handle._path.endswith("/data"):
            sync(handle)

    patch.setattr(MemoryHandle, "sync", only_data)


def folder_not_synced(ending: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        sync_folder = MemoryDisk.sync_folder

        def all_but_one(disk: MemoryDisk, path: str) -> None:
            if not path.endswith(ending):
                sync_folder(disk, path)

        patch.setattr(MemoryDisk, "sync_folder", all_but_one)

    return plant


def record_after_the_rename(patch: pytest.MonkeyPatch) -> None:
    """The image is visible first and gets its digest into its record then."""
    replace_file = disk_module.replace_file
    make_visible = Writer._make_visible
    later: list[tuple[MemoryDisk, str, bytes]] = []

    def hold_back(disk: MemoryDisk, path: str, data: bytes, **options: bool) -> None:
        if path.endswith("/image.json") and "/ingest/" in path:
            later.append((disk, path, data))
        else:
            replace_file(disk, path, data, **options)

    def then_write(writer: Writer, image: PoolImage) -> None:
        make_visible(writer, image)
        disk, _, data = later.pop()
        replace_file(disk, f"{writer.pool.layout.image(image.digest)}/image.json", data, mode=0o644)

    patch.setattr(ingest, "replace_file", hold_back)
    patch.setattr(Writer, "_make_visible", then_write)


def deleted_before_hidden(patch: pytest.MonkeyPatch) -> None:
    hide = room._hide

    def in_place(whose: ImagePool, folder: str, name: str) -> str:
        for path in whose.disk.names(folder):
            whose.disk.remove_all(f"{folder}/{path}")
        return hide(whose, folder, name)

    patch.setattr(room, "_hide", in_place)


def deleted_before_the_rename_is_synced(patch: pytest.MonkeyPatch) -> None:
    def without_sync(whose: ImagePool, folder: str, name: str) -> str:
        hidden = whose.layout.trash(name)
        whose.disk.rename(folder, hidden)
        return hidden

    patch.setattr(room, "_hide", without_sync)


def pin_forgotten(patch: pytest.MonkeyPatch) -> None:
    """`want` returns before there is a pin."""
    begin = ImagePool._begin
    patch.setattr(ImagePool, "_begin", lambda whose, want, pin: begin(whose, want, None))


def reservation_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryIndex, "take", lambda index, what, size_bytes: None)


def reservation_not_allocated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryHandle, "allocate", lambda handle, size_bytes: None)


def reservation_not_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryIndex, "give_back", lambda index, what: None)


def index_believed_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether the last holder of the lock died."""
    read_at = MemoryHandle.read_at

    def never_busy(handle: MemoryHandle, offset: int, most: int) -> bytes:
        return b"idle" if handle._path.endswith("/lock") else read_at(handle, offset, most)

    patch.setattr(MemoryHandle, "read_at", never_busy)


def index_believed_after_a_power_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryDisk, "boot_id", lambda disk: "always the same")


def never_marked_busy(patch: pytest.MonkeyPatch) -> None:
    write_at = MemoryHandle.write_at

    def not_the_marker(handle: MemoryHandle, offset: int, data: bytes | memoryview) -> None:
        write_at(handle, offset, b"idle" if handle._path.endswith("/lock") else data)

    patch.setattr(MemoryHandle, "write_at", not_the_marker)


def size_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writer, "size_bytes", property(lambda writer: writer.offset))


def digest_not_checked(patch: pytest.MonkeyPatch) -> None:
    """The promised digest is taken for what came."""
    commit = Writer.commit

    def trusting(writer: Writer, inspect: object = None) -> PoolImage:
        promised = writer.ingest.image.digest
        if promised:
            writer._hasher = Trusting(promised)
        return commit(writer)

    patch.setattr(Writer, "commit", trusting)


class Trusting:
    """A hasher that says what it was told."""

    def __init__(self, digest: str = "") -> None:
        self._digest = digest

    def update(self, data: bytes | memoryview) -> None:
        """Nothing is looked at."""

    def hexdigest(self) -> str:
        return self._digest

    def close(self) -> None:
        """Nothing is open."""


def notes_believed_after_a_power_cut(patch: pytest.MonkeyPatch) -> None:
    """What was noted without a sync is taken for safe, and with a digest for right."""
    read_progress = ingest.read_progress

    def trusting(disk: MemoryDisk, folder: str) -> tuple[int, int, str]:
        synced, arrived, _ = read_progress(disk, folder)
        return synced, arrived, disk.boot_id()

    patch.setattr(ingest, "read_progress", trusting)
    digest_not_checked(patch)


def trash_not_swept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(room, "sweep_trash", lambda pool: [])


def evicts_what_is_pinned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pins, "holds", lambda pin, now_s: False)


def names_before_the_image(patch: pytest.MonkeyPatch) -> None:
    make_visible = Writer._make_visible

    def names_first(writer: Writer, image: PoolImage) -> None:
        room.add_names(writer.pool, writer.ingest.folder, image.digest)
        make_visible(writer, image)

    patch.setattr(Writer, "_make_visible", names_first)


def names_not_finished(patch: pytest.MonkeyPatch) -> None:
    """What a dead process' commit still had to do is left to nobody."""
    rescan = room.rescan

    def without_settling(whose: ImagePool) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(room, "settle", lambda *_: None)
            rescan(whose)

    patch.setattr(room, "rescan", without_settling)


def merge_forgets_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writer, "_take_pins_of", lambda writer, source, target: None)


def settings_first(patch: pytest.MonkeyPatch) -> None:
    """`init` writes pool.json before there are any folders, and believes it when it is there."""
    create = ImagePool.create

    def early(disk: MemoryDisk, root: str, settings: layout.PoolSettings) -> None:
        if disk.exists(f"{root}/pool.json"):
            return
        if not disk.exists(root):
            disk.make_folder(root, 0o711)
        disk_module.replace_file(disk, f"{root}/pool.json", settings.encode(), mode=0o644)
        create(disk, root, settings)

    patch.setattr(ImagePool, "create", staticmethod(early))


def failure_taken_for_a_refusal(patch: pytest.MonkeyPatch) -> None:
    """An error of the disk in the middle of a change leaves the marker at idle."""
    marked = room._marked

    @contextmanager
    def always_idle(whose: PoolFiles) -> Iterator[None]:
        try:
            with marked(whose):
                yield
        except OSError:
            with closing(whose.disk.open(whose.layout.lock, for_writing=True)) as marker:
                marker.write_at(0, b"idle")
            raise

    patch.setattr(room, "_marked", always_idle)


def instance_given_out_half_removed(patch: pytest.MonkeyPatch) -> None:
    clear = instance_book._clear

    def unannounced(whose: ImagePool, maker: Maker, instance: Instance, folder: str) -> None:
        clear(whose, maker, dataclasses.replace(instance, is_ready=False), folder)

    patch.setattr(instance_book, "_clear", unannounced)


def planted(name: str, plant: Plant, scenario: str, *found_by: str) -> Planted:
    return Planted(name, plant, scenario, frozenset(found_by))


# A crash of the process keeps what was written, synced or not: what lacks a sync shows in a
# power cut only, what lacks an order in both. What happens to the index shows in a crash only,
# because after a power cut nobody believes it. "Undisturbed" means that no accident is needed.
PLANTED = (
    planted("data not synced", data_not_synced, "add by digest", "power"),
    planted("records not synced", small_files_not_synced, "add by digest", "power"),
    planted("images/ not synced", folder_not_synced("/images"), "evict by hand", "power"),
    planted("ingest/ not synced", folder_not_synced("/ingest"), "pause and resume", "power"),
    planted("aliases/ not synced", folder_not_synced("/aliases"), "names", "power"),
    planted("pins/ not synced", folder_not_synced("/pins"), "pin and unpin", "power"),
    planted("record after the rename", record_after_the_rename, "add by address", "crash", "power"),
    planted("deleted before hidden", deleted_before_hidden, "evict by hand", "crash", "power"),
    planted("rename not synced", deleted_before_the_rename_is_synced, "evict two", "power"),
    planted("pin forgotten", pin_forgotten, "pause and resume", "crash", "power"),
    planted("not counted", reservation_not_counted, "pause and resume", "crash"),
    planted("not allocated", reservation_not_allocated, "pause and resume", "crash", "power"),
    planted("not given back", reservation_not_given_back, "add by digest", "undisturbed"),
    planted("trusts the index after a crash", index_believed_after_a_crash, "evict two", "crash"),
    planted("trusts the index after power", index_believed_after_a_power_cut, "add by digest", "power"),
    planted("never busy", never_marked_busy, "evict two", "crash"),
    planted("size not checked", size_not_checked, "wrong size", "undisturbed"),
    planted("digest not checked", digest_not_checked, "wrong digest, then right", "undisturbed"),
    planted("notes believed", notes_believed_after_a_power_cut, "pause and resume", "power"),
    planted("trash not swept", trash_not_swept, "evict two", "crash", "power"),
    planted("pins not heeded", evicts_what_is_pinned, "evict around a pin", "undisturbed"),
    planted("names before the image", names_before_the_image, "add and move a name", "crash", "power"),
    planted("names not finished", names_not_finished, "join", "crash", "power"),
    planted("merge forgets leases", merge_forgets_leases, "merge", "undisturbed"),
    planted("settings first", settings_first, "init", "crash", "power"),
    planted("failure as refusal", failure_taken_for_a_refusal, "evict two", "refusal"),
    planted("half removed", instance_given_out_half_removed, "make and remove", "crash"),
)
