"""Instances: a job's own copies of an image, who has which, and until when.

An instance is a folder named after its owner and label, so asking twice gives the same one.
It is made in this order: folder, record ("making"), pin on the image, bytes reserved if it
is a full copy, the copy itself, record ("ready"). It is removed the other way round, the
record last, so that a crash on the way leaves something that can be found and finished.
A full copy may have been made before, for nobody yet: then it changes its folder, and no byte is copied.
How a copy is made is `instances`' business. Nothing here survives a power cut, nor need it:
the job does not, either.
"""

from __future__ import annotations

import dataclasses
import os
from contextlib import contextmanager
from dataclasses import dataclass

from cachemgr.base.disk import replace_file
from cachemgr.base.errors import InUse, NotInPool, PoolDamaged
from cachemgr.base.steady import past_s
from cachemgr.pool import room
from cachemgr.pool.layout import SEARCHABLE, disk_errors
from cachemgr.pool.records import (
    MOST_BYTES,
    PoolPin,
    checked_name,
    decode,
    encode,
    file_name,
    is_instance_key,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Protocol

    from cachemgr.base.disk import Lock
    from cachemgr.pool.pool import ImagePool
    from cachemgr.pool.records import PoolImage

    class Maker(Protocol):
        """What makes and removes the files of an instance."""

        def choose(self, image: PoolImage, wanted: str | None, *, is_writable: bool) -> str:
            """The method, or `Unsuitable` with what would work."""

        def taken_bytes(self, method: str, image: PoolImage) -> int:
            """What this method takes of the pool's limit."""

        def make(self, wish: InstanceWish, image_path: str, folder: str) -> MadeInstance:
            """Fill the folder; what an earlier attempt left there may be in it."""

        def hand_over(self, folder: str, other: str) -> None:
            """Let the full copy in a folder be the one that `make` puts into another."""

        def remove(self, folder: str) -> None:
            """Unmount and delete what `make` put there; idempotent."""


MOST_MOVES = 20


@dataclass(frozen=True)
class InstanceWish:
    """What is to be made, after everything about it was decided."""

    image: PoolImage
    method: str
    uid: int
    is_writable: bool
    context: dict[str, Any]
    watch: Callable[[int], None] | None = None
    """Told how many bytes of a full copy there are; what it raises ends the making."""


@dataclass(frozen=True)
class MadeInstance:
    """What was made: where the job finds it, what root has still to mount, its seed."""

    path: str
    mounts: tuple[dict[str, object], ...] = ()
    seed: str | None = None


@dataclass(frozen=True)
class Instance:
    """One job's copy of an image."""

    key: str
    owner: str
    label: str
    uid: int
    digest: str
    method: str
    is_writable: bool
    created_s: int
    expires_s: int
    boot_id: str
    is_ready: bool
    path: str
    mounts: tuple[dict[str, object], ...] = ()
    seed: str | None = None

    @property
    def pin_owner(self) -> str:
        return f"instance:{self.key}"


def key_of(owner: str, label: str) -> str:
    return file_name(owner, label)[:32]


def make_instance(
    pool: ImagePool,
    maker: Maker,
    image: PoolImage,
    *,
    owner: str,
    label: str = "",
    uid: int,
    until_s: int,
    method: str | None = None,
    is_writable: bool = True,
    context: dict[str, Any] | None = None,
    made_before: Sequence[str] = (),
    watch: Callable[[int], None] | None = None,
) -> Instance:
    """A copy of the image for that owner; the same one again if it was made before.

    `made_before` are the keys of instances whose full copies may be taken in place of a new one.
    """
    checked_name(owner, "an instance's owner")
    if label:
        checked_name(label, "an instance's label")
    folder = pool.layout.instance(key_of(owner, label))
    with disk_errors(f"making an instance of {image.short}"), _locked(pool, folder):
        there = read_instance(pool, key_of(owner, label))
        if there is not None and there.is_ready and there.boot_id == pool.disk.boot_id():
            if there.digest != image.digest:
                raise InUse(
                    f"{owner} has an instance of image {there.digest[:12]} here already: release it first"
                )
            if _was_moved(pool, there):
                raise InUse(
                    f"{owner} has one at {there.path} from before the pool was moved: release it first"
                )
            return _renewed(pool, there, until_s)
        _start_over(pool, maker, key_of(owner, label), there, folder)
        chosen = maker.choose(image, method, is_writable=is_writable)
        draft = Instance(
            key=key_of(owner, label),
            owner=owner,
            label=label,
            uid=uid,
            digest=image.digest,
            method=chosen,
            is_writable=is_writable,
            created_s=pool.clock.now_s(),
            expires_s=until_s,
            boot_id=pool.disk.boot_id(),
            is_ready=False,
            path="",
        )
        wish = InstanceWish(
            image=image,
            method=chosen,
            uid=uid,
            is_writable=is_writable,
            context=context or {},
            watch=watch,
        )
        try:
            return _filled(pool, maker, draft, wish, folder, made_before)
        except BaseException:
            _clear(pool, maker, draft, folder)
            raise


def renew(pool: ImagePool, key: str, until_s: int) -> bool:
    """Let an instance that is ready last until then, if it may still be used; whether it may."""
    folder = pool.layout.instance(key)
    with disk_errors(f"renewing instance {key}"):
        lock = _lock_there(pool, folder)
        if lock is None:
            return False
        try:
            there = read_instance(pool, key)
            if there is None or _is_over(pool, there) or _was_moved(pool, there):
                return False
            _renewed(pool, there, until_s)
            return True
        finally:
            lock.release()


def remove_instances(pool: ImagePool, maker: Maker, owner: str, label: str | None = None) -> int:
    """Remove one of an owner's instances, or all of them; how many there were."""
    keys = [key_of(owner, label)] if label is not None else keys_of(pool, owner)
    return sum(remove_instance(pool, maker, key) for key in keys)


def remove_instance(pool: ImagePool, maker: Maker, key: str) -> bool:
    """Whether there was one. What another process is just making is waited for."""
    return _remove_if(pool, maker, key, lambda instance: True)


def remove_leftover(pool: ImagePool, maker: Maker, key: str) -> bool:
    """Remove an instance if still nobody can be using it; whether it was removed."""
    return _remove_if(pool, maker, key, lambda instance: _is_over(pool, instance))


def instances(pool: ImagePool) -> list[Instance]:
    """Every instance with a record, by key."""
    with disk_errors("listing the instances"):
        keys = pool.disk.names(pool.layout.folder("instances"))
        return [found for found in (read_instance(pool, key) for key in keys) if found is not None]


def keys_of(pool: ImagePool, owner: str) -> list[str]:
    return [each.key for each in instances(pool) if each.owner == owner]


def read_instance(pool: ImagePool, key: str) -> Instance | None:
    """The record of an instance; None without one, or with one that a power cut tore."""
    path = f"{pool.layout.instance(key)}/instance.json"
    try:
        found = decode(pool.disk.read(path, MOST_BYTES), path)
        found["mounts"] = tuple(found["mounts"])
        return Instance(**found)
    except (FileNotFoundError, NotADirectoryError, PoolDamaged, KeyError, TypeError):
        return None


def leftovers(pool: ImagePool) -> list[str]:
    """Instances that nobody can be using: of an earlier boot, or their lease is over.

    A folder whose instance is not ready counts if nobody holds its lock: its maker died.
    """
    with disk_errors("looking for instances that nobody uses"):
        keys = pool.disk.names(pool.layout.folder("instances"))
        return [key for key in keys if is_instance_key(key) and _is_left(pool, key)]


def _is_left(pool: ImagePool, key: str) -> bool:
    instance = read_instance(pool, key)
    if not _is_over(pool, instance):
        return False
    if instance is None or not instance.is_ready:
        try:
            lock = pool.disk.lock(pool.layout.instance(key), is_shared=False, waits=False)
        except FileNotFoundError:
            return False
        if lock is None:
            return False
        lock.release()
    return True


def _was_moved(pool: ImagePool, instance: Instance) -> bool:
    """Whether it was made when the pool lay elsewhere: its path, and what refers to it, are wrong."""
    root, inside, _ = instance.path.rpartition(f"/instances/{instance.key}/")
    return bool(inside) and os.path.realpath(root) != os.path.realpath(pool.layout.root)


def _is_over(pool: ImagePool, instance: Instance | None) -> bool:
    return (
        instance is None
        or not instance.is_ready
        or instance.boot_id != pool.disk.boot_id()
        or instance.expires_s <= past_s(pool.clock)
    )


def _remove_if(pool: ImagePool, maker: Maker, key: str, may_go: Callable[[Instance | None], bool]) -> bool:
    folder = pool.layout.instance(key)
    with disk_errors(f"removing instance {key}"):
        lock = _lock_there(pool, folder)
        if lock is None:
            return False
        try:
            instance = read_instance(pool, key)
            if not may_go(instance):
                return False
            if instance is None:
                _clear_unknown(pool, maker, key, folder)
            else:
                _clear(pool, maker, instance, folder)
        finally:
            lock.release()
    return True


def _start_over(pool: ImagePool, maker: Maker, key: str, there: Instance | None, folder: str) -> None:
    """Take away what an earlier attempt, or a removal that died, left of an instance."""
    maker.remove(folder)
    if pool.disk.exists(f"{folder}/bytes"):
        _give_back(pool, key, folder)
    if there is not None:
        pool.unpin(there.digest, there.pin_owner)


def _filled(
    pool: ImagePool,
    maker: Maker,
    draft: Instance,
    wish: InstanceWish,
    folder: str,
    made_before: Sequence[str],
) -> Instance:
    _write(pool, draft, folder)
    pin = PoolPin(
        owner=draft.pin_owner,
        kind="instance",
        uid=draft.uid,
        expires_s=draft.expires_s,
        from_s=draft.created_s,
    )
    pool.pin(draft.digest, pin, is_durable=False)
    size_bytes = maker.taken_bytes(draft.method, wish.image)
    if size_bytes and not any(_take_over(pool, maker, draft, folder, key) for key in made_before):
        _reserve(pool, draft, folder, size_bytes)
    made = maker.make(wish, pool.data_path(draft.digest), folder)
    ready = dataclasses.replace(draft, is_ready=True, path=made.path, mounts=made.mounts, seed=made.seed)
    _write(pool, ready, folder)
    pool.use(draft.digest)
    return ready


def _reserve(pool: ImagePool, draft: Instance, folder: str, size_bytes: int) -> None:
    with pool.changing(f"reserving bytes for a copy of image {draft.digest[:12]}"):
        room.make_room(pool, size_bytes, f"a full copy of image {draft.digest[:12]}")
        replace_file(pool.disk, f"{folder}/bytes", b"%d\n" % size_bytes, is_durable=False)
        pool.index.take(f"instance:{draft.key}", size_bytes)


def _take_over(pool: ImagePool, maker: Maker, draft: Instance, folder: str, key: str) -> bool:
    """Take the full copy of another instance with its bytes, and end that one; whether it had one.

    It is nobody's before it changes its folder: what a crash leaves of either is removed as usual.
    """
    other_folder = pool.layout.instance(key)
    lock = _lock_there(pool, other_folder)
    if lock is None:
        return False
    try:
        other = read_instance(pool, key)
        if other is None or _is_over(pool, other) or not pool.disk.exists(f"{other_folder}/bytes"):
            return False
        alike = (draft.digest, draft.method, draft.is_writable)
        if (other.digest, other.method, other.is_writable) != alike or _was_moved(pool, other):
            return False
        _write(pool, dataclasses.replace(other, is_ready=False), other_folder)
        with pool.changing(f"handing a copy of image {draft.digest[:12]} over"):
            size_bytes = room.instance_bytes(pool.disk, other_folder)
            pool.disk.rename(f"{other_folder}/bytes", f"{folder}/bytes")
            pool.index.give_back(f"instance:{key}")
            pool.index.take(f"instance:{draft.key}", size_bytes)
        maker.hand_over(other_folder, folder)
        _clear(pool, maker, dataclasses.replace(other, is_ready=False), other_folder)
        return True
    finally:
        lock.release()


def _renewed(pool: ImagePool, instance: Instance, until_s: int) -> Instance:
    """The same instance, its lease extended, never shortened."""
    if until_s <= instance.expires_s:
        return instance
    longer = dataclasses.replace(instance, expires_s=until_s)
    pin = PoolPin(
        owner=instance.pin_owner,
        kind="instance",
        uid=instance.uid,
        expires_s=until_s,
        from_s=instance.created_s,
    )
    pool.pin(instance.digest, pin, is_durable=False)
    _write(pool, longer, pool.layout.instance(instance.key))
    return longer


def _clear(pool: ImagePool, maker: Maker, instance: Instance, folder: str) -> None:
    """The way back: the copy, its bytes, the pin, the record, the folder."""
    if instance.is_ready:
        # From here on nobody is given it again.
        try:
            _write(pool, dataclasses.replace(instance, is_ready=False), folder)
        except OSError:
            # A full disk must not keep it. If this dies, its pin ends by itself.
            pool.disk.remove(f"{folder}/instance.json")
    maker.remove(folder)
    if pool.disk.exists(f"{folder}/bytes"):
        _give_back(pool, instance.key, folder)
    pool.unpin(instance.digest, instance.pin_owner)
    _remove_folder(pool, folder)


def _clear_unknown(pool: ImagePool, maker: Maker, key: str, folder: str) -> None:
    """A folder without a record. Its pin, if it has one, ends by itself."""
    maker.remove(folder)
    if pool.disk.exists(f"{folder}/bytes"):
        _give_back(pool, key, folder)
    _remove_folder(pool, folder)


def _give_back(pool: ImagePool, key: str, folder: str) -> None:
    with pool.changing("giving the bytes of a copy back"):
        pool.disk.remove(f"{folder}/bytes")
        pool.index.give_back(f"instance:{key}")


def _remove_folder(pool: ImagePool, folder: str) -> None:
    for name in pool.disk.names(folder):
        if name != "instance.json":
            pool.disk.remove(f"{folder}/{name}")
    if pool.disk.exists(f"{folder}/instance.json"):
        pool.disk.remove(f"{folder}/instance.json")
    pool.disk.remove_folder(folder)


def _write(pool: ImagePool, instance: Instance, folder: str) -> None:
    data = encode(dataclasses.asdict(instance))
    replace_file(pool.disk, f"{folder}/instance.json", data, is_durable=False)


@contextmanager
def _locked(pool: ImagePool, folder: str) -> Iterator[None]:
    """The folder, made if missing, for this process alone."""
    for _ in range(MOST_MOVES):
        try:
            pool.disk.make_folder(folder, SEARCHABLE)
        except FileExistsError:
            pass
        except FileNotFoundError as error:
            raise NotInPool(f"the pool {pool.layout.root} has no folder for instances: run `init`") from error
        lock = _lock_there(pool, folder)
        if lock is None:
            continue
        try:
            yield
        finally:
            lock.release()
        return
    raise InUse(f"the instance {folder} comes and goes too fast: try again")


def _lock_there(pool: ImagePool, folder: str) -> Lock | None:
    """An exclusive lock on what stands at that path when it is got; None if nothing does."""
    try:
        lock = pool.disk.lock(folder, is_shared=False, waits=True)
    except FileNotFoundError:
        return None
    if lock is not None and not lock.is_of(folder):
        lock.release()
        return None
    return lock
