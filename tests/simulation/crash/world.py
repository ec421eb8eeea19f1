"""A pool on a disk in memory, what it has promised so far, and whether it keeps that.

Whoever acts on the world writes down each promise when the call that gave it has returned,
and takes back what it is about to change. `faults_found` looks at the disk without the
pool's code, then at the pool.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from cachemgr.base.errors import CacheError, WrongBytes
from cachemgr.base.hashing import InlineHasher
from cachemgr.pool.check import check
from cachemgr.pool.ingest import Ingest, Writer, drop_stale
from cachemgr.pool.instance_book import InstanceWish, MadeInstance, leftovers, read_instance, remove_leftover
from cachemgr.pool.layout import PoolSettings, disk_errors
from cachemgr.pool.pins import read_pins
from cachemgr.pool.pool import ImagePool, Want
from cachemgr.pool.records import PUBLIC, ImageAccess, PoolImage, PoolPin
from tests.simulation.crash.memorydisk import MemoryDisk
from tests.simulation.crash.memoryindex import MemoryIndex, spoil
from tests.simulation.crash.memorynodes import File

ROOT = "/pool"
START_S = 1_000_000
LEASE_S = 3_600
OF_AN_IMAGE = {"data", "image.json", "pins", "uses"}
OF_AN_INGEST = {"data", "data.new", "image.json", "pins", "progress", "want.json", "writer"}


# What `check` may find after a crash: it takes no room and misleads nobody.
UNTIL_CHECKED = (
    "a draft whose writer died",
    "a pin that a power cut tore",
    "a pin of an instance that is gone",
    "an expired pin",
    "the alias",
    "what is left of an ingest",
)


class SetClock:
    """A clock that goes when it is told to."""

    def __init__(self, now_s: int = START_S) -> None:
        self.at_s = now_s

    def now_s(self) -> int:
        return self.at_s

    def monotonic_s(self) -> float:
        return float(self.at_s)

    def sleep(self, seconds: float) -> None:
        self.at_s += max(1, int(seconds))


@dataclass
class Promises:
    """What callers were told. A name may have several permitted answers while it changes."""

    images: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    pins: dict[tuple[str, str], int] = field(default_factory=dict)
    unpinned: set[tuple[str, str]] = field(default_factory=set)
    aliases: dict[str, set[str | None]] = field(default_factory=dict)
    readers: dict[str, ImageAccess] = field(default_factory=dict)
    instances: set[str] = field(default_factory=set)
    # Images that are just becoming public or private.
    in_flux: set[str] = field(default_factory=set)


class CopyingMaker:
    """Makes an instance as a full copy, and in two steps, so that it can be half made."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    def choose(self, image: PoolImage, wanted: str | None, *, is_writable: bool) -> str:
        return "copy"

    def taken_bytes(self, method: str, image: PoolImage) -> int:
        return image.size_bytes

    def make(self, wish: InstanceWish, image_path: str, folder: str) -> MadeInstance:
        path = f"{folder}/disk"
        if self._disk.exists(path):
            self._disk.remove(path)
        with closing(self._disk.create(path, 0o600)) as handle:
            handle.write_at(0, self._disk.read(image_path, wish.image.size_bytes))
        return MadeInstance(path=path)

    def hand_over(self, folder: str, other: str) -> None:
        self._disk.rename(f"{folder}/disk", f"{other}/disk")

    def remove(self, folder: str) -> None:
        if self._disk.exists(f"{folder}/disk"):
            self._disk.remove(f"{folder}/disk")


class World:
    """One pool and its promises."""

    def __init__(self, disk: MemoryDisk | None = None, limit_bytes: int = 100) -> None:
        self.disk = disk or MemoryDisk()
        self.clock = SetClock()
        self.promises = Promises()
        self.limit_bytes = limit_bytes
        # Whether `create` has returned: before that there may be no pool.
        self.is_made = False
        self.maker = CopyingMaker(self.disk)
        self._pool: ImagePool | None = None

    def copy(self) -> World:
        twin = World(self.disk.copy(), self.limit_bytes)
        twin.clock.at_s = self.clock.at_s
        twin.promises = copy.deepcopy(self.promises)
        twin.is_made = self.is_made
        return twin

    # -- acting ----------------------------------------------------------------------------

    def create(self) -> None:
        ImagePool.create(self.disk, ROOT, PoolSettings(limit_bytes=self.limit_bytes, policy="lru"))
        self.is_made = True

    @property
    def pool(self) -> ImagePool:
        """The pool as one process sees it, until `forget_process`."""
        if self._pool is None:
            self._pool = self.another_process()
        return self._pool

    def another_process(self) -> ImagePool:
        return ImagePool(self.disk, ROOT, self.clock, MemoryIndex(self.disk))

    def forget_process(self) -> None:
        self._pool = None

    def pin(self, owner: str, kind: str = "hold") -> PoolPin:
        now_s = self.clock.now_s()
        return PoolPin(owner=owner, kind=kind, uid=1000, expires_s=now_s + LEASE_S, from_s=now_s)

    def begin(
        self,
        content: bytes,
        *,
        owner: str = "",
        uri: str = "http://site/image",
        is_known: bool = True,
        aliases: tuple[str, ...] = (),
        readers: ImageAccess = PUBLIC,
        pool: ImagePool | None = None,
    ) -> PoolImage | Ingest:
        """`want`, and the promises that come with its return."""
        digest = digest_of(content)
        pin = self.pin(owner) if owner else None
        want = Want(
            uri=uri,
            size_bytes=len(content),
            digest=digest if is_known else "",
            owner_uid=1000,
            readers=readers,
            aliases=aliases,
        )
        for name in aliases:
            self.promises.aliases.setdefault(name, {self.named(name)}).add(digest)
        self.promises.unpinned.discard((digest, owner))
        found = (pool or self.pool).want(want, pin)
        if pin is not None:
            self.promises.pins[digest if is_known else want.key, owner] = pin.expires_s
        if isinstance(found, PoolImage):
            self.promises.images.add(digest)
            for name in aliases:
                self.promises.aliases[name] = {digest}
        return found

    def named(self, name: str) -> str | None:
        """What a name stands for now."""
        found = self.pool.find(name)
        return found.digest if found else None

    def add(
        self,
        content: bytes,
        *,
        owner: str = "",
        uri: str = "http://site/image",
        is_known: bool = True,
        aliases: tuple[str, ...] = (),
        readers: ImageAccess = PUBLIC,
    ) -> PoolImage:
        """Bring an image in, in three writes with a checkpoint and a note between them."""
        found = self.begin(content, owner=owner, uri=uri, is_known=is_known, aliases=aliases, readers=readers)
        if isinstance(found, PoolImage):
            return found
        with self.writing(found) as writer:
            fill(writer, content)
            return self.commit(writer, content, aliases)

    def commit(self, writer: Writer, content: bytes, aliases: tuple[str, ...] = ()) -> PoolImage:
        image = writer.commit()
        self.promises.images.add(image.digest)
        self.promises.gone.discard(image.digest)
        for (key, owner), expires_s in list(self.promises.pins.items()):
            if key == writer.ingest.key:
                del self.promises.pins[key, owner]
                self.promises.pins[image.digest, owner] = expires_s
        for name in aliases:
            self.promises.aliases[name] = {image.digest}
        assert image.digest == digest_of(content)
        return image

    def writing(self, ingest: Ingest) -> Writing:
        return Writing(ingest)

    def unpin(self, content: bytes, owner: str) -> None:
        digest = digest_of(content)
        self.promises.pins.pop((digest, owner), None)
        self.pool.unpin(digest, owner)
        self.promises.unpinned.add((digest, owner))

    def gives_up(self, *contents: bytes) -> None:
        """These may go from now on, and with them what was promised of them."""
        for digest in map(digest_of, contents):
            self.promises.images.discard(digest)
            self.promises.readers.pop(digest, None)
            for key in [key for key in self.promises.pins if key[0] == digest]:
                del self.promises.pins[key]
            for answers in self.promises.aliases.values():
                if digest in answers:
                    answers.add(None)

    def pass_time(self, seconds: int) -> None:
        self.clock.at_s += seconds
        over = [key for key, expires_s in self.promises.pins.items() if expires_s <= self.clock.at_s]
        for key in over:
            del self.promises.pins[key]

    # -- faults ----------------------------------------------------------------------------

    def after_crash(self, index: str = "kept") -> None:
        lock = self.disk.node_at(f"{ROOT}/lock")
        is_busy = isinstance(lock, File) and bytes(lock.content[:4]) == b"busy"
        if index != "older" or is_busy:
            spoil(self.disk, index)
        self.disk.restart_process()
        self.forget_process()

    def after_power_loss(self, names: str, contents: str, seed: int = 0, index: str = "kept") -> None:
        self.disk.lose_power(names, contents, seed)
        spoil(self.disk, index)
        self.forget_process()
        # An instance ends with its job, and that with the power.
        self.promises.instances.clear()
        for key in [key for key in self.promises.pins if key[1].startswith("instance:")]:
            del self.promises.pins[key]

    def recover(self) -> None:
        """What whoever comes next does first: `init` if that was never finished, one change."""
        if not self.is_made:
            self.create()
        with self.pool.changing("looking after a crash"):
            pass
        drop_stale(self.pool)
        for key in leftovers(self.pool):
            remove_leftover(self.pool, self.maker, key)

    def check_and_fix(self) -> None:
        """What an administrator does at the latest: after it nothing at all is left."""
        check(self.pool, self.maker, fix=True)
        left = check(self.pool, self.maker, fix=False)
        assert left == [], f"check --fix leaves {left}"

    # -- looking ---------------------------------------------------------------------------

    def faults_found(self, *, is_checked: bool = True) -> list[str]:
        """What is wrong, in sentences; to be asked after `recover`. `check` is asked as well."""
        try:
            wrong = [*self._on_disk(), *self._by_promise()]
            return wrong + self._by_check() if is_checked else wrong
        except CacheError as error:
            return [f"looking at the pool fails: {error}"]

    def _on_disk(self) -> list[str]:
        disk, wrong = self.disk, []
        if self._names("trash"):
            wrong.append(f"trash is left: {self._names('trash')}")
        total_bytes = 0
        for digest in self._names("images"):
            folder = f"{ROOT}/images/{digest}"
            total_bytes += sum(
                len(file.content) for path, file in disk.files(folder) if "/data" in path[len(folder) :]
            )
            wrong += self._of_image(folder, digest)
        for key in self._names("ingest"):
            folder = f"{ROOT}/ingest/{key}"
            wrong += _strangers(disk, folder, OF_AN_INGEST)
            record = _record(disk, f"{folder}/image.json")
            data = disk.node_at(f"{folder}/data")
            if record is None or not isinstance(data, File) or disk.node_at(f"{folder}/want.json") is None:
                wrong.append(f"the ingest {key[:6]} is half made")
                continue
            total_bytes += int(record["size_bytes"])
        for key in self._names("instances"):
            instance = read_instance(self.pool, key)
            if instance is None or not instance.is_ready:
                wrong.append(f"the instance {key[:6]} is left half made")
            total_bytes += sum(len(file.content) for _, file in disk.files(f"{ROOT}/instances/{key}/disk"))
        with self.pool.changing("looking"):
            used_bytes = self.pool.index.used_bytes()
        if used_bytes != total_bytes:
            wrong.append(f"the index counts {used_bytes} bytes, the folders hold {total_bytes}")
        if used_bytes > self.limit_bytes:
            wrong.append(f"{used_bytes} bytes are used, the limit is {self.limit_bytes}")
        return wrong

    def _of_image(self, folder: str, digest: str) -> list[str]:
        wrong = _strangers(self.disk, folder, OF_AN_IMAGE)
        record = _record(self.disk, f"{folder}/image.json")
        data = self.disk.node_at(f"{folder}/data")
        if record is None or not isinstance(data, File):
            return [*wrong, f"image {digest[:6]} is visible without data or record"]
        if hashlib.sha256(data.content).hexdigest() != digest:
            wrong.append(f"image {digest[:6]} is visible with wrong bytes")
        if (record["digest"], record["size_bytes"]) != (digest, len(data.content)):
            wrong.append(f"the record of image {digest[:6]} is of another one")
        modes = {0o444, 0o400} if digest in self.promises.in_flux else {0o444}
        if data.mode not in (modes if record["readers"]["is_public"] else {0o400}):
            wrong.append(f"image {digest[:6]} has the mode {data.mode:o}")
        return wrong

    def _by_promise(self) -> list[str]:
        pool, promises, wrong = self.pool, self.promises, []
        for digest in promises.images:
            if pool.find(digest) is None:
                wrong.append(f"image {digest[:6]} was added and is not there")
        for digest in promises.gone:
            if pool.find(digest) is not None:
                wrong.append(f"image {digest[:6]} was evicted and is back")
        for (key, owner), expires_s in promises.pins.items():
            if not any(pin.owner == owner and pin.expires_s >= expires_s for pin in self._pins_of(key)):
                wrong.append(f"the pin of {owner} on {key[:6]} is lost")
        for key, owner in promises.unpinned:
            if any(pin.owner == owner for pin in self._pins_of(key)):
                wrong.append(f"the pin of {owner} on {key[:6]} is back")
        for name, answers in promises.aliases.items():
            if self.named(name) not in answers:
                found = (self.named(name) or "nothing")[:7]
                wrong.append(f"{name} stands for {found}, not for {sorted(map(str, answers))}")
        for key in promises.instances:
            instance = read_instance(pool, key)
            if instance is None or not instance.is_ready or not self.disk.exists(instance.path):
                wrong.append(f"the instance {key[:6]} is lost")
        for digest, readers in promises.readers.items():
            image = pool.find(digest)
            if image is not None and image.readers != readers:
                wrong.append(f"the readers of {digest[:6]} are {image.readers}")
        return wrong

    def _by_check(self) -> list[str]:
        """What `check` finds, but for what a crash may leave until it is run, and takes no room."""
        found = check(self.pool, self.maker, fix=False)
        return [
            f"check: {each.what} {each.path}" for each in found if not each.what.startswith(UNTIL_CHECKED)
        ]

    def _pins_of(self, key: str) -> list[PoolPin]:
        """Pins on what has this key, be it arriving or, by whatever digest it got, here."""
        pool = self.pool
        found = pool.pins(key)
        ingest = pool.ingest(key)
        if ingest is not None:
            found = found + _pins_in(pool, ingest.folder)
        if key.startswith("u"):
            # Whatever digest it got, and whatever address the image there came from.
            for image in pool.images():
                found = found + pool.pins(image.digest)
        return found

    def _names(self, name: str) -> list[str]:
        node = self.disk.node_at(f"{ROOT}/{name}")
        return [] if node is None or isinstance(node, File) else sorted(node.entries)


class Writing:
    """The right to write, given back however the block ends, as every caller does it."""

    def __init__(self, ingest: Ingest) -> None:
        self._ingest = ingest
        self.writer: Writer | None = None

    def __enter__(self) -> Writer:
        self.writer = self._ingest.writer(InlineHasher())
        assert self.writer is not None, "somebody else writes"
        return self.writer

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()


def fill(writer: Writer, content: bytes) -> None:
    """Write what is missing, in three parts: a checkpoint after one, a note after another."""
    third = max(1, len(content) // 3)
    steps: tuple[Callable[[], None], ...] = (
        writer.checkpoint,
        lambda: note(writer),
        lambda: None,
    )
    for number, after in enumerate(steps):
        stop = len(content) if number == 2 else third * (number + 1)
        if writer.offset < stop:
            writer.write(content[writer.offset : stop])
            after()


def note(writer: Writer) -> None:
    """What `write` does every few megabytes."""
    with disk_errors("noting what has arrived"):
        writer._note(is_durable=False)


def try_wrong_bytes(writer: Writer, content: bytes) -> None:
    """Write bytes of the right length that are not those promised; refused at the commit."""
    writer.restart()
    writer.write(content[::-1])
    try:
        writer.commit()
    except WrongBytes:
        return
    raise AssertionError("wrong bytes were committed")


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _pins_in(pool: ImagePool, folder: str) -> list[PoolPin]:
    return read_pins(pool.disk, folder)


def _record(disk: MemoryDisk, path: str) -> dict[str, Any] | None:
    node = disk.node_at(path)
    try:
        found = json.loads(bytes(node.content)) if isinstance(node, File) else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _strangers(disk: MemoryDisk, folder: str, expected: set[str]) -> list[str]:
    node = disk.node_at(folder)
    names = [] if node is None or isinstance(node, File) else sorted(node.entries)
    left = [name for name in names if name not in expected and not name.startswith(".")]
    return [f"{name} is left in {folder[len(ROOT) :][:18]}" for name in left]
