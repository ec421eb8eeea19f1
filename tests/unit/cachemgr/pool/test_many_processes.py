"""Several real processes in one pool: what each of them is told holds for all."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest

from bench.stress import CONTENTS, DIGESTS, StressAnswers, faults, make_pool, open_pool, round_of
from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import NotInPool
from cachemgr.base.hashing import InlineHasher
from cachemgr.pool import room
from cachemgr.pool.ingest import Ingest
from cachemgr.pool.pool import ImagePool, Want
from cachemgr.pool.records import PoolImage, PoolPin

DEADLINE_S = 90
CLOCK = SystemClock()
LARGE = max(range(len(CONTENTS)), key=lambda number: len(CONTENTS[number]))


@pytest.fixture
def place(tmp_path: Path) -> str:
    root = str(tmp_path / "pool")
    make_pool(root)
    return root


class Process:
    """A forked process that does one thing and answers with one line."""

    def __init__(self, act: Callable[[], str]) -> None:
        self._reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self._reading)
                os.write(writing, act().encode())
                code = 0
            finally:
                os._exit(code)
        os.close(writing)

    def answer(self) -> str:
        """What it answered; it has to be done by the deadline."""
        until_s = CLOCK.monotonic_s() + DEADLINE_S
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if CLOCK.monotonic_s() > until_s:
                self.kill()
                raise AssertionError(f"process {self.pid} was still waiting after {DEADLINE_S} s")
            sleep(0.002)
        with os.fdopen(self._reading, "rb") as pipe:
            return pipe.read().decode()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._reading)


def lease(pool: ImagePool, owner: str) -> PoolPin:
    now_s = pool.clock.now_s()
    return PoolPin(owner=owner, kind="hold", uid=0, expires_s=now_s + 3600, from_s=now_s)


def want_of(number: int) -> Want:
    return Want(uri=f"http://site/{number}", size_bytes=len(CONTENTS[number]), digest=DIGESTS[number])


def bring(pool: ImagePool, number: int, owner: str) -> int:
    """Have an image, by waiting or by writing; how many bytes were written for that."""
    written = 0
    until_s = CLOCK.monotonic_s() + DEADLINE_S
    while CLOCK.monotonic_s() < until_s:
        found = pool.want(want_of(number), lease(pool, owner))
        if isinstance(found, PoolImage):
            return written
        try:
            writer = found.writer(InlineHasher())
        except NotInPool:
            continue
        if writer is None:
            sleep(0.002)
            continue
        for at in range(writer.offset, len(CONTENTS[number]), 4096):
            block = CONTENTS[number][at : at + 4096]
            writer.write(block)
            written += len(block)
        writer.commit()
    raise AssertionError(f"{owner} did not get image {number}")


def test_sixteen_processes_at_random_leave_a_pool_in_order(place: str) -> None:
    told = StressAnswers()
    round_of(place, told, [f"job {number}" for number in range(16)], seed=3, seconds=6, is_killed=False)

    assert faults(place, told) == []
    assert told.counts["added"] > 100
    assert told.counts["unpinned"] > 100


def test_eight_who_want_one_image_at_once_cause_one_transfer(place: str) -> None:
    reading, writing = os.pipe()

    def act(owner: str) -> str:
        pool = open_pool(place)
        os.close(writing)
        os.read(reading, 1)
        return str(bring(pool, LARGE, owner))

    processes = [Process(lambda owner=f"job {number}": act(owner)) for number in range(8)]  # type: ignore[misc]
    os.close(writing)
    os.close(reading)
    answers = [int(each.answer()) for each in processes]
    pool = open_pool(place)
    owners = [pin.owner for pin in pool.pins(DIGESTS[LARGE])]
    pool.close()

    assert sum(answers) == len(CONTENTS[LARGE])
    assert owners == [f"job {number}" for number in range(8)]


def holding(*paths: str) -> Process:
    """A process that holds these locks exclusively until it is killed."""
    is_held, tell = os.pipe()

    def hold() -> str:
        locks = [RealDisk().lock(path, is_shared=False, waits=True) for path in paths]
        os.write(tell, b"!")
        signal.pause()
        return str(len(locks))

    process = Process(hold)
    os.read(is_held, 1)
    os.close(is_held)
    os.close(tell)
    return process


def test_reader_waits_neither_for_the_pool_nor_for_another_images_eviction(place: str) -> None:
    pool = open_pool(place)
    for number in (0, 1):
        bring(pool, number, "keeper")
    pool.close()
    holder = holding(f"{place}/lock", f"{place}/images/{DIGESTS[1]}")

    def read() -> str:
        one = open_pool(place)
        image = one.want(want_of(0), lease(one, "job 1"))
        one.use(DIGESTS[0])
        return f"{isinstance(image, PoolImage)} {len(one.images())} {one.unpin(DIGESTS[0], 'job 1')}"

    answer = Process(read).answer()
    holder.kill()

    assert answer == "True 2 True"


def test_what_changes_the_pool_waits_for_who_changes_it_and_goes_on_when_that_dies(place: str) -> None:
    holder = holding(f"{place}/lock")

    def change() -> str:
        return str(bring(open_pool(place), 1, "job 1"))

    process = Process(change)
    sleep(0.05)
    is_waiting = os.waitpid(process.pid, os.WNOHANG) == (0, 0)
    holder.kill()

    assert is_waiting
    assert process.answer() == str(len(CONTENTS[1]))


def test_pin_and_eviction_at_the_same_time_never_both_succeed(place: str) -> None:
    """One process pins and gives back, the other one evicts and brings in again."""
    rounds = 200

    def pin_and_look() -> str:
        pool = open_pool(place)
        pinned = lost = 0
        until_s = CLOCK.monotonic_s() + DEADLINE_S / 2
        while pinned < rounds and CLOCK.monotonic_s() < until_s:
            try:
                pool.pin(DIGESTS[LARGE], lease(pool, "pinner"))
            except NotInPool:
                continue
            pinned += 1
            for _ in range(3):
                if not os.path.exists(pool.data_path(DIGESTS[LARGE])):
                    lost += 1
            pool.unpin(DIGESTS[LARGE], "pinner")
        return f"{pinned} {lost}"

    pool = open_pool(place)
    bring(pool, LARGE, "keeper")
    pool.unpin(DIGESTS[LARGE], "keeper")
    process = Process(pin_and_look)
    evicted = kept = 0
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        with pool.changing("evicting"):
            is_evicted = room.evict(pool, DIGESTS[LARGE])
        evicted, kept = evicted + is_evicted, kept + (not is_evicted)
        bring(pool, LARGE, "keeper")
        pool.unpin(DIGESTS[LARGE], "keeper")
    pinned, lost = map(int, process.answer().split())
    pool.close()

    assert lost == 0
    assert pinned > 10
    assert evicted > 10


def test_killed_writer_is_followed_at_once_by_the_next_one(place: str) -> None:
    """The lock goes with its holder, and what it noted is not fetched again."""
    is_half, tell = os.pipe()
    half = len(CONTENTS[LARGE]) // 2

    def write_half() -> str:
        pool = open_pool(place)
        found = pool.want(want_of(LARGE), lease(pool, "first"))
        assert isinstance(found, Ingest)
        writer = found.writer(InlineHasher())
        assert writer is not None
        writer.write(CONTENTS[LARGE][:half])
        writer.checkpoint()
        os.write(tell, b"!")
        signal.pause()
        return ""

    first = Process(write_half)
    os.read(is_half, 1)
    first.kill()
    os.close(is_half)
    os.close(tell)
    pool = open_pool(place)
    written = bring(pool, LARGE, "second")
    owners = [pin.owner for pin in pool.pins(DIGESTS[LARGE])]
    pool.close()

    assert written == len(CONTENTS[LARGE]) - half
    assert owners == ["first", "second"]
