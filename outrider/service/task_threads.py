"""A few threads that carry things out, so many at a time, with a limit on what waits for them.

Python's own executor keeps a process alive until its last task has ended, and cannot say that a
task takes too long. Here threads never hold up the end, and what hangs is answered for.
"""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cachemgr.base.clock import MonotonicClock
from cachemgr.base.shares import Share, Shares
from outrider.service.front import Busy
from outrider.service.turns import Turns

T = TypeVar("T")
SERVICE = "the service"
"""Under this name the service's own tasks are counted."""


class Traces(Protocol):
    """Where the traceback of what nobody expected goes."""

    def trace(self, event: str, text: str) -> None: ...


class Task(Protocol):
    """Something to be done by one of the threads."""

    def run(self) -> None:
        """Do it, and tell whoever waits what came of it. Raises nothing."""

    def give_up(self, words: str) -> None:
        """Tell whoever waits that nothing will come of it; what `run` says later is ignored."""


@dataclass(kw_only=True, slots=True)
class Running:
    """A task that a thread is at. What was given up has no place any more, but still its owner's share."""

    task: Task
    owner: Hashable
    is_first: bool
    since_s: float
    is_given_up: bool = False


@dataclass(frozen=True, slots=True)
class _Waiting:
    task: Task
    is_first: bool


May = Callable[[Hashable, Task, Sequence[Running]], bool]
"""Whether a task of an owner's may begin beside those that run. Asked with the threads' lock held."""


class TaskThreads:
    """`size` threads; at most `most_waiting` tasks wait, of one owner at most `most_of_one`.

    Owners take turns. Of one at most `most_running_of_one` run: what is slow holds up its owner and
    nobody else. Root and the service itself (None) go first every second time, and the last `kept`
    places and `kept_threads` are theirs alone. Where all places are taken, whoever has most gives one up.

    A thread whose task was given up is replaced, as long as no more than `spare` are; without spare
    ones its place comes free when it does.
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
        kept: int = 0,
        kept_threads: int = 0,
        spare: int = 0,
        may: May | None = None,
    ) -> None:
        self._name = name
        self._size = size
        self._clock = clock
        self._most_running_of_one = most_running_of_one or size
        self._timeout_s = timeout_s
        self._kept_threads = kept_threads
        self._spare = spare
        self._may = may
        most = most_waiting + size
        self._shares = Shares(name, most=most, most_of_one=most_of_one or most, kept=kept)
        self._most_waiting = most_waiting
        self._waiting: Turns[_Waiting] = Turns()
        self._running: dict[int, Running] = {}
        self._threads = 0
        """Those that have not ended."""
        self._numbers = itertools.count()
        self._idle = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def add(self, task: Task, owner: Hashable = None, *, is_first: bool | None = None) -> None:
        """`is_first`: whether it is treated as root's, whose owner it is aside. Raises Busy."""
        goes_first = owner in (None, 0) if is_first is None else is_first
        with self._changed:
            if self._is_closed:
                raise Busy("the service is stopping: ask again when it is back", retry_after_s=5)
            displaced = self._take_place(owner, is_first=goes_first)
            self._waiting.put(owner, _Waiting(task, goes_first), is_first=goes_first)
            self._begin_threads()
            self._changed.notify()
        if displaced is not None:
            displaced.give_up(f"others wait for {self._name}, and most of what waits is yours")

    def abandon(self, task: Task) -> None:
        """Nobody wants this any more. It has no place from now on; where it runs it may go on in vain."""
        with self._changed:
            for each in self._running.values():
                each.is_given_up |= each.task is task
            found = self._waiting.drop(lambda waiting: waiting.task is task)
            if found is not None:
                self._shares.give(_named(found[0]))
            self._begin_threads()
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
            if len(late) >= self._size + self._spare:
                given_up += self._drop_waiting()
            self._begin_threads()
            # What may begin may depend on the time.
            self._changed.notify_all()
        for task in given_up:
            task.give_up(f"it took more than {self._timeout_s:.0f} s")
        return len(given_up)

    def close(self) -> None:
        """Begin nothing any more, and give up all that has not ended."""
        with self._changed:
            self._is_closed = True
            left = self._drop_waiting()
            left += [each.task for each in self._running.values() if not each.is_given_up]
            self._changed.notify_all()
        for task in left:
            task.give_up("the service is stopping")

    @property
    def running(self) -> int:
        return len(self._running)

    def shares(self) -> list[Share]:
        return self._shares.shares()

    def _take_place(self, owner: Hashable, *, is_first: bool) -> Task | None:
        """A place for one more; whoever has to give theirs up for it."""
        name = _named(owner)
        if self._shares.take(name, is_privileged=is_first):
            return None
        held = self._shares.held_by(name)
        if held >= self._shares.most_of_one and not is_first:
            raise Busy(
                f"{held} of your requests wait for {self._name} already: ask again when one has ended",
                retry_after_s=5,
            )
        found = self._waiting.drop_of_longest(held + 1)
        if found is None:
            raise Busy(
                f"{self._most_waiting} tasks wait for {self._name} already: ask again", retry_after_s=5
            )
        self._shares.give(_named(found[0]))
        self._shares.take(name, is_privileged=is_first)
        return found[1].task

    def _drop_waiting(self) -> list[Task]:
        dropped = self._waiting.clear()
        for owner, _ in dropped:
            self._shares.give(_named(owner))
        return [waiting.task for _, waiting in dropped]

    @property
    def _lost(self) -> int:
        return sum(each.is_given_up for each in self._running.values())

    def _begin_threads(self) -> None:
        """So many that what waits need not, as far as there may be."""
        lost = min(self._lost, self._spare)
        while self._idle < len(self._waiting) and self._threads - lost < self._size:
            self._threads += 1
            # It is idle from now on, and not only when it has begun.
            self._idle += 1
            number = next(self._numbers)
            threading.Thread(
                target=self._work, args=(number,), name=f"{self._name}-{number}", daemon=True
            ).start()

    def _may_begin(self, owner: Hashable, waiting: _Waiting) -> bool:
        """Whether this one may run beside those that do."""
        running = tuple(self._running.values())
        if not running:
            return True
        own = sum(each.owner == owner for each in running)
        at_work = len(running) - min(self._lost, self._spare)
        has_room = own < self._most_running_of_one and at_work < self._size - self._kept_threads
        if not (has_room or waiting.is_first):
            return False
        return self._may is None or self._may(owner, waiting.task, running)

    def _work(self, number: int) -> None:
        while True:
            with self._changed:
                taken = None
                while not self._is_closed and (taken := self._waiting.take(self._may_begin)) is None:
                    self._changed.wait()
                self._idle -= 1
                if taken is None:
                    self._threads -= 1
                    return
                owner, task = taken[0], taken[1].task
                running = Running(
                    task=task, owner=owner, is_first=taken[1].is_first, since_s=self._clock.monotonic_s()
                )
                self._running[number] = running
            try:
                task.run()
            finally:
                is_last = self._end(number, running)
            if is_last:
                return

    def _end(self, number: int, running: Running) -> bool:
        """A thread has done a task; whether the thread is one too many now."""
        with self._changed:
            del self._running[number]
            self._shares.give(_named(running.owner))
            if not running.is_first:
                self._waiting.charge(running.owner, self._clock.monotonic_s() - running.since_s)
            if len(self._waiting):
                # Its end may let another of the same owner begin.
                self._changed.notify()
            if self._threads - min(self._lost, self._spare) > self._size:
                self._threads -= 1
                return True
            self._idle += 1
            return False


def _named(owner: Hashable) -> Hashable:
    return SERVICE if owner is None else owner


class FutureTask(Generic[T]):
    """Something whose result somebody waits for."""

    def __init__(
        self,
        future: Future[T],
        function: Callable[[], T],
        failure: Callable[[str], Exception],
        log: Traces,
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
