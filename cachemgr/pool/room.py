"""Room in the pool: what takes bytes, what may go, and in which order.

`changing` takes the pool's lock, and everything else here runs with it held. Which image goes is the
policy's choice (`policies`); that nothing goes which somebody holds is decided here, from the files,
with the image's folder locked.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress

from cachemgr.base.errors import CacheError, DiskFailed, InUse, NeverFits, NoRoom, PoolDamaged
from cachemgr.base.sizes import in_words
from cachemgr.base.steady import past_s
from cachemgr.pool import pins, policies
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.policies import PolicyEntry
from cachemgr.pool.records import MOST_BYTES, Alias, PoolImage, decode, decode_image, digest_of, is_ingest_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from cachemgr.base.disk import Disk, Lock
    from cachemgr.pool.files import PoolFiles

# Left free on the disk for the pool's own small files.
SPARE_BYTES = 1 << 20
# What an ingest's folder holds besides what an image's folder holds, in the order in which
# it goes: while `want.json` is there, the commit is not finished.
SCAFFOLD = ("data.new", "writer", "progress", "want.json")


def make_room(pool: PoolFiles, need_bytes: int, what: str, *, drops_abandoned: bool = False) -> list[str]:
    """Evict until there are that many bytes free, within the limit; the evicted digests.

    Nothing is evicted unless it suffices. Before somebody who `drops_abandoned` is refused, what is
    arriving for nobody goes.
    """
    limit_bytes = pool.settings.limit_bytes
    if need_bytes > limit_bytes:
        raise NeverFits(
            f"{what} ({in_words(need_bytes)}) never fits into the pool of {in_words(limit_bytes)}: "
            "use a smaller image or a larger pool"
        )
    evicted: list[str] = []
    locked: set[str] = set()
    while True:
        over_bytes = pool.index.used_bytes() + need_bytes - limit_bytes
        short_bytes = need_bytes + SPARE_BYTES - pool.disk.free_bytes(pool.layout.root) if need_bytes else 0
        missing_bytes = max(over_bytes, short_bytes)
        if missing_bytes <= 0:
            return evicted
        chosen = choose(pool, missing_bytes, locked)
        if chosen is None and locked:
            raise InUse(f"the images that could make room for {what} are just being pinned: try again")
        if chosen is None and drops_abandoned and _drop_abandoned(pool):
            continue
        if chosen is None:
            raise NoRoom(_why(pool, need_bytes, over_bytes, short_bytes, what))
        for entry in chosen:
            if evict(pool, entry.key):
                evicted.append(entry.key)
            else:
                # Pinned or locked since it was chosen: the choice is made anew without it.
                locked.add(entry.key)


def choose(pool: PoolFiles, need_bytes: int, spared: Collection[str] = ()) -> list[PolicyEntry] | None:
    """What the policy would evict for that many bytes; None if that cannot be had."""
    now_s = past_s(pool.clock)
    entries = [entry for entry in pool.index.entries() if entry.key not in spared]
    candidates = [_with_pins(pool, entry, now_s) for entry in entries]
    policy = policies.POLICIES[pool.settings.policy]
    return policies.victims(candidates, need_bytes, policy, now_s)


def evict(pool: PoolFiles, digest: str) -> bool:
    """Hide an image and delete it; False if somebody holds it or it is gone."""
    folder = pool.layout.image(digest)
    try:
        lock = pool.disk.lock(folder, is_shared=False, waits=False)
    except (FileNotFoundError, NotADirectoryError):
        pool.index.drop(digest)
        return False
    if lock is None:
        return False
    try:
        now_s = past_s(pool.clock)
        if any(pins.holds(pin, now_s) for pin in pins.read_pins(pool.disk, folder)):
            return False
        hidden = _hide(pool, folder, f"image-{digest}")
    finally:
        # Who waits to pin it may see now that it is gone; the deletion takes longer.
        lock.release()
    pool.disk.remove_all(hidden)
    pool.index.drop(digest)
    return True


def discard(pool: PoolFiles, folder: str, name: str, may_go: Callable[[], bool] = lambda: True) -> bool:
    """Take a folder out of sight at once, then delete it; False if it is gone or may not go.

    `may_go` is asked when nobody can be pinning what is in the folder: who waits for its
    lock sees afterwards that it is gone.
    """
    try:
        lock = pool.disk.lock(folder, is_shared=False, waits=True)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        if not may_go():
            return False
        hidden = _hide(pool, folder, name)
    finally:
        if lock is not None:
            lock.release()
    pool.disk.remove_all(hidden)
    return True


def _hide(pool: PoolFiles, folder: str, name: str) -> str:
    """Rename into the trash, and sync that before anything is deleted: otherwise a power cut
    could bring the name back without the content."""
    hidden = pool.layout.trash(name)
    if pool.disk.exists(hidden):
        pool.disk.remove_all(hidden)
    pool.disk.rename(folder, hidden)
    pool.disk.sync_folder(folder.rpartition("/")[0])
    return hidden


def writer_lock(pool: PoolFiles, folder: str) -> Lock | None:
    """The right to write what arrives in that folder; None if somebody has it, or it is gone."""
    try:
        return pool.disk.lock(f"{folder}/writer", is_shared=False, waits=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_abandoned(pool: PoolFiles, folder: str) -> bool:
    """Whether what lies in that folder is arriving for nobody: no pin holds it and nobody writes it."""
    if not _is_unpinned(pool, folder):
        return False
    lock = writer_lock(pool, folder)
    if lock is None:
        return False
    lock.release()
    return True


def _is_unpinned(pool: PoolFiles, folder: str) -> bool:
    now_s = pool.clock.now_s()
    return not any(pins.holds(pin, now_s) for pin in pins.read_pins(pool.disk, folder))


def _drop_abandoned(pool: PoolFiles) -> bool:
    """Drop one ingest that is for nobody: its bytes would be kept until its lease ends, so that it could be
    resumed. Whether there was any. Its transfer, if one is waiting, reserves them anew."""
    keys = [key for key in pool.disk.names(pool.layout.folder("ingest")) if is_ingest_key(key)]
    return any(_drop_if_abandoned(pool, key) for key in keys)


def _drop_if_abandoned(pool: PoolFiles, key: str) -> bool:
    folder = pool.layout.ingest(key)
    lock = writer_lock(pool, folder)
    if lock is None:
        return False
    try:
        # Asked while nobody can be pinning it.
        if not discard(pool, folder, f"ingest-{key}", lambda: _is_unpinned(pool, folder)):
            return False
    finally:
        lock.release()
    pool.index.give_back(f"ingest:{key}")
    return True


@contextmanager
def changing(pool: PoolFiles, doing: str) -> Iterator[None]:
    """Hold the pool's lock, with an index that can be believed.

    The lock file says "busy" meanwhile. Who finds it so knows that the last holder
    died on the way, and looks at the folders again before it goes on.
    """
    with disk_errors(doing):
        lock = pool.disk.lock(pool.layout.lock, is_shared=False, waits=True)
        if lock is None:
            raise InUse(f"the pool {pool.layout.root} is locked")
        try:
            with _marked(pool):
                yield
        finally:
            lock.release()


@contextmanager
def _marked(pool: PoolFiles) -> Iterator[None]:
    marker = pool.disk.open(pool.layout.lock, for_writing=True)
    try:
        was_busy = marker.read_at(0, 4) == b"busy"
        marker.write_at(0, b"busy")
        if was_busy or not pool.index.open(pool.disk.boot_id()):
            rescan(pool)
        try:
            yield
        except DiskFailed:
            raise
        except CacheError:
            # A refusal, made before anything was changed.
            marker.write_at(0, b"idle")
            raise
        marker.write_at(0, b"idle")
    finally:
        marker.close()


def evict_expired(pool: PoolFiles) -> list[str]:
    """Evict what has outlived its promise (thesis, Algorithm 4); the evicted digests."""
    now_s = past_s(pool.clock)
    due = policies.expired([_with_pins(pool, entry, now_s) for entry in pool.index.entries()], now_s)
    return [entry.key for entry in due if evict(pool, entry.key)]


def rescan(pool: PoolFiles) -> None:
    """Fill the index from the folders, after sweeping up what a crash left."""
    sweep_trash(pool)
    for digest in filter(digest_of, pool.disk.names(pool.layout.folder("images"))):
        if pool.disk.exists(f"{pool.layout.image(digest)}/want.json"):
            settle(pool, digest)
    pool.index.refill(pool.disk.boot_id(), *scan(pool))


def sweep_trash(pool: PoolFiles) -> list[str]:
    """Delete what was on its way out; its names.

    Whoever renamed it may have died before that was safe, hence the syncs: first its name
    has to be gone for good, then its content may go.
    """
    for place in ("images", "ingest"):
        pool.disk.sync_folder(pool.layout.folder(place))
    names = pool.disk.names(pool.layout.folder("trash"))
    for name in names:
        pool.disk.remove_all(pool.layout.trash(name))
    return names


def settle(pool: PoolFiles, digest: str) -> None:
    """Finish a commit: give the visible image its names, then take the scaffold away.

    The names come after the image: a name that stood for another one must not stand for
    nothing if this is where the process dies.
    """
    disk, folder = pool.disk, pool.layout.image(digest)
    has_names = add_names(pool, folder, digest)
    for name in SCAFFOLD:
        if disk.exists(f"{folder}/{name}"):
            disk.remove(f"{folder}/{name}")
    if has_names:
        # Otherwise a power cut could bring `want.json` back, and give a name again that
        # got another meaning meanwhile.
        disk.sync_folder(folder)


def add_names(pool: PoolFiles, folder: str, digest: str) -> bool:
    """Write the aliases that an ingest was asked for; whether there were any."""
    path = f"{folder}/want.json"
    try:
        names = decode(pool.disk.read(path, MOST_BYTES), path).get("aliases", [])
    except (FileNotFoundError, PoolDamaged):
        return False
    for name in names:
        pool.add_alias(Alias(str(name), digest))
    return bool(names)


def scan(pool: PoolFiles) -> tuple[list[PolicyEntry], dict[str, int]]:
    """What the folders say: the images, and what else takes bytes."""
    disk, layout = pool.disk, pool.layout
    taken: dict[str, int] = {}
    for key in filter(is_ingest_key, disk.names(layout.folder("ingest"))):
        taken[f"ingest:{key}"] = _reserved_bytes(disk, layout.ingest(key))
    for key in disk.names(layout.folder("instances")):
        size_bytes = instance_bytes(disk, layout.instance(key))
        if size_bytes:
            taken[f"instance:{key}"] = size_bytes
    entries = []
    for digest in filter(digest_of, disk.names(layout.folder("images"))):
        path = layout.image(digest)
        try:
            image = decode_image(disk.read(f"{path}/image.json", MOST_BYTES), path)
        except (FileNotFoundError, NotADirectoryError, PermissionError, PoolDamaged):
            image = None
        if image is not None and image.digest == digest:
            entries.append(entry_of(pool, image))
        else:
            # Damage is the business of `check`; its bytes count until then.
            taken[f"damaged:{digest}"] = _data_bytes(disk, path)
    return entries, taken


def entry_of(pool: PoolFiles, image: PoolImage) -> PolicyEntry:
    """An image as the policies see it, without its pins."""
    uses, last_use_s = read_uses(pool.disk, f"{pool.layout.image(image.digest)}/uses")
    return PolicyEntry(
        key=image.digest,
        size_bytes=image.size_bytes,
        added_s=image.added_s,
        uses=uses,
        last_use_s=last_use_s or image.added_s,
        expires_s=image.expires_s,
    )


def read_uses(disk: Disk, path: str) -> tuple[int, int]:
    """How often and when last. Torn or missing, it is no use yet: this is a statistic."""
    try:
        uses, last_use_s = disk.read(path, 64).split()
        return max(0, int(uses)), int(last_use_s)
    except (OSError, ValueError):
        return 0, 0


def instance_bytes(disk: Disk, folder: str) -> int:
    """What a full copy takes of the pool; an instance that shares blocks is not counted."""
    with suppress(OSError, ValueError):
        return int(disk.read(f"{folder}/bytes", 64))
    return 0


def _reserved_bytes(disk: Disk, folder: str) -> int:
    with suppress(OSError, PoolDamaged):
        return decode_image(disk.read(f"{folder}/image.json", MOST_BYTES), folder).size_bytes
    return _data_bytes(disk, folder)


def _data_bytes(disk: Disk, folder: str) -> int:
    try:
        return disk.size(f"{folder}/data")
    except OSError:
        return 0


def _with_pins(pool: PoolFiles, entry: PolicyEntry, now_s: int) -> PolicyEntry:
    found = pins.read_pins(pool.disk, pool.layout.image(entry.key))
    if not found:
        return entry
    return PolicyEntry(
        key=entry.key,
        size_bytes=entry.size_bytes,
        added_s=entry.added_s,
        uses=entry.uses,
        last_use_s=entry.last_use_s,
        expires_s=entry.expires_s,
        next_use_s=pins.next_use_s(found, now_s),
        is_pinned=any(pins.holds(pin, now_s) for pin in found),
    )


def _why(pool: PoolFiles, need_bytes: int, over_bytes: int, short_bytes: int, what: str) -> str:
    """Why there is no room, in a sentence with a remedy."""
    if short_bytes > over_bytes:
        return (
            f"{what} needs {in_words(need_bytes)}, but the disk of {pool.layout.root} is "
            f"{in_words(short_bytes)} short, whatever is evicted: free space there, or lower the pool's limit"
        )
    now_s = past_s(pool.clock)
    held = [entry for entry in pool.index.entries() if _with_pins(pool, entry, now_s).is_pinned]
    held_bytes = sum(entry.size_bytes for entry in held)
    arriving_bytes = sum(pool.index.taken().values())
    return (
        f"{what} needs {in_words(need_bytes)}, but of the pool's {in_words(pool.settings.limit_bytes)} "
        f"{in_words(held_bytes)} are held by pins and {in_words(arriving_bytes)} are arriving or copies: "
        "wait, unpin something, or enlarge the pool"
    )
