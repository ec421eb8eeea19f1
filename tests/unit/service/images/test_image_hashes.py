"""Digests of files: each content is read once, and a changed one again."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from outrider.service.images.hashing import Hashes
from outrider.service.images.pacing import Pacing
from outrider.service.images.reading import Reader, ReadingProgram, ReadingProgress
from outrider.service.ports import ImageTrouble
from tests.unit.service.daemon.fakes import eventually

CLOCK = SystemClock()


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

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


class Stopped:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def monotonic_s(self) -> float:
        return self.at_s


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


class Starts:
    """Begins real programs, and counts the files that are read; `before` is called at each order."""

    def __init__(self) -> None:
        self.files = 0
        self.before: Callable[[], object] = lambda: None

    def __call__(self, file: int, size_bytes: int) -> Reader:
        self.files += 1
        starts = self

        class Watched(ReadingProgram):
            def order(self, seconds: float) -> None:
                starts.before()
                super().order(seconds)

        return Watched(file, size_bytes)


@pytest.fixture
def starts() -> Starts:
    return Starts()


class Endless:
    """A reader that comes no further, or does not even answer. `killed` says whether it was ended."""

    def __init__(self, *, answers: bool = True, ends: bool = True) -> None:
        self.answers = answers
        self.has_ended = False
        self.ends = ends

    def order(self, seconds: float) -> None: ...

    def answer(self, timeout_s: float) -> ReadingProgress | None:
        return ReadingProgress(1, 1, "") if self.answers else None

    def close(self) -> bool:
        self.has_ended = self.ends
        return self.ends


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_content_is_read_once_even_by_the_next_service(
    put: Callable[..., Path], folder: Path, starts: Starts
) -> None:
    path, clock = put(content=b"x" * 3_000_000), SetClock(LATER_S)
    found = [digest(Hashes(folder / "known", clock, start=starts), path) for _ in range(3)]

    assert found == [sha256(b"x" * 3_000_000)] * 3
    assert starts.files == 1


def test_content_that_several_ask_for_at_once_is_read_once(put: Callable[..., Path], starts: Starts) -> None:
    path = put(content=b"x" * 3_000_000)
    hashes = Hashes(None, SetClock(LATER_S), start=starts)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: digest(hashes, path), range(8)))

    assert found == [sha256(b"x" * 3_000_000)] * 8
    assert starts.files == 1


def test_holes_are_hashed_without_being_read(put: Callable[..., Path]) -> None:
    path = put(content=b"first")
    with path.open("r+b") as file:
        file.seek(40 << 20)
        file.write(b"last")
        file.truncate(50 << 20)
    read_bytes = 0

    class Counted(ReadingProgram):
        def answer(self, timeout_s: float) -> ReadingProgress | None:
            nonlocal read_bytes
            found = super().answer(timeout_s)
            read_bytes += found.read_bytes if found else 0
            return found

    assert digest(Hashes(None, CLOCK, start=Counted), path) == sha256(path.read_bytes())
    assert 9 <= read_bytes < 1 << 20


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


def test_file_that_changed_a_moment_ago_is_not_remembered(put: Callable[..., Path], starts: Starts) -> None:
    path = put()
    clock = SetClock(path.stat().st_ctime_ns // 1_000_000_000 + 1)
    hashes = Hashes(None, clock, start=starts)
    found = [digest(hashes, path) for _ in range(2)]

    assert found == [sha256(b"an image")] * 2
    assert starts.files == 2


def test_file_that_changes_while_it_is_read_is_refused(put: Callable[..., Path], starts: Starts) -> None:
    path = put(content=b"x" * 2_000_000)
    starts.before = lambda: path.write_bytes(b"y" * 2_000_000)

    with pytest.raises(ImageTrouble, match="changes while it is read"):
        digest(Hashes(None, SetClock(LATER_S), start=starts), path)


def test_file_that_becomes_shorter_is_refused(put: Callable[..., Path], starts: Starts) -> None:
    path = put(content=b"x" * 2_000_000)
    starts.before = lambda: os.truncate(path, 1_000_000)

    with pytest.raises(ImageTrouble, match="becomes shorter while it is read"):
        digest(Hashes(None, SetClock(LATER_S), start=starts), path)


def test_reading_has_an_end(put: Callable[..., Path]) -> None:
    endless = Endless()

    with pytest.raises(ImageTrouble, match="could not be read within 20 s"):
        digest(Hashes(None, SetClock(LATER_S), hash_s=20, start=lambda file, size: endless), put())
    assert endless.has_ended


def test_reading_that_nobody_wants_any_more_ends(put: Callable[..., Path]) -> None:
    endless, asked = Endless(), iter([True, True, True])
    with opened(put()) as file, pytest.raises(ImageTrouble, match="not wanted any more"):
        Hashes(None, SetClock(LATER_S), start=lambda *_: endless).digest_of(
            file, "image", 1, lambda: next(asked, False)
        )

    assert endless.has_ended


def test_file_system_that_does_not_answer_keeps_no_place(put: Callable[..., Path]) -> None:
    hanging: list[Endless] = []

    def start(file: int, size_bytes: int) -> Reader:
        if size_bytes != 1:
            return ReadingProgram(file, size_bytes)
        hanging.append(Endless(answers=False, ends=False))
        return hanging[-1]

    hashes = Hashes(None, CLOCK, start=start)
    wanted = threading.Event()
    wanted.set()
    stuck = [put(f"stuck{number}", b"x") for number in range(6)]

    def read(path: Path) -> str:
        with opened(path) as file, suppress(ImageTrouble):
            return hashes.digest_of(file, path.name, 7, wanted.is_set)
        return ""

    with ThreadPoolExecutor(6) as pool:
        under_way = [pool.submit(read, path) for path in stuck]
        found = digest(hashes, put("good", b"good one"))
        wanted.clear()
        assert [each.result() for each in under_way] == [""] * 6

    assert found == sha256(b"good one")
    with opened(stuck[0]) as file, pytest.raises(ImageTrouble, match="others of yours hang in a file system"):
        hashes.digest_of(file, "stuck", 7)


def test_users_take_turns_at_reading() -> None:
    pacing = Pacing(1, CLOCK)
    order: list[int] = []
    assert pacing.take(1)

    def work(user: int) -> None:
        assert pacing.take(user, 20)
        order.append(user)
        pacing.give(user, 0.0, 0)

    with ThreadPoolExecutor(8) as pool:
        for count, user in enumerate((7, 7, 7, 7, 8), 1):
            pool.submit(work, user)
            eventually(partial(lambda many: len(pacing) == many, count), "the queue")
        pacing.give(1, 0.0, 0)

    assert sorted(order) == [7, 7, 7, 7, 8]
    assert order.index(8) <= 1


def test_reading_keeps_to_a_rate() -> None:
    clock = Stopped()
    pacing = Pacing(2, clock, rate_bytes_per_s=100)
    assert pacing.take(1)
    pacing.give(1, 0.1, 1_000)

    clock.at_s += 9
    assert not pacing.take(1, 0.0)
    clock.at_s += 1
    assert pacing.take(1, 0.0)


def test_only_so_many_are_remembered_and_the_longest_unused_go(
    put: Callable[..., Path], folder: Path, starts: Starts
) -> None:
    hashes = Hashes(folder / "known", SetClock(LATER_S), most_known=2, start=starts)
    a, b, c = (put(name, name.encode()) for name in "abc")
    for path in (a, b, a, c):
        digest(hashes, path)
    before = starts.files
    digest(hashes, a)
    digest(hashes, b)
    rows = json.loads((folder / "known").read_text())["files"]

    assert (before, starts.files) == (3, 4)
    assert len(rows) == 2


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b'{"version":1,"files":[[1,2]]}', b'{"version":1,"files":7}', b'{"version":2}'],
)
def test_damaged_memory_is_none(put: Callable[..., Path], folder: Path, damage: bytes) -> None:
    (folder / "known").write_bytes(damage)
    hashes = Hashes(folder / "known", SetClock(LATER_S))

    assert digest(hashes, put()) == sha256(b"an image")


def test_files_of_many_terabytes_do_not_stop_those_of_others(put: Callable[..., Path]) -> None:
    hashes, is_over = Hashes(None, CLOCK), threading.Event()
    large = [put(f"large{number}", b"") for number in range(10)]
    for path in large:
        os.truncate(path, 8 << 40)

    def read(user: int) -> str:
        with opened(large[user]) as file, suppress(ImageTrouble):
            return hashes.digest_of(file, "large", 2_000 + user, lambda: not is_over.is_set())
        return ""

    with ThreadPoolExecutor(10) as pool:
        under_way = [pool.submit(read, user) for user in range(10)]
        eventually(lambda: len(hashes.pacing) > 5, "a queue of readers")
        began_s = CLOCK.monotonic_s()
        with opened(put("small", b"small one")) as file:
            found = hashes.digest_of(file, "small", 1_001)
        took_s = CLOCK.monotonic_s() - began_s
        is_over.set()
        assert [each.result() for each in under_way] == [""] * 10

    assert found == sha256(b"small one")
    assert took_s < 10
