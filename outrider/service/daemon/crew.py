"""A few threads that carry things out, so many at a time, with a limit on what waits for them.

Python's own executor keeps a process alive until its last task has ended, and cannot say that a
task takes too long. Here threads never hold up the end, and what hangs is answered for.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from outrider.service.daemon.log import TracingLog
from outrider.service.web.front import Busy

T = TypeVar("T")


class MonotonicClock(Protocol):
    def monotonic_s(self) -> float: ...


class Task(Protocol):
    """Something to be done by a thread of the crew."""

    def run(self) -> None:
        """Do it, and tell whoever waits what came of it. Raises nothing."""

    def give_up(self, words: str) -> None:
        """Tell whoever waits that nothing will come of it; what `run` says later is ignored."""


@dataclass(kw_only=True, slots=True)
class _Running:
    task: Task
    owner: Hashable
    since_s: float
    is_given_up: bool = False


class Crew:
    """`size` threads; at most `most_waiting` tasks wait, of one owner at most `most_of_one`.

    Of one owner at most `most_running_of_one` run: what is slow holds up its owner and nobody else.
    """

    def __init__(
        self,
        name: str,
        size: int,
        *,
        clock: MonotonicClock,
        most_waiting: int = 10_000,
        most_of_one: int | None = None,
        most_running_of_one: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self._name = name
        self._size = size
        self._clock = clock
        self._most_waiting = most_waiting
        self._most_of_one = most_of_one or most_waiting + size
        self._most_running_of_one = most_running_of_one or size
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[Hashable, Task]] = deque()
        self._running: dict[int, _Running] = {}
        self._owned: dict[Hashable, int] = {}
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def add(self, task: Task, owner: Hashable = None) -> None:
        """Raises Busy."""
        with self._changed:
            if self._is_closed:
                raise Busy("the service is stopping: ask again when it is back", retry_after_s=5)
            if len(self._waiting) >= self._most_waiting:
                raise Busy(
                    f"{self._most_waiting} tasks wait for {self._name} already: ask again", retry_after_s=5
                )
            if owner is not None and self._owned.get(owner, 0) >= self._most_of_one:
                raise Busy(
                    f"{self._most_of_one} of your requests wait for {self._name} already: ask again when "
                    "one has ended",
                    retry_after_s=5,
                )
            self._owned[owner] = self._owned.get(owner, 0) + 1
            self._waiting.append((owner, task))
            if self._idle < len(self._waiting) and len(self._threads) < self._size:
                self._begin_thread()
            self._changed.notify()

    def expire(self) -> int:
        """Give up what has been running for too long, and, if no thread is left, what waits; how many."""
        if self._timeout_s is None:
            return 0
        with self._changed:
            before_s = self._clock.monotonic_s() - self._timeout_s
            late = [each for each in self._running.values() if each.since_s <= before_s]
            given_up = [each.task for each in late if not each.is_given_up]
            for each in late:
                each.is_given_up = True
            if len(late) >= self._size:
                given_up += [self._next()[1] for _ in range(len(self._waiting))]
        for task in given_up:
            task.give_up(f"it took more than {self._timeout_s:.0f} s")
        return len(given_up)

    def close(self) -> None:
        """Begin nothing any more, and give up all that has not ended."""
        with self._changed:
            self._is_closed = True
            left = [self._next()[1] for _ in range(len(self._waiting))]
            left += [each.task for each in self._running.values() if not each.is_given_up]
            self._changed.notify_all()
        for task in left:
            task.give_up("the service is stopping")

    @property
    def running(self) -> int:
        return len(self._running)

    def _begin_thread(self) -> None:
        number = len(self._threads)
        thread = threading.Thread(
            target=self._work, args=(number,), name=f"{self._name}-{number}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _next(self) -> tuple[Hashable, Task]:
        owner, task = self._waiting.popleft()
        self._disown(owner)
        return owner, task

    def _turn(self) -> int | None:
        """Which of those that wait is next: the first whose owner has not too much running."""
        running = Counter(each.owner for each in self._running.values())
        for at, (owner, _) in enumerate(self._waiting):
            if owner is None or running[owner] < self._most_running_of_one:
                return at
        return None

    def _disown(self, owner: Hashable) -> None:
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner]

    def _work(self, number: int) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._turn() is not None or self._is_closed)
                self._idle -= 1
                at = self._turn()
                if self._is_closed or at is None:
                    return
                owner, task = self._waiting[at]
                del self._waiting[at]
                self._running[number] = _Running(task=task, owner=owner, since_s=self._clock.monotonic_s())
            try:
                task.run()
            finally:
                with self._changed:
                    del self._running[number]
                    self._disown(owner)


class FutureTask(Generic[T]):
    """Something whose result somebody waits for."""

    def __init__(
        self,
        future: Future[T],
        function: Callable[[], T],
        failure: Callable[[str], Exception],
        log: TracingLog,
        *,
        expected: tuple[type[Exception], ...],
    ) -> None:
        self._future = future
        self._function = function
        self._failure = failure
        self._log = log
        self._expected = expected

    def run(self) -> None:
        if self._future.done():
            return
        # Given up or cancelled meanwhile: then nobody waits for what is said here.
        with suppress(InvalidStateError):
            try:
                found = self._function()
            except self._expected as error:
                self._future.set_exception(error)
                return
            except Exception:  # noqa: BLE001 - whoever waits is told, whatever it is
                self._log.trace("task failed", traceback.format_exc())
                self._future.set_exception(self._failure("a fault of Outrider itself, which is in its log"))
                return
            self._future.set_result(found)

    def give_up(self, words: str) -> None:
        with suppress(InvalidStateError):
            self._future.set_exception(self._failure(words))
