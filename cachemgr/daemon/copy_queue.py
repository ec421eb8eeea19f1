"""Full copies that are to be made, one after the other: the queue, and the thread that works through it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from cachemgr.pool.held import PoolHolding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.errors import CacheError
    from cachemgr.pool.records import PoolImage

# So often a copy that somebody waits for is looked at.
LOOK_S = 0.5


@dataclass
class CopyTask:
    """A copy that is to be made."""

    key: str
    owner: str
    image: PoolImage
    size_bytes: int
    until_s: int
    copied_bytes: int = 0
    is_under_way: bool = False
    is_made: bool = False
    """It could be taken; its bytes are being written to the disk."""
    is_wanted: bool = True

    @property
    def holding(self) -> PoolHolding:
        """What it will take, as long as it does not take it: the service's, like its pin."""
        return PoolHolding(
            f"instance:{self.key}", "", f"instance {self.key}", self.size_bytes, 0, is_promised=True
        )


class CopyQueue:
    """Has copies made one after the other, so that they keep the disk no busier than one job would."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tasks: dict[str, CopyTask] = {}
        self._failures: dict[str, CacheError] = {}
        self._thread: threading.Thread | None = None
        self.is_stopping = False

    def known(self, task: CopyTask) -> CopyTask | None:
        """The one that was ordered before, wanted for as long as this one; what went wrong with it is
        raised once."""
        with self._changed:
            there = self._tasks.get(task.key)
            failure = self._failures.pop(task.key, None)
        if there is not None:
            there.until_s, there.is_wanted = max(there.until_s, task.until_s), True
        elif failure is not None:
            raise failure
        return there

    def add(self, task: CopyTask, make: Callable[[CopyTask], CacheError | None]) -> None:
        """Have it made in its turn. `make` tells what went wrong."""
        with self._changed:
            self._tasks[task.key] = task
            if self._thread is None and not self.is_stopping:
                self._thread = threading.Thread(target=self._work, args=(make,), name="copies", daemon=True)
                self._thread.start()

    def note_made(self, task: CopyTask) -> None:
        """It can be taken from now on."""
        with self._changed:
            task.is_made = True
            self._changed.notify_all()

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
        self.is_stopping = True

    def stop(self, timeout_s: float) -> None:
        self.end()
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _work(self, make: Callable[[CopyTask], CacheError | None]) -> None:
        while True:
            with self._changed:
                task = next(iter(self._tasks.values()), None)
                if task is None or self.is_stopping:
                    self._thread = None
                    return
                task.is_under_way = True
            failure = make(task)
            with self._changed:
                del self._tasks[task.key]
                if failure is not None and task.is_wanted:
                    self._failures[task.key] = failure
                self._changed.notify_all()
