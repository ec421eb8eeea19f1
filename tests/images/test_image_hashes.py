"""Digests of files: each content is read once, and a changed one again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outrider.service.images.hashing import Hashes
from outrider.service.ports import ImageTrouble


class SetClock:
    """Seconds that a test sets; each look at the monotonic one takes a second."""

    def __init__(self, now_s: int) -> None:
        self.seconds = now_s
        self.looks = 0

    def now_s(self) -> int:
        return self.seconds

    def monotonic_s(self) -> float:
        self.looks += 1
        return float(self.looks)


LATER_S = 4_000_000_000


@contextmanager
def opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


def digest(hashes: Hashes, path: Path) -> str:
    with opened(path) as file:
        return hashes.digest_of(file, path.name)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets at which files were read."""
    found: list[int] = []
    read = os.preadv

    def count(file: int, buffers: list[memoryview], offset: int) -> int:
        found.append(offset)
        return read(file, buffers, offset)

    monkeypatch.setattr(os, "preadv", count)
    return found


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_content_is_read_once_even_by_the_next_service(
    put: Callable[..., Path], folder: Path, reads: list[int]
) -> None:
    path, clock = put(content=b"x" * 3_000_000), SetClock(LATER_S)
    found = [digest(Hashes(folder / "known", clock), path) for _ in range(3)]

    assert found == [sha256(b"x" * 3_000_000)] * 3
    assert reads == [0, 1 << 20, 2 << 20]


def test_changed_file_of_the_same_size_is_read_again(put: Callable[..., Path]) -> None:
    hashes = Hashes(None, SetClock(LATER_S))
    before = digest(hashes, put(content=b"one"))

    assert before == sha256(b"one")
    assert digest(hashes, put(content=b"two")) == sha256(b"two")


def test_other_file_with_the_same_times_is_another(put: Callable[..., Path]) -> None:
    hashes = Hashes(None, SetClock(LATER_S))
    paths = [put(name, name.encode()) for name in ("a", "b")]
    for path in paths:
        os.utime(path, ns=(1, 1))

    assert [digest(hashes, path) for path in paths] == [sha256(b"a"), sha256(b"b")]


def test_file_that_changed_a_moment_ago_is_not_remembered(put: Callable[..., Path], reads: list[int]) -> None:
    path = put()
    clock = SetClock(path.stat().st_ctime_ns // 1_000_000_000 + 1)
    hashes = Hashes(None, clock)
    found = [digest(hashes, path) for _ in range(2)]

    assert found == [sha256(b"an image")] * 2
    assert reads == [0, 0]


def test_file_that_changes_while_it_is_read_is_refused(
    put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(content=b"x" * 2_000_000)
    read = os.preadv

    def change(file: int, buffers: list[memoryview], offset: int) -> int:
        count = read(file, buffers, offset)
        with path.open("r+b") as other:
            other.write(b"y")
        return count

    monkeypatch.setattr(os, "preadv", change)

    with pytest.raises(ImageTrouble, match="changes while it is read"):
        digest(Hashes(None, SetClock(LATER_S)), path)


def test_reading_has_an_end(put: Callable[..., Path]) -> None:
    path = put(content=b"x" * 5_000_000)

    with pytest.raises(ImageTrouble, match="could not be read within 2 s"):
        digest(Hashes(None, SetClock(LATER_S), hash_s=2), path)


def test_only_so_many_are_remembered_and_the_longest_unused_go(
    put: Callable[..., Path], folder: Path, reads: list[int]
) -> None:
    hashes = Hashes(folder / "known", SetClock(LATER_S), most_known=2)
    a, b, c = (put(name, name.encode()) for name in "abc")
    for path in (a, b, a, c):
        digest(hashes, path)
    before = len(reads)
    digest(hashes, a)
    digest(hashes, b)
    rows = json.loads((folder / "known").read_text())["files"]

    assert (before, len(reads)) == (3, 4)
    assert len(rows) == 2


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b'{"version":1,"files":[[1,2]]}', b'{"version":1,"files":7}', b'{"version":2}'],
)
def test_damaged_memory_is_none(put: Callable[..., Path], folder: Path, damage: bytes) -> None:
    (folder / "known").write_bytes(damage)
    hashes = Hashes(folder / "known", SetClock(LATER_S))

    assert digest(hashes, put()) == sha256(b"an image")
