"""Full copies of images that are made before the jobs start that are to have them: the verb `copy`.

Where a file system shares no blocks, and an image can have no overlay, an instance is a copy of all
its bytes, which takes a second for some hundred megabytes: too long for a job that has begun. So the
service, which knows of the job before, has the copy made for its pin, one after the other, and the
job's claim takes it. It ends with the pin, or by itself when nobody asks for it any more.
"""

from __future__ import annotations

import os
import traceback
from contextlib import suppress

from cachemgr.base.errors import CacheError, Cancelled, NoRoom, Unsuitable
from cachemgr.base.sizes import in_words
from cachemgr.daemon.copy_queue import CopyTask
from cachemgr.daemon.verbs import access, quota
from cachemgr.instances.methods import is_writable_unasked
from cachemgr.pool import instance_book
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.records import FORMATS, PUBLIC, PoolImage
from cachemgr.protocol import CopyProgress, CopyRequest, CopyState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.verbs.requests import Listener, VerbRequest

LABEL = "made-before"
# So often its progress is told to who waits for a copy.
TELL_S = 5.0


def key_of(owner: str) -> str:
    """Which instance is the copy that is made for the service's pin of that name."""
    return instance_book.key_of(owner, LABEL)


def copy(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> CopyState:
    """Have a copy made, and say how far it is; `needless` where an instance takes no bytes."""
    access.require_privilege(caller, "having a copy made")
    wanted = request.read(CopyRequest)
    key = key_of(wanted.owner)
    image = access.find_visible(node, caller, wanted.name)
    need_bytes = copy_bytes(node, image)
    if not need_bytes:
        return CopyState(0, 0, "needless")
    if not node.copyist.has(key) and _is_there(node, key, image, wanted.until_s):
        return CopyState(need_bytes, need_bytes, "ready")
    task = order(node, CopyTask(key, wanted.owner, image, need_bytes, wanted.until_s))
    return CopyState(need_bytes, task.copied_bytes, "copying")


def copy_bytes(node: NodeContext, image: PoolImage) -> int:
    """What the instance of a job that asks for nothing in particular takes of the pool."""
    try:
        method = node.maker.choose(image, None, is_writable=is_writable_unasked(node.maker, image))
    except Unsuitable:
        return 0
    return node.maker.taken_bytes(method, image)


def copied_formats(node: NodeContext) -> tuple[str, ...]:
    """Of which images jobs get full copies here."""
    samples = [
        PoolImage(digest="0" * 64, size_bytes=1, format=each, uri="", owner_uid=0, readers=PUBLIC, added_s=0)
        for each in FORMATS
    ]
    return tuple(each.format for each in samples if copy_bytes(node, each))


def taken(node: NodeContext, owners: Iterable[str], tell: Callable[[int], None]) -> list[str]:
    """The keys of the copies that an instance may take. One that is just being made is waited for; one
    that waits for its turn is not made any more, since it is needed now."""
    keys = [key_of(owner) for owner in owners]
    for key in keys:
        node.copyist.wait(key, tell)
    return keys


def drop(node: NodeContext, owner: str, digests: Iterable[str] | None = None) -> int:
    """Let there be no copy of that owner's any more; how many there were."""
    key = key_of(owner)
    node.copyist.give_up(key)
    there = instance_book.read_instance(node.pool, key)
    if there is None or (digests is not None and there.digest not in digests):
        return 0
    # One that is being made goes by itself: nobody has to wait for that.
    return int(there.is_ready and instance_book.remove_instance(node.pool, node.maker, key))


class Telling:
    """Tells whoever waits for a copy how far it is; `Gone` if nobody waits any more."""

    def __init__(self, node: NodeContext, listener: Listener, size_bytes: int) -> None:
        self._clock = node.clock
        self._listener = listener
        self._size_bytes = size_bytes
        self._told_s = node.clock.monotonic_s()

    def __call__(self, copied_bytes: int) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._told_s >= TELL_S:
            self._told_s = now_s
            self._listener.progress(CopyProgress(copied_bytes, self._size_bytes))


def order(node: NodeContext, task: CopyTask) -> CopyTask:
    """Let it be made, if there is room; the same one if it was ordered before. What went wrong is
    raised once: who asks again has it tried again."""
    with node.admission:
        there = node.copyist.known(task)
        if there is None:
            _check_room(node, task)
            node.pending.append(task.holding)
            node.copyist.add(task, lambda each: _tried(node, each))
        return there or task


def _tried(node: NodeContext, task: CopyTask) -> CacheError | None:
    """Make a copy; what went wrong."""
    failure: CacheError | None = None
    try:
        _make(node, task)
    except Cancelled:
        node.log.info("copy given up", owner=task.owner, digest=task.image.digest[:12])
    except CacheError as error:
        failure = error
        node.log.warning("copy not made", owner=task.owner, error=error)
    except Exception as error:  # noqa: BLE001 - a thread's outermost loop: the next may be made
        failure = CacheError(f"the daemon failed ({type(error).__name__}): look at its log")
        node.log.trace("copy failed", traceback.format_exc())
    with node.admission:
        node.pending.remove(task.holding)
    return failure


def _make(node: NodeContext, task: CopyTask) -> None:
    def watch(copied_bytes: int) -> None:
        task.copied_bytes = copied_bytes
        if node.copyist.is_stopping or not task.is_wanted:
            raise Cancelled("nobody wants this copy any more")

    watch(0)
    begin_s = node.clock.monotonic_s()
    made = instance_book.make_instance(
        node.pool,
        node.maker,
        task.image,
        owner=task.owner,
        label=LABEL,
        uid=os.geteuid(),
        until_s=task.until_s,
        is_writable=is_writable_unasked(node.maker, task.image),
        watch=watch,
    )
    node.copyist.note_made(task)
    # What has still to be written would keep the disk from the job's own first seconds.
    _sync(node, made.path)
    seconds = node.clock.monotonic_s() - begin_s
    node.poke("instances", made.expires_s)
    node.log.info(
        "copy made before its job",
        owner=task.owner,
        digest=task.image.digest[:12],
        bytes=task.size_bytes,
        milliseconds=f"{seconds * 1000:.1f}",
    )
    if not task.is_wanted:
        instance_book.remove_instance(node.pool, node.maker, task.key)


def _is_there(node: NodeContext, key: str, image: PoolImage, until_s: int) -> bool:
    """Whether the copy is ready, which is kept until then. One of another image is removed."""
    there = instance_book.read_instance(node.pool, key)
    if there is None or not there.is_ready:
        return False
    if there.digest == image.digest and instance_book.renew(node.pool, key, until_s):
        return True
    instance_book.remove_instance(node.pool, node.maker, key)
    return False


def _sync(node: NodeContext, path: str) -> None:
    """Write a copy to the disk, unless it was taken or removed meanwhile: nobody needs it there."""
    with disk_errors(f"writing the copy {path}"), suppress(FileNotFoundError):
        handle = node.pool.disk.open(path)
        try:
            handle.sync()
        finally:
            handle.close()


def _check_room(node: NodeContext, task: CopyTask) -> None:
    """Refuse a copy for which something else would have to give way that was promised or is held."""
    found = quota.account_of(node)
    kept_bytes = sum(each.size_bytes for each in found.holdings if each.is_promised)
    promised_bytes = max(found.promised_bytes, kept_bytes + task.size_bytes)
    left_bytes = found.capacity_bytes - promised_bytes - found.others_bytes
    if left_bytes < 0:
        raise NoRoom(
            f"a full copy of image {task.image.short} needs {in_words(task.size_bytes)}, and the pool lacks "
            f"{in_words(-left_bytes)} of that beside what is promised and others hold: wait, or enlarge it"
        )
