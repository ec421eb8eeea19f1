"""A machine's memory to a file and back, without QEMU: what it holds and takes, and every kind of damage."""

from __future__ import annotations

import binascii
import errno
import hashlib
import os
import resource
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import CacheError, NoRoom, Unsuitable, WrongBytes
from cachemgr.machines.qemu import saving
from cachemgr.machines.qemu.digests import check_files, digest_file
from cachemgr.machines.qemu.layout import END, read_layout
from cachemgr.machines.qemu.loading import SavedMemory
from cachemgr.machines.qemu.memory import GuestMemory, make_memory, runs_of
from cachemgr.machines.qemu.saving import save_memory
from cachemgr.machines.record import SavedFile

if TYPE_CHECKING:
    from collections.abc import Callable

KIB, MIB = 1 << 10, 1 << 20
MEMORY_BYTES = 9 * MIB
DEVICES = b"devices" * 1000


class FakeMonitor:
    """QEMU as far as it writes and reads what it says of its devices."""

    def __init__(self, said: bytes = DEVICES, status: str = "completed") -> None:
        self._said, self._status = said, status
        self._fd = -1
        self.is_shared: bool | None = None
        self.read: bytes | None = None

    def command(self, command: str, arguments: Any = None, fd: int | None = None) -> None:
        if command == "migrate-set-capabilities":
            (capability,) = arguments["capabilities"]
            assert capability["capability"] == "x-ignore-shared"
            self.is_shared = capability["state"]
        elif command == "getfd":
            assert fd is not None
            self._fd = os.dup(fd)
        elif command == "migrate":
            os.write(self._fd, self._said)
            os.close(self._fd)
        elif command == "migrate-incoming":
            self.read = os.read(self._fd, len(self._said))
            os.close(self._fd)

    def migration(self) -> dict[str, str]:
        return {"status": self._status}

    def wait_for_migration(self, *_: object) -> dict[str, str]:
        return self.migration()


def guest(*filled: tuple[int, int]) -> GuestMemory:
    """Memory with noise in these ranges."""
    memory = make_memory(MEMORY_BYTES)
    for start, length in filled:
        os.pwrite(memory.fd, os.urandom(length), start)
    return memory


def content(memory: GuestMemory) -> bytes:
    return os.pread(memory.fd, memory.size_bytes, 0)


def saved(
    memory: GuestMemory | None,
    path: Path,
    monitor: FakeMonitor | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> SavedFile:
    asked: Any = monitor or FakeMonitor()
    return save_memory(asked, memory, RealDisk(), SystemClock(), str(path), meanwhile)


def loaded(path: Path, known: SavedFile, monitor: FakeMonitor) -> bytes:
    """What is in the memory that a new QEMU is given."""
    with closing(SavedMemory(RealDisk(), str(path), known, MEMORY_BYTES)) as state:
        state.load(monitor)  # type: ignore[arg-type]
        return content(state.memory)


@pytest.mark.parametrize(
    "filled",
    [
        [],
        [(0, MEMORY_BYTES)],
        [(5 * KIB, 1), (MEMORY_BYTES - 1, 1)],
        [(0, 4 * MIB + 64 * KIB)],
        [(at, 40 * KIB) for at in range(64 * KIB, MEMORY_BYTES, 192 * KIB)],
    ],
    ids=["nothing", "all", "first-and-last", "more-than-pieces", "every-third-block"],
)
def test_memory_comes_back_as_it_was(tmp_path: Path, filled: list[tuple[int, int]]) -> None:
    path, monitor = tmp_path / "state.1", FakeMonitor()
    with closing(guest(*filled)) as memory:
        before = content(memory)
        known = saved(memory, path, monitor)
    after = loaded(path, known, monitor)

    assert after == before
    assert monitor.read == DEVICES
    assert monitor.is_shared
    assert known == digest_file(RealDisk(), str(path))
    assert os.listdir(tmp_path) == ["state.1"]


def test_file_takes_what_the_memory_holds_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "state.1"
    with closing(guest((MIB, MIB))) as memory:
        # Touched and empty again, as what a guest has freed and cleared.
        os.pwrite(memory.fd, bytes(4 * MIB), 4 * MIB)
        saved(memory, path)

    # A MiB for what QEMU says, one of memory, a bit for each of 144 blocks, the end.
    assert path.stat().st_size == 2 * MIB + 144 // 8 + END.size
    assert path.stat().st_blocks * 512 <= 2 * MIB + 64 * KIB


def test_digest_does_not_depend_on_the_order_in_which_pieces_come(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = os.urandom(3 * MIB + 5)
    path.write_bytes(data)
    pieces = [binascii.crc32(data[at : at + MIB]).to_bytes(4, "big") for at in range(0, len(data), MIB)]

    found = digest_file(RealDisk(), str(path))

    assert found == SavedFile(len(data), "crc32:" + hashlib.sha256(b"".join(pieces)).hexdigest())


@pytest.mark.parametrize("kind", ["of pieces", "of the whole"])
def test_what_an_older_version_saved_is_still_checked(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state.1"
    with closing(guest((0, 3 * MIB))) as memory:
        saved(memory, path)
    data = path.read_bytes()
    pieces = [hashlib.sha256(data[at : at + MIB]).digest() for at in range(0, len(data), MIB)]
    digest = "pieces:" + hashlib.sha256(b"".join(pieces)).hexdigest()
    if kind == "of the whole":
        digest = hashlib.sha256(data).hexdigest()
    known = SavedFile(len(data), digest)
    check_files(RealDisk(), str(tmp_path), {"state.1": known})
    if kind == "of pieces":
        loaded(path, known, FakeMonitor())

    path.write_bytes(data[: MIB + 7] + bytes([data[MIB + 7] ^ 1]) + data[MIB + 8 :])

    with pytest.raises(WrongBytes, match="its digest differs"):
        check_files(RealDisk(), str(tmp_path), {"state.1": known})
    if kind == "of pieces":
        with pytest.raises(WrongBytes, match="its digest differs"):
            loaded(path, known, FakeMonitor())


@pytest.mark.parametrize("place", ["devices", "gap", "first-page", "last-page", "bits", "sizes", "magic"])
def test_one_wrong_bit_anywhere_is_found_before_qemu_is_given_anything(tmp_path: Path, place: str) -> None:
    path, monitor = tmp_path / "state.1", FakeMonitor()
    with closing(guest((0, 3 * MIB + 64 * KIB))) as memory:
        known = saved(memory, path)
    end = known.size_bytes - END.size
    at = {
        "devices": 10, "gap": len(DEVICES) + 5, "first-page": MIB, "last-page": 4 * MIB + 64 * KIB - 1,
        "bits": end - 18, "sizes": end + 20, "magic": end,
    }[place]  # fmt: skip
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))

    with pytest.raises(WrongBytes, match="is not what was saved"):
        loaded(path, known, monitor)

    assert monitor.read is None
    with pytest.raises(WrongBytes, match="its digest differs"):
        check_files(RealDisk(), str(tmp_path), {"state.1": known})


@pytest.mark.parametrize("is_shared", [True, False])
def test_what_fails_meanwhile_leaves_no_file(tmp_path: Path, *, is_shared: bool) -> None:
    def fail() -> None:
        raise NoRoom("no room for a layer")

    with closing(guest((0, MEMORY_BYTES))) as memory, pytest.raises(NoRoom, match="for a layer"):
        saved(memory if is_shared else None, tmp_path / "state.1", meanwhile=fail)

    assert not os.listdir(tmp_path)


def test_pieces_that_change_places_are_found(tmp_path: Path) -> None:
    path = tmp_path / "state.1"
    with closing(guest((0, MEMORY_BYTES))) as memory:
        known = saved(memory, path)
    data = path.read_bytes()
    path.write_bytes(data[:MIB] + data[2 * MIB : 3 * MIB] + data[MIB : 2 * MIB] + data[3 * MIB :])

    with pytest.raises(WrongBytes, match="its digest differs"):
        loaded(path, known, FakeMonitor())


def test_end_that_names_places_outside_is_no_layout(tmp_path: Path) -> None:
    path = tmp_path / "state.1"
    with closing(guest((0, MIB))) as memory:
        known = saved(memory, path)
    data = path.read_bytes()
    bits = len(data) - END.size - 18
    # As many blocks as before, one of them behind the memory's end.
    beyond = bytearray(data)
    beyond[bits], beyond[bits + 17] = 0x7F, 0x80
    longer = data[: -END.size] + END.pack(b"outrider-state-2", known.size_bytes, MEMORY_BYTES)
    fewer = bytearray(data)
    fewer[bits] = 0

    def layout(found: bytes, memory_bytes: int = MEMORY_BYTES - 64 * KIB) -> object:
        path.write_bytes(found)
        with path.open("rb") as file:
            return read_layout(file.fileno(), len(found), memory_bytes)

    assert layout(data, MEMORY_BYTES) is not None
    assert [layout(each, MEMORY_BYTES) for each in (longer, bytes(fewer), b"", data[1:])] == [None] * 4
    small = data[: -END.size] + END.pack(b"outrider-state-2", len(DEVICES), MEMORY_BYTES - 64 * KIB)
    assert layout(small) is not None
    assert layout(bytes(beyond[: -END.size]) + small[-END.size :]) is None


def test_state_of_another_size_of_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.1"
    with closing(guest((0, MIB))) as memory:
        known = saved(memory, path)

    with pytest.raises(WrongBytes, match="does not end as such a file does"):
        SavedMemory(RealDisk(), str(path), known, 2 * MEMORY_BYTES)


def test_state_of_an_older_version_is_read_by_qemu_alone(tmp_path: Path) -> None:
    path, monitor = tmp_path / "state.1", FakeMonitor()
    path.write_bytes(DEVICES)
    known = SavedFile(len(DEVICES), hashlib.sha256(DEVICES).hexdigest())

    assert loaded(path, known, monitor) == bytes(MEMORY_BYTES)
    assert monitor.read == DEVICES
    assert monitor.is_shared is False
    path.write_bytes(DEVICES[:-1] + b"x")
    with pytest.raises(WrongBytes, match="its digest differs"):
        loaded(path, known, FakeMonitor())
    with pytest.raises(WrongBytes, match="its digest differs"):
        check_files(RealDisk(), str(tmp_path), {"state.1": known})


def test_qemu_of_an_older_version_writes_its_memory_itself(tmp_path: Path) -> None:
    path = tmp_path / "state.1"
    said = os.urandom(3 * MIB + 7)
    writer = FakeMonitor(said)
    known = saved(None, path, writer)
    reader = FakeMonitor(said)

    assert loaded(path, known, reader) == bytes(MEMORY_BYTES)
    assert (writer.is_shared, reader.is_shared) == (False, False)
    assert reader.read == said


@pytest.mark.parametrize("step", ["room", "memory"])
def test_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(saving, {"room": "_take_room", "memory": "write_all"}[step], full)
    with closing(guest((0, MEMORY_BYTES))) as memory, pytest.raises(OSError, match="No space left"):
        saved(memory, tmp_path / "state.1")

    assert os.listdir(tmp_path) == []


def test_qemu_that_does_not_finish_leaves_no_file(tmp_path: Path) -> None:
    with closing(guest()) as memory, pytest.raises(CacheError, match="could not save: failed") as refused:
        saved(memory, tmp_path / "state.1", FakeMonitor(status="failed"))

    assert not isinstance(refused.value, NoRoom)
    assert os.listdir(tmp_path) == []


def test_large_pages_change_nothing_of_what_is_there() -> None:
    with closing(guest((0, 3 * MIB))) as memory:
        before = content(memory)
        ranges = list(memory.made_huge([*range(40), *range(64, 144)]))

        assert content(memory) == before
    # The last MiB of 9 is no large page. Where the kernel cannot do it, or not quickly, it ends earlier.
    assert ranges == [(0, 2 * MIB), (4 * MIB, 8 * MIB)][: len(ranges)]


def test_runs_are_told_apart_and_cut() -> None:
    assert list(runs_of([1, 2, 3, 5, 7, 8], 2)) == [(1, 2), (3, 1), (5, 1), (7, 2)]
    assert list(runs_of([], 2)) == []


def test_limit_on_files_that_is_below_the_memory_is_named() -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, before[1]))
    try:
        with pytest.raises(Unsuitable, match=r"memory of 9 MiB .* File too large; .*ulimit -f"):
            make_memory(MEMORY_BYTES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
