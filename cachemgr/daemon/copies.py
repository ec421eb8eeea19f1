"""Full copies of images that are made before the jobs start that are to have them: the verb `copy`.

Where a file system shares no blocks, and an image can have no overlay, an instance is a copy of all
its bytes, which takes a second for some hundred megabytes: too long for a job that has begun. So the
service, which knows of the job before, has the copy made for its pin, one after the other, and the
job's claim takes it. It ends with the pin, or by itself when nobody asks for it any more.
"""

from __future__ import annotations

import os
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass

from cachemgr.base.errors import CacheError, Cancelled, NoRoom, Unsuitable
from cachemgr.base.sizes import in_words
from cachemgr.daemon.verbs import access, quota
from cachemgr.instances.methods import is_writable_unasked
from cachemgr.pool import instance_book
from cachemgr.pool.held import Holding
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.records import FORMATS, PUBLIC, Image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cachemgr.daemon.network.line import Line
    from cachemgr.daemon.network.peer import Caller
    from cachemgr.daemon.node import Node
    from cachemgr.daemon.verbs.requests import Request

LABEL = "made-before"
OWNER = "reservation:"
# So often a copy that somebody waits for is looked at, and so often its progress is told.
LOOK_S = 0.5
TELL_S = 5.0


def key_of(owner: str) -> str:
    """Which instance is the copy that is made for the service's pin of that name."""
    return instance_book.key_of(owner, LABEL)


def copy(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    """Have a copy made, and say how far it is; `needless` where an instance takes no bytes."""
    access.require_privilege(caller, "having a copy made")
    name, owner = request.text("name"), request.text("owner")
    until_s = request.number("until_s")
    request.finish()
    image = access.find_visible(node, caller, name)
    need_bytes = copy_bytes(node, image)
    told: dict[str, object] = {"copy_bytes": need_bytes, "copied_bytes": 0}
    if not need_bytes:
        return {**told, "state": "needless"}
    if not node.copyist.has(key_of(owner)) and _is_there(node, key_of(owner), image, until_s):
        return {**told, "state": "ready", "copied_bytes": need_bytes}
    task = node.copyist.order(node, Task(key_of(owner), owner, image, need_bytes, until_s))
    return {**told, "state": "copying", "copied_bytes": task.copied_bytes}


def copy_bytes(node: Node, image: Image) -> int:
    """What the instance of a job that asks for nothing in particular takes of the pool."""
    try:
        method = node.maker.choose(image, None, is_writable=is_writable_unasked(image.format))
    except Unsuitable:
        return 0
    return node.maker.taken_bytes(method, image)


def copied_formats(node: Node) -> list[str]:
    """Of which images jobs get full copies here."""
    samples = [
        Image(digest="0" * 64, size_bytes=1, format=each, uri="", owner_uid=0, readers=PUBLIC, added_s=0)
        for each in FORMATS
    ]
    return [each.format for each in samples if copy_bytes(node, each)]


def taken(node: Node, owners: Iterable[str], tell: Callable[[int], None]) -> list[str]:
    """The keys of the copies that an instance may take. One that is just being made is waited for; one
    that waits for its turn is not made any more, since it is needed now."""
    keys = [key_of(owner) for owner in owners]
    for key in keys:
        node.copyist.wait(key, tell)
    return keys


def drop(node: Node, owner: str, digests: Iterable[str] | None = None) -> int:
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

    def __init__(self, node: Node, line: Line, size_bytes: int) -> None:
        self._clock = node.clock
        self._line = line
        self._size_bytes = size_bytes
        self._told_s = node.clock.monotonic_s()

    def __call__(self, copied_bytes: int) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._told_s >= TELL_S:
            self._told_s = now_s
            self._line.progress({"copied_bytes": copied_bytes, "size_bytes": self._size_bytes})


@dataclass
class Task:
    """A copy that is to be made."""

    key: str
    owner: str
    image: Image
    size_bytes: int
    until_s: int
    copied_bytes: int = 0
    is_under_way: bool = False
    is_made: bool = False
    """It could be taken; its bytes are being written to the disk."""
    is_wanted: bool = True

    @property
    def holding(self) -> Holding:
        """What it will take, as long as it does not take it: the service's, like its pin."""
        return Holding(
            f"instance:{self.key}", "", f"instance {self.key}", self.size_bytes, 0, is_promised=True
        )


class Copyist:
    """Makes copies one after the other, so that they keep the disk no busier than one job would."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tasks: dict[str, Task] = {}
        self._failures: dict[str, CacheError] = {}
        self._thread: threading.Thread | None = None
        self._is_stopping = False

    def order(self, node: Node, task: Task) -> Task:
        """Let it be made, if there is room; the same one if it was ordered before. What went wrong is
        raised once: who asks again has it tried again."""
        with node.admission:
            with self._changed:
                there = self._tasks.get(task.key)
                failure = self._failures.pop(task.key, None)
            if there is not None:
                there.until_s, there.is_wanted = max(there.until_s, task.until_s), True
                return there
            if failure is not None:
                raise failure
            _check_room(node, task)
            node.pending.append(task.holding)
            with self._changed:
                self._tasks[task.key] = task
                if self._thread is None and not self._is_stopping:
                    self._thread = threading.Thread(
                        target=self._work, args=(node,), name="copies", daemon=True
                    )
                    self._thread.start()
        return task

    def has(self, key: str) -> bool:
        """Whether there is anything left to be done for a copy."""
        with self._changed:
            return key in self._tasks

    def wait(self, key: str, tell: Callable[[int], None]) -> None:
        """Until it is made, or has failed, if it is under way; otherwise it is not made any more."""
        with self._changed:
            task = self._tasks.get(key)
            if task is not None and not task.is_under_way:
                task.is_wanted = False
                return
        while task is not None:
            with self._changed:
                if self._tasks.get(key) is not task or task.is_made:
                    return
                self._changed.wait(LOOK_S)
            tell(task.copied_bytes)

    def give_up(self, key: str) -> None:
        """Nobody wants it any more."""
        with self._changed:
            self._failures.pop(key, None)
            if key in self._tasks:
                self._tasks[key].is_wanted = False

    def end(self) -> None:
        """Make nothing more."""
        self._is_stopping = True

    def stop(self, timeout_s: float) -> None:
        self.end()
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _work(self, node: Node) -> None:
        while True:
            with self._changed:
                task = next(iter(self._tasks.values()), None)
                if task is None or self._is_stopping:
                    self._thread = None
                    return
                task.is_under_way = True
            failure: CacheError | None = None
            try:
                self._make(node, task)
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
            with self._changed:
                del self._tasks[task.key]
                if failure is not None and task.is_wanted:
                    self._failures[task.key] = failure
                self._changed.notify_all()

    def _make(self, node: Node, task: Task) -> None:
        def watch(copied_bytes: int) -> None:
            task.copied_bytes = copied_bytes
            if self._is_stopping or not task.is_wanted:
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
            is_writable=is_writable_unasked(task.image.format),
            watch=watch,
        )
        with self._changed:
            task.is_made = True
            self._changed.notify_all()
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


def _is_there(node: Node, key: str, image: Image, until_s: int) -> bool:
    """Whether the copy is ready, which is kept until then. One of another image is removed."""
    there = instance_book.read_instance(node.pool, key)
    if there is None or not there.is_ready:
        return False
    if there.digest == image.digest and instance_book.renew(node.pool, key, until_s):
        return True
    instance_book.remove_instance(node.pool, node.maker, key)
    return False


def _sync(node: Node, path: str) -> None:
    """Write a copy to the disk, unless it was taken or removed meanwhile: nobody needs it there."""
    with disk_errors(f"writing the copy {path}"), suppress(FileNotFoundError):
        handle = node.pool.disk.open(path)
        try:
            handle.sync()
        finally:
            handle.close()


def _check_room(node: Node, task: Task) -> None:
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
