"""Many processes use one pool at once for a minute; then everything they were told must hold.

Each one adds, pins, unpins, names, finds, uses and evicts at random and writes down what was
acknowledged. `--kill` ends all of them with SIGKILL again and again on the way. Prints what
was done and what is wrong: nothing may be. The tests run the same for seconds.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import Arguments
from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import CacheError, InUse, NoRoom, NotInPool, WrongBytes
from cachemgr.base.hashing import InlineHasher
from cachemgr.pool import room
from cachemgr.pool.check import check, check_contents
from cachemgr.pool.index import SqliteIndex
from cachemgr.pool.ingest import drop_stale
from cachemgr.pool.instance_book import InstanceWish, MadeInstance
from cachemgr.pool.layout import PoolSettings
from cachemgr.pool.pool import ImagePool, Want
from cachemgr.pool.records import Alias, PoolImage, PoolPin

CLOCK = SystemClock()
LEASE_S = 3_600
LIMIT_BYTES = 1_200_000
IMAGES = 24
NAMES = 5


# What `check` may find after a kill: it takes no room and misleads nobody.
UNTIL_CHECKED = ("a draft whose writer died", "the alias", "what is left of an ingest")


def content_of(number: int) -> bytes:
    """An image, of 1 byte to 300 kB, always the same for one number."""
    random = Random(number)
    return random.randbytes(random.choice((1, 5_000, 70_000, 150_000, 300_000)))


CONTENTS = [content_of(number) for number in range(IMAGES)]
DIGESTS = [hashlib.sha256(content).hexdigest() for content in CONTENTS]


def open_pool(root: str) -> ImagePool:
    return ImagePool(RealDisk(), root, CLOCK, SqliteIndex(f"{root}/index.sqlite"))


class NoMaker:
    """There are no instances here."""

    def choose(self, image: PoolImage, wanted: str | None, *, is_writable: bool) -> str:
        raise NotImplementedError

    def taken_bytes(self, method: str, image: PoolImage) -> int:
        raise NotImplementedError

    def make(self, wish: InstanceWish, image_path: str, folder: str) -> MadeInstance:
        raise NotImplementedError

    def hand_over(self, folder: str, other: str) -> None:
        raise NotImplementedError

    def remove(self, folder: str) -> None:
        raise NotImplementedError


class Worker:
    """One process: acts at random, and tells of each act before and after it."""

    def __init__(self, pool: ImagePool, owner: str, random: Random, tell: Callable[[str], object]) -> None:
        self.pool = pool
        self.owner = owner
        self.random = random
        self.tell = tell

    def act(self) -> None:
        acts = (
            self.add,
            self.add,
            self.add,
            self.pin,
            self.unpin,
            self.unpin,
            self.name,
            self.look,
            self.evict,
        )
        number = self.random.randrange(IMAGES)
        act = self.random.choice(acts)
        with suppress(NoRoom, InUse, NotInPool):
            act(number)

    def lease(self) -> PoolPin:
        now_s = self.pool.clock.now_s()
        return PoolPin(owner=self.owner, kind="hold", uid=0, expires_s=now_s + LEASE_S, from_s=now_s)

    def add(self, number: int) -> None:
        """Alone or together with whoever wants the same; pausing on the way now and then."""
        content, is_known = CONTENTS[number], self.random.random() < 0.7
        digest = DIGESTS[number] if is_known else ""
        uri = f"http://site/{number}"
        want = Want(uri=uri, size_bytes=len(content), digest=digest, aliases=(uri,))
        for _ in range(200):
            self.tell(f"pinning {number}")
            found = self.pool.want(want, self.lease())
            if isinstance(found, PoolImage):
                self.tell(f"added {number}")
                if self.random.random() < 0.7:
                    # Otherwise soon everything is held and nothing evicted.
                    self.unpin(number)
                return
            with suppress(NotInPool):
                writer = found.writer(InlineHasher())
                if writer is None:
                    self.pool.clock.sleep(0.005)
                    continue
                while writer.offset < len(content):
                    writer.write(content[writer.offset : writer.offset + self.random.randrange(1, 60_000)])
                    if self.random.random() < 0.2:
                        writer.checkpoint()
                try:
                    writer.commit()
                except WrongBytes as error:
                    self.tell(f"wrong {number} {error}")
                finally:
                    writer.close()

    def pin(self, number: int) -> None:
        self.tell(f"pinning {number}")
        self.pool.pin(DIGESTS[number], self.lease())
        self.tell(f"pinned {number}")

    def unpin(self, number: int) -> None:
        self.tell(f"unpinning {number}")
        self.pool.unpin(DIGESTS[number], self.owner)
        self.tell(f"unpinned {number}")

    def name(self, number: int) -> None:
        self.pool.add_alias(Alias(f"name {number % NAMES}", DIGESTS[number]))

    def look(self, number: int) -> None:
        image = self.pool.find(DIGESTS[number])
        if image is not None:
            self.pool.use(image.digest)
            with suppress(FileNotFoundError):
                data = Path(self.pool.data_path(image.digest)).read_bytes()
                if data != CONTENTS[number]:
                    self.tell(f"wrong {number} as it was read")

    def evict(self, number: int) -> None:
        if self.random.random() < 0.3:
            with self.pool.changing("evicting"):
                room.evict(self.pool, DIGESTS[number])
        elif self.random.random() < 0.1:
            check(self.pool, NoMaker(), fix=True)
        else:
            drop_stale(self.pool)


@dataclass
class StressAnswers:
    """What the workers were told, over all rounds."""

    # Owner and image: held for sure, or in the middle of becoming or ceasing to be held.
    held: set[tuple[str, int]] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def hear(self, owner: str, text: str) -> None:
        for line in text.splitlines():
            verb, _, rest = line.partition(" ")
            self.counts[verb] += 1
            if verb in ("wrong", "error"):
                self.wrong.append(f"{owner}: {line}")
                continue
            key = (owner, int(rest))
            if verb in ("added", "pinned"):
                self.held.add(key)
            elif verb in ("unpinning", "unpinned"):
                self.held.discard(key)


def child(root: str, owner: str, seed: int, pipe: int, end_s: float) -> None:
    """What a forked process does, until it is killed or the time is over; never returns."""
    code = 1
    try:
        worker = Worker(
            open_pool(root), owner, Random(seed), lambda line: os.write(pipe, f"{line}\n".encode())
        )
        while worker.pool.clock.monotonic_s() < end_s:
            worker.act()
        worker.pool.close()
        code = 0
    except CacheError as error:
        os.write(pipe, f"error {type(error).__name__} {error}\n".encode())
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)


def round_of(
    root: str, told: StressAnswers, owners: list[str], seed: int, seconds: float, *, is_killed: bool
) -> None:
    """Let one process for each owner act for so long; kill them, or let them end by themselves."""
    end_s = CLOCK.monotonic_s() + (3600 if is_killed else seconds)
    started = []
    for number, owner in enumerate(owners):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            child(root, owner, seed * 1000 + number, writing, end_s)
        os.close(writing)
        started.append((owner, pid, reading))
    if is_killed:
        CLOCK.sleep(seconds)
        for _, pid, _ in started:
            os.kill(pid, signal.SIGKILL)
    for owner, pid, reading in started:
        with os.fdopen(reading, "rb") as pipe:
            told.hear(owner, pipe.read().decode())
        _, status = os.waitpid(pid, 0)
        if status not in (0, signal.SIGKILL):
            told.wrong.append(f"{owner} ended with {status}")


def faults(root: str, told: StressAnswers) -> list[str]:
    """What is wrong now that everybody is gone."""
    pool = open_pool(root)
    try:
        with pool.changing("looking"):
            used_bytes = pool.index.used_bytes()
        wrong = list(told.wrong)
        if used_bytes > pool.settings.limit_bytes:
            wrong.append(f"{used_bytes} bytes are used")
        for owner, number in sorted(told.held):
            if owner not in [pin.owner for pin in pool.pins(DIGESTS[number])]:
                wrong.append(f"the pin of {owner} on {number} is lost")
            if pool.find(DIGESTS[number]) is None:
                wrong.append(f"image {number}, pinned by {owner}, is gone")
        if os.listdir(f"{root}/trash"):
            wrong.append("the trash is not empty")
        found = [*check(pool, NoMaker(), fix=False), *check_contents(pool, fix=False)]
        wrong += [f"{each.what}: {each.path}" for each in found if not each.what.startswith(UNTIL_CHECKED)]
        check(pool, NoMaker(), fix=True)
        wrong += [f"{each.what}, mended: {each.path}" for each in check(pool, NoMaker(), fix=False)]
        return wrong
    finally:
        pool.close()


def make_pool(root: str) -> None:
    ImagePool.create(RealDisk(), root, PoolSettings(limit_bytes=LIMIT_BYTES, policy="lfu"))


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--processes", 16, 4)
    parser.add("--seconds", 60, 2, kind=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill", action="store_true", help="kill all of them about ten times a second")
    parser.add_argument("--root", help="an empty folder for the pool; otherwise a temporary one")
    arguments = parser.given()
    with tempfile.TemporaryDirectory() as folder:
        root = arguments.root or f"{folder}/pool"
        make_pool(root)
        told, random, rounds, wrong = StressAnswers(), Random(arguments.seed), 0, list[str]()
        owners = [f"job {number}" for number in range(arguments.processes)]
        end_s = CLOCK.monotonic_s() + arguments.seconds
        while not wrong and CLOCK.monotonic_s() < end_s:
            seconds = random.uniform(0.01, 0.2) if arguments.kill else arguments.seconds
            round_of(root, told, owners, arguments.seed + rounds, seconds, is_killed=arguments.kill)
            rounds += 1
            wrong = faults(root, told)
    print(f"{rounds} rounds of {arguments.processes} processes: {dict(sorted(told.counts.items()))}")
    print("\n".join(wrong) if wrong else "nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
