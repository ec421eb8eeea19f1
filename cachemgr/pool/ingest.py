"""Bringing one image in: from the reserved bytes to the rename that makes it visible.

The order, so that a crash at any point leaves a resumable ingest or a whole image:
bytes are written and hashed; now and then the data are synced and the number of valid bytes
is noted; at the end the data are synced, size and digest compared, the names written, the
folder synced and renamed into `images`, and both parents synced.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from contextlib import closing, suppress

from cachemgr.base.disk import replace_file
from cachemgr.base.errors import CacheError, Cancelled, InUse, NotInPool, PoolDamaged, WrongBytes
from cachemgr.base.steady import past_s
from cachemgr.pool import pins, room
from cachemgr.pool.files import readable
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.records import (
    MOST_BYTES,
    Alias,
    PoolImage,
    decode,
    decode_image,
    encode,
    file_name,
    is_ingest_key,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cachemgr.base.disk import Disk, Handle, Lock
    from cachemgr.base.hashing import Hasher
    from cachemgr.pool.files import PoolFiles

# After so many bytes they are synced and a crash costs no more than that.
CHECKPOINT_BYTES = 256 << 20
# After so many bytes, or so much time, the others are told how far it is: on a slow link a killed
# process would otherwise cost many seconds of it.
NOTE_BYTES = 16 << 20
NOTE_S = 1.0
BLOCK_BYTES = 1 << 20
# As many as tell every format: the mark of btrfs lies behind 64 KiB.
HEAD_BYTES = 72 << 10


class Ingest:
    """An image that is arriving. Anybody may look at it; one at a time may write."""

    def __init__(self, pool: PoolFiles, key: str, image: PoolImage) -> None:
        self.pool = pool
        self.key = key
        self.image = image
        self.folder = pool.layout.ingest(key)

    @property
    def size_bytes(self) -> int:
        return self.image.size_bytes

    def arrived_bytes(self) -> int:
        """How much is there, as last noted; after a power cut, how much is sure to be."""
        with disk_errors(f"looking how far {self.image.short} is"):
            return valid_bytes(self.pool.disk, self.folder)

    def is_there(self) -> bool:
        return ingest_of(self.pool, self.key) is not None

    def writer(self, hasher: Hasher) -> Writer | None:
        """The right to write, if nobody has it; `NotInPool` if the ingest is over."""
        disk = self.pool.disk
        with disk_errors(f"opening the ingest of {self.image.short}"):
            path = f"{self.folder}/writer"
            try:
                lock = disk.lock(path, is_shared=False, waits=False)
            except FileNotFoundError as error:
                raise NotInPool(f"image {self.image.short} is not arriving any more") from error
            if lock is None:
                return None
            try:
                if not lock.is_of(path) or not self.is_there():
                    raise NotInPool(f"image {self.image.short} is not arriving any more")
                return Writer(self, lock, hasher)
            except BaseException:
                lock.release()
                raise

    def lease_s(self) -> int:
        """Until when it is kept although nobody writes."""
        with disk_errors("reading a lease"):
            try:
                found = decode(self.pool.disk.read(f"{self.folder}/want.json", MOST_BYTES), self.folder)
            except (FileNotFoundError, PoolDamaged):
                return 0
            held = [pin.expires_s for pin in pins.read_pins(self.pool.disk, self.folder)]
        return max(int(found.get("lease_s", 0)), *held, 0)


class Writer:
    """The one who writes: a sink for bytes in order, then `commit` or `abandon`."""

    def __init__(self, ingest: Ingest, lock: Lock, hasher: Hasher) -> None:
        self.ingest = ingest
        self.pool = ingest.pool
        self._lock = lock
        self._hasher = hasher
        self._grown = threading.Condition()
        data = self._opened()
        self._data: Handle | None = data
        synced, _, _ = read_progress(self.pool.disk, ingest.folder)
        self.offset = min(valid_bytes(self.pool.disk, ingest.folder), ingest.size_bytes, data.size())
        self.resumed_bytes = self.offset
        self._synced = min(synced, self.offset)
        self._noted = self.offset
        self._note_s = self.pool.clock.monotonic_s() + NOTE_S
        try:
            self._hash_what_is_there()
        except BaseException:
            self._close_data()
            raise

    @property
    def size_bytes(self) -> int:
        return self.ingest.size_bytes

    def write(self, data: bytes | memoryview) -> None:
        """Append. More than was promised is refused at once."""
        if self.offset + len(data) > self.size_bytes:
            raise WrongBytes(
                f"image {self.ingest.image.short} was promised to have {self.size_bytes} bytes and has more: "
                "correct its size, or look at its source"
            )
        with disk_errors(f"writing image {self.ingest.image.short}"):
            self._handle().write_at(self.offset, data)
            self._hasher.update(data)
            with self._grown:
                self.offset += len(data)
                self._grown.notify_all()
            if self.offset - self._synced >= CHECKPOINT_BYTES:
                self.checkpoint()
            elif self.offset - self._noted >= NOTE_BYTES or self.pool.clock.monotonic_s() >= self._note_s:
                self._note(is_durable=False)

    def wait_beyond(self, offset: int, timeout_s: float) -> None:
        """Until there are more bytes than that, or the time is over, or nobody writes any more."""
        with self._grown:
            self._grown.wait_for(lambda: self.offset > offset or self._data is None, timeout_s)

    def checkpoint(self) -> None:
        """From here on not even a power cut loses what has arrived."""
        with disk_errors(f"syncing image {self.ingest.image.short}"):
            self._sync()
            self._synced = self.offset
            self._note(is_durable=True)

    def adopt(self, path: str) -> None:
        """Take a file's content without copying it, where the file system can share blocks."""
        with disk_errors(f"sharing the blocks of {path}"):
            disk, target = self.pool.disk, f"{self.ingest.folder}/data"
            beside = f"{target}.new"
            if disk.exists(beside):
                disk.remove(beside)
            disk.reflink(path, beside, 0o600)
            if disk.size(beside) != self.size_bytes:
                disk.remove(beside)
                raise WrongBytes(
                    f"{path} has {disk.size(path)} bytes and not {self.size_bytes}: it changed meanwhile"
                )
            shared = disk.open(beside, for_writing=True)
            try:
                # The reserved bytes may go once these are safe; until then they can be written.
                shared.sync()
                self.restart()
                disk.rename(beside, target)
            except BaseException:
                shared.close()
                raise
            self._close_data()
            self._data = shared
            self.offset = self.size_bytes
            self._hash_what_is_there()

    def restart(self) -> None:
        """Forget what has arrived: it turned out wrong, or another way was found."""
        with disk_errors(f"starting image {self.ingest.image.short} over"):
            self.offset = self._synced = self._noted = 0
            self.resumed_bytes = 0
            self._note(is_durable=True)
        fresh = type(self._hasher)()
        self._hasher.close()
        self._hasher = fresh

    def commit(
        self,
        inspect: Callable[[bytes, int], str] | None = None,
        *,
        names: Sequence[str] = (),
        names_expire_s: int | None = None,
        names_uid: int | None = None,
        promised: str = "",
    ) -> PoolImage:
        """Make the image visible, if its size and digest are right; it stays so from then on.

        `promised` is the digest of what is not kept under it while it arrives.

        `inspect` tells the format from the first bytes, and may refuse. `names` stand for it
        until they expire, besides those that it was wanted under; they are of the user `names_uid`.
        """
        ingest, disk = self.ingest, self.pool.disk
        if self.offset != self.size_bytes:
            raise WrongBytes(
                f"image {ingest.image.short} was promised to have {self.size_bytes} bytes and has "
                f"{self.offset}: correct its size, or look at its source"
            )
        digest = self._hasher.hexdigest()
        # Not the record's digest: a commit that was cut short may have written it there.
        is_promised = ingest.key in (digest, "u" + file_name(ingest.image.uri))
        if not is_promised or promised not in ("", digest):
            raise WrongBytes(
                f"image {ingest.image.uri} was promised as sha256:{promised or ingest.key} but what came is "
                f"sha256:{digest}: correct the digest, or look at its source"
            )
        with disk_errors(f"committing image {ingest.image.short}"):
            data = self._handle()
            kind = ingest.image.format
            if inspect is not None:
                kind = inspect(data.read_at(0, HEAD_BYTES), self.size_bytes)
            image = dataclasses.replace(
                self._as_now_recorded(), digest=digest, format=kind, added_s=self.pool.clock.now_s()
            )
            data.set_mode(image.data_mode)
            self._sync()
            replace_file(disk, f"{ingest.folder}/image.json", encode(image), mode=0o644)
        with room.changing(self.pool, f"committing image {image.short}"):
            self._make_visible(image)
            for name in names:
                self.pool.add_alias(Alias(name, digest, names_expire_s, names_uid))
        self.close()
        return image

    def abandon(self) -> None:
        """Give up: nothing of it stays."""
        try:
            with room.changing(self.pool, f"dropping the ingest of {self.ingest.image.short}"):
                drop(self.ingest)
        finally:
            self.close()

    def close(self) -> None:
        """Let others go on; what has arrived stays."""
        self._close_data()
        self._hasher.close()
        self._lock.release()

    def pause(self) -> None:
        """Like `close`, with everything that has arrived noted."""
        try:
            with disk_errors("noting what has arrived"):
                self._note(is_durable=False)
        finally:
            self.close()

    def _make_visible(self, image: PoolImage) -> None:
        pool, disk, layout = self.pool, self.pool.disk, self.pool.layout
        target = layout.image(image.digest)
        if self._is_whole(image.digest):
            self._merge_into(target)
            return
        if disk.exists(target):
            # Damaged content of this digest, or hidden by `check`: here is its replacement.
            def moved() -> bool:
                self._take_pins_of(target, self.ingest.folder)
                return True

            room.discard(pool, target, f"damaged-{image.digest}", moved)
            pool.index.give_back(f"damaged:{image.digest}")
        disk.rename(self.ingest.folder, target)
        disk.sync_folder(layout.folder("images"))
        disk.sync_folder(layout.folder("ingest"))
        pool.index.put(room.entry_of(pool, image))
        pool.index.give_back(f"ingest:{self.ingest.key}")
        room.settle(pool, image.digest)

    def _merge_into(self, target: str) -> None:
        """The same content is here already, under another name: its leases join the others'."""

        def moved() -> bool:
            self._take_pins_of(self.ingest.folder, target)
            return True

        room.add_names(self.pool, self.ingest.folder, target.rpartition("/")[2])
        drop(self.ingest, moved)

    def _is_whole(self, digest: str) -> bool:
        try:
            return self.pool.image(digest) is not None
        except PoolDamaged:
            return False

    def _take_pins_of(self, source: str, target: str) -> None:
        """Let what holds one folder hold the other, too."""
        disk = self.pool.disk
        there = {pin.owner: pin for pin in pins.read_pins(disk, target)}
        for pin in pins.read_pins(disk, source):
            both = pins.longer(pin, there[pin.owner]) if pin.owner in there else pin
            pins.write_pin(disk, target, both, is_durable=True)

    def _as_now_recorded(self) -> PoolImage:
        """The image's record, which others may have changed since the ingest began."""
        path = f"{self.ingest.folder}/image.json"
        return decode_image(self.pool.disk.read(path, MOST_BYTES), path)

    def _opened(self) -> Handle:
        disk, path = self.pool.disk, f"{self.ingest.folder}/data"
        with disk_errors(f"allocating {self.ingest.size_bytes} bytes for {self.ingest.image.short}"):
            try:
                return disk.open(path, for_writing=True)
            except PermissionError:
                # A commit was cut short after it had made the data read-only.
                with closing(disk.open(path)) as data:
                    data.set_mode(0o600)
                return disk.open(path, for_writing=True)

    def _hash_what_is_there(self) -> None:
        with disk_errors(f"reading what has arrived of {self.ingest.image.short}"):
            at = 0
            while at < self.offset:
                block = self._handle().read_at(at, min(BLOCK_BYTES, self.offset - at))
                if not block:
                    raise WrongBytes(f"the data of {self.ingest.image.short} end at {at}: somebody cut them")
                self._hasher.update(block)
                at += len(block)

    def _note(self, *, is_durable: bool) -> None:
        text = b"%d %d %s\n" % (self._synced, self.offset, self.pool.disk.boot_id().encode())
        replace_file(self.pool.disk, f"{self.ingest.folder}/progress", text, is_durable=is_durable)
        self._noted = self.offset
        self._note_s = self.pool.clock.monotonic_s() + NOTE_S

    def _sync(self) -> None:
        """Sync the data. After a failure the kernel may have dropped what it could not write
        and call the next sync a success, so nothing that has arrived is believed any more."""
        try:
            self._handle().sync()
        except OSError:
            with suppress(CacheError):
                self.restart()
            raise

    def _handle(self) -> Handle:
        if self._data is None:
            raise Cancelled(f"the ingest of {self.ingest.image.short} was closed")
        return self._data

    def _close_data(self) -> None:
        with self._grown:
            if self._data is not None:
                self._data.close()
                self._data = None
            self._grown.notify_all()


def ingest_of(pool: PoolFiles, key: str) -> Ingest | None:
    """What is arriving under that key."""
    folder = pool.layout.ingest(key)
    path = f"{folder}/image.json"
    with disk_errors(f"reading {path}"):
        try:
            image = decode_image(pool.disk.read(path, MOST_BYTES), path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return Ingest(pool, key, image)


def ingests(pool: PoolFiles) -> list[Ingest]:
    """All that is arriving."""
    with disk_errors("listing what is arriving"):
        keys = pool.disk.names(pool.layout.folder("ingest"))
    return readable(lambda key: ingest_of(pool, key), filter(is_ingest_key, keys))


def read_progress(disk: Disk, folder: str) -> tuple[int, int, str]:
    """Bytes that a power cut spares, bytes that a crash spares, and during which boot."""
    try:
        synced, arrived, boot_id = disk.read(f"{folder}/progress", 200).split()
        return max(0, int(synced)), max(0, int(arrived)), boot_id.decode()
    except (OSError, ValueError):
        return 0, 0, ""


def valid_bytes(disk: Disk, folder: str) -> int:
    """Bytes that are there whatever happened since they were noted."""
    synced, arrived, boot_id = read_progress(disk, folder)
    return arrived if boot_id == disk.boot_id() else synced


def drop(ingest: Ingest, may_go: Callable[[], bool] = lambda: True) -> bool:
    """Delete an ingest, if it may go; called with the pool's lock and the right to write.

    `may_go` is asked while nobody can join the ingest.
    """
    pool = ingest.pool
    is_dropped = room.discard(pool, ingest.folder, f"ingest-{ingest.key}", may_go)
    if is_dropped:
        pool.index.give_back(f"ingest:{ingest.key}")
    return is_dropped


def drop_stale(pool: PoolFiles) -> list[str]:
    """Drop what is arriving for nobody: its lease is over and nobody writes it."""
    stale = [ingest for ingest in ingests(pool) if _is_stale(ingest)]
    return [ingest.key for ingest in stale if drop_unwritten(ingest, _is_stale)]


def cancel(pool: PoolFiles, key: str, owner: str) -> None:
    """Withdraw one owner's interest in what is arriving; dropped once nobody has any."""
    ingest = ingest_of(pool, key)
    if ingest is None:
        raise NotInPool(f"nothing is arriving under {key[:12]}")
    with disk_errors("removing a pin"):
        pins.remove_pin(pool.disk, ingest.folder, owner)
    if _is_unpinned(ingest) and not drop_unwritten(ingest, _is_unpinned) and _is_unpinned(ingest):
        raise InUse(f"image {ingest.image.short} is being written: cancel its transfer")


def drop_unwritten(ingest: Ingest, may_go: Callable[[Ingest], bool]) -> bool:
    """Whether it was dropped: nobody writes it, and at the last moment it still may go."""
    with room.changing(ingest.pool, f"dropping the ingest of {ingest.image.short}"):
        lock = room.writer_lock(ingest.pool, ingest.folder)
        if lock is None:
            return False
        try:
            return drop(ingest, lambda: may_go(ingest))
        finally:
            lock.release()


def _is_stale(ingest: Ingest) -> bool:
    return ingest.lease_s() <= past_s(ingest.pool.clock)


def _is_unpinned(ingest: Ingest) -> bool:
    with disk_errors("reading pins"):
        return not pins.read_pins(ingest.pool.disk, ingest.folder)


def want_file(lease_s: int, aliases: tuple[str, ...]) -> bytes:
    """What an ingest knows of those who want it."""
    return json.dumps({"version": 1, "lease_s": lease_s, "aliases": list(aliases)}).encode() + b"\n"
