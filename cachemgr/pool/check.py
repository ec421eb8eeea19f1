"""Finding what is wrong in a pool, and mending what can be mended without loss.

Everything is looked at with the pool's lock held, but the hashing of contents, which takes
long. What is not ours (a file that somebody put there) is reported and left alone. An image
whose bytes are wrong is hidden at once, even while it is pinned: a pin on wrong bytes is
worth nothing; it is deleted as soon as no instance uses it.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass

from cachemgr.base.disk import BESIDE
from cachemgr.base.errors import CacheError, DiskFailed, PoolDamaged
from cachemgr.base.steady import past_s
from cachemgr.pool import ingest, instance_book, pins, room
from cachemgr.pool.held import PROMISED_FILE
from cachemgr.pool.layout import FOLDERS, disk_errors
from cachemgr.pool.records import (
    MOST_BYTES,
    decode_alias,
    decode_image,
    decode_pin,
    digest_of,
    is_alias_file,
    is_ingest_key,
    is_instance_key,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cachemgr.pool.instance_book import Maker
    from cachemgr.pool.pool import ImagePool
    from cachemgr.pool.records import PoolImage

BLOCK_BYTES = 1 << 20
OUR_FILES = {
    *FOLDERS,
    "lock",
    "pool.json",
    "clock.json",
    PROMISED_FILE,
    "index.sqlite",
    "index.sqlite-wal",
    "index.sqlite-shm",
}
IMAGE_FILES = {"data", "image.json", "pins", "uses", "damaged.json"}
EXPIRED_PIN = "an expired pin of "


@dataclass(frozen=True)
class PoolFinding:
    """One thing that is not as it should be.

    `is_ordinary`: time brings it, nothing went wrong, and it is tidied up in passing.
    """

    what: str
    path: str
    remedy: str
    is_fixed: bool
    is_ordinary: bool = False


def check(pool: ImagePool, maker: Maker, *, fix: bool) -> list[PoolFinding]:
    """What is wrong with the pool's folders; mended, if asked, as far as that is safe."""
    found = []
    for key in instance_book.leftovers(pool):
        is_fixed, remedy = False, "remove it"
        try:
            is_fixed = fix and instance_book.remove_leftover(pool, maker, key)
        except CacheError as error:
            remedy = str(error)  # one that only root can remove keeps nothing else from being mended
        path = pool.layout.instance(key)
        found.append(PoolFinding("an instance that nobody uses", path, remedy, is_fixed))
    if fix:
        for key in ingest.drop_stale(pool):
            path = pool.layout.ingest(key)
            found.append(
                PoolFinding("an ingest that nobody wants any more", path, "remove it", is_fixed=True)
            )
    # Looked at before the lock is taken, because taking it may mend this.
    with pool.changing("checking the pool"):
        for part in (_strangers, _trash, _images, _pins, _ingests, _aliases, _index):
            found += _gathered(part, pool, fix)
    return found


def _gathered(
    part: Callable[[ImagePool, bool], Iterator[PoolFinding]], pool: ImagePool, fix: bool
) -> list[PoolFinding]:
    """What one part finds; what belongs to another user ends that part, and no other."""
    found = []
    try:
        for finding in part(pool, fix):
            found.append(finding)  # one by one, to keep what was found before it ends
    except (PermissionError, DiskFailed) as error:
        cause = error.__cause__ if isinstance(error, DiskFailed) else error
        if not isinstance(cause, PermissionError):
            raise
        remedy = "give it to the pool's user with `chown -R`, and check again"
        path = str(cause.filename or pool.layout.root)
        found.append(PoolFinding("out of reach for the pool's user", path, remedy, is_fixed=False))
    return found


def check_contents(
    pool: ImagePool, *, fix: bool, on_bytes: Callable[[int], None] | None = None
) -> list[PoolFinding]:
    """Read every image and compare its digest. `on_bytes` is told of each block read."""
    found = []
    for image in pool.images():
        path = pool.data_path(image.digest)
        with disk_errors(f"reading image {image.short}"):
            try:
                # Nobody waits for this lock: it only tells the file that is read from another
                # that takes its place meanwhile.
                file = pool.disk.lock(path, is_shared=True, waits=True)
            except FileNotFoundError:
                continue
        if file is None:
            continue
        try:
            digest = _hashed(pool, image.digest, on_bytes)
            if digest is None or digest == image.digest:
                continue
            with pool.changing(f"looking at image {image.short} again"):
                is_there = file.is_of(path)
                if is_there and fix:
                    hide(pool, image)
        finally:
            file.release()
        if is_there:
            found.append(PoolFinding(f"wrong bytes: their sha256 is {digest}", path, "remove the image", fix))
    return found


def hide(pool: ImagePool, image: PoolImage) -> None:
    """Let nobody find an image whose bytes are wrong; delete it if no instance uses it."""
    folder = pool.layout.image(image.digest)
    if not pool.disk.exists(f"{folder}/image.json"):
        return
    pool.disk.rename(f"{folder}/image.json", f"{folder}/damaged.json")
    pool.disk.sync_folder(folder)
    pool.index.drop(image.digest)
    if _is_in_use(pool, image.digest):
        pool.index.take(f"damaged:{image.digest}", image.size_bytes)
    else:
        room.discard(pool, folder, f"damaged-{image.digest}")


def _strangers(pool: ImagePool, fix: bool) -> Iterator[PoolFinding]:
    """What nobody of ours made, and drafts of small files whose writers are dead."""
    places = [
        pool.layout.root,
        *(pool.layout.folder(name) for name in ("aliases", "images", "ingest", "instances")),
    ]
    for place in places:
        for name in pool.disk.names(place):
            path = f"{place}/{name}"
            draft = BESIDE.fullmatch(name)
            if draft and not pool.disk.is_process(int(draft[1])):
                if fix:
                    pool.disk.remove(path)
                yield PoolFinding("a draft whose writer died", path, "remove it", fix)
            elif not draft and not _is_ours(pool, place, name):
                yield PoolFinding(
                    "not of this pool", path, "look at it and move it elsewhere", is_fixed=False
                )


def _is_ours(pool: ImagePool, place: str, name: str) -> bool:
    if place == pool.layout.root:
        return name in OUR_FILES or name == "lost+found"
    if place == pool.layout.folder("aliases"):
        return is_alias_file(name)
    if place == pool.layout.folder("instances"):
        return is_instance_key(name)
    return is_ingest_key(name) if place == pool.layout.folder("ingest") else digest_of(name) is not None


def _trash(pool: ImagePool, fix: bool) -> Iterator[PoolFinding]:
    for name in pool.disk.names(pool.layout.folder("trash")):
        if fix:
            pool.disk.remove_all(pool.layout.trash(name))
        yield PoolFinding("a deletion that a crash stopped", pool.layout.trash(name), "finish it", fix)


def _images(pool: ImagePool, fix: bool) -> Iterator[PoolFinding]:
    for digest in pool.disk.names(pool.layout.folder("images")):
        if digest_of(digest) is None:
            continue
        folder = pool.layout.image(digest)
        fault = _fault_of(pool, digest, folder)
        if fault is None:
            yield from _image_drafts(pool, folder, fix)
            continue
        may_go = not _is_in_use(pool, digest)
        if fix and may_go:
            room.discard(pool, folder, f"damaged-{digest}")
        remedy = "remove it" if may_go else "an instance uses it: remove it when that is released"
        yield PoolFinding(fault, folder, remedy, fix and may_go)


def _fault_of(pool: ImagePool, digest: str, folder: str) -> str | None:
    """What is wrong with an image's folder, but for its bytes."""
    disk = pool.disk
    if disk.exists(f"{folder}/damaged.json"):
        return "an image with wrong bytes, hidden"
    try:
        image = decode_image(disk.read(f"{folder}/image.json", MOST_BYTES), folder)
        size_bytes = disk.size(f"{folder}/data")
    except FileNotFoundError as error:
        return f"an image without {str(error.filename or 'a file of its').rpartition('/')[2]}"
    except (NotADirectoryError, PoolDamaged):
        return "an image whose record cannot be read"
    if image.digest != digest:
        return "an image whose record is of another digest"
    if image.size_bytes != size_bytes:
        return f"an image of {size_bytes} bytes whose record says {image.size_bytes}"
    return None


def _image_drafts(pool: ImagePool, folder: str, fix: bool) -> Iterator[PoolFinding]:
    for name in pool.disk.names(folder):
        path = f"{folder}/{name}"
        draft = BESIDE.fullmatch(name)
        is_dead = draft is not None and not pool.disk.is_process(int(draft[1]))
        if name in room.SCAFFOLD or is_dead:
            if fix:
                pool.disk.remove(path)
            yield PoolFinding("what is left of an ingest", path, "remove it", fix)
        elif name not in IMAGE_FILES and draft is None:
            yield PoolFinding("not of this pool", path, "look at it and move it elsewhere", is_fixed=False)


def _pins(pool: ImagePool, fix: bool) -> Iterator[PoolFinding]:
    """Pins that cannot be read, have expired, or are of an instance that is gone."""
    now_s = past_s(pool.clock)
    for place in ("images", "ingest"):
        for name in pool.disk.names(pool.layout.folder(place)):
            folder = f"{pool.layout.folder(place)}/{name}/pins"
            try:
                files = pool.disk.names(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for file in files:
                path = f"{folder}/{file}"
                fault = _fault_of_pin(pool, path, file, now_s)
                if fault is None or (fix and not _remove_pin(pool, path, file, now_s)):
                    continue
                yield PoolFinding(fault, path, "remove it", fix, is_ordinary=fault.startswith(EXPIRED_PIN))


def _remove_pin(pool: ImagePool, path: str, file: str, now_s: int) -> bool:
    """Remove a pin, unless it was renewed meanwhile or is gone."""
    try:
        lock = pool.disk.lock(path.rpartition("/pins/")[0], is_shared=False, waits=True)
    except FileNotFoundError:
        return False
    try:
        if _fault_of_pin(pool, path, file, now_s) is None:
            return False
        pool.disk.remove(path)
    finally:
        if lock is not None:
            lock.release()
    return True


def _fault_of_pin(pool: ImagePool, path: str, file: str, now_s: int) -> str | None:
    draft = BESIDE.fullmatch(file)
    if draft:
        return None if pool.disk.is_process(int(draft[1])) else "a draft whose writer died"
    try:
        data = pool.disk.read(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    if pins.is_torn(data):
        return "a pin that a power cut tore"
    try:
        pin = decode_pin(data, path)
    except PoolDamaged:
        return "a pin that cannot be read"
    if pin.expires_s <= now_s:
        return EXPIRED_PIN + pin.owner
    if pin.kind == "instance" and pin.owner.startswith("instance:"):
        key = pin.owner.partition(":")[2]
        if digest_of(key * 2) and not pool.disk.exists(pool.layout.instance(key)):
            return "a pin of an instance that is gone"
    return None


def _ingests(pool: ImagePool, fix: bool) -> Iterator[PoolFinding]:
    for key in filter(is_ingest_key, pool.disk.names(pool.layout.folder("ingest"))):
        folder = pool.layout.ingest(key)
        found = None
        try:
            image = decode_image(pool.disk.read(f"{folder}/image.json", MOST_BYTES), folder)
            if pool.disk.size(f"{folder}/data") != image.size_bytes:
                found = "an ingest without its reserved bytes"
        except (FileNotFoundError, NotADirectoryError, PoolDamaged):
            found = "an ingest that cannot be resumed"
        if found is None:
            continue
        if fix:
            room.discard(pool, folder, f"ingest-{key}")
            pool.index.give_back(f"ingest:{key}")
        yield PoolFinding(found, folder, "remove it", fix)


def _aliases(pool: ImagePool, fix: bool) -> Iterator[PoolFinding]:
    """Aliases that cannot be read, have expired, or stand for what is not here."""
    folder = pool.layout.folder("aliases")
    now_s = past_s(pool.clock)
    for name in pool.disk.names(folder):
        if not is_alias_file(name):
            continue
        path = f"{folder}/{name}"
        fault, is_ordinary = None, True
        try:
            alias = decode_alias(pool.disk.read(path, MOST_BYTES), path)
            if alias.expires_s is not None and alias.expires_s <= now_s:
                fault = f"the expired alias {alias.name}"
            elif pool.image(alias.digest) is None:
                fault = f"the alias {alias.name} of an image that is gone"
        except FileNotFoundError:
            continue
        except PoolDamaged:
            fault, is_ordinary = "an alias that cannot be read", False
        if fault is None:
            continue
        if fix:
            pool.disk.remove(path)
        yield PoolFinding(fault, path, "remove it", fix, is_ordinary=is_ordinary)


def _index(pool: ImagePool, fix: bool) -> Iterator[PoolFinding]:
    """The index against the folders, as they are after what was mended."""
    entries, taken = room.scan(pool)
    there = {entry.key: entry.size_bytes for entry in entries}
    indexed = {entry.key: entry.size_bytes for entry in pool.index.entries()}
    if there == indexed and taken == pool.index.taken():
        return
    wrong = sorted({*there.items()} ^ {*indexed.items()} | {*taken.items()} ^ {*pool.index.taken().items()})
    if fix:
        room.rescan(pool)
    about = f"an index that differs from the folders, {len(wrong)} times, first at {wrong[0][0]}"
    yield PoolFinding(about, pool.layout.index, "make it again", fix)


def _is_in_use(pool: ImagePool, digest: str) -> bool:
    """Whether an instance is built on it."""
    found = pins.read_pins(pool.disk, pool.layout.image(digest))
    return any(
        pin.kind == "instance" and pool.disk.exists(pool.layout.instance(pin.owner.partition(":")[2]))
        for pin in found
    )


def _hashed(pool: ImagePool, digest: str, on_bytes: Callable[[int], None] | None) -> str | None:
    """The digest of what is there; None if it goes away meanwhile."""
    sha256 = hashlib.sha256()
    with disk_errors(f"reading image {digest[:12]}"):
        try:
            handle = pool.disk.open(pool.data_path(digest))
        except FileNotFoundError:
            return None
        with closing(handle):
            at = 0
            while block := handle.read_at(at, BLOCK_BYTES):
                sha256.update(block)
                at += len(block)
                if on_bytes is not None:
                    on_bytes(len(block))
    return sha256.hexdigest()
