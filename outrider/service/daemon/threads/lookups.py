"""Looking up what is at images' addresses: so many at once, and no user or host at the cost of others.

What a server says is asked for by some threads, and has to come within seconds. What has to be read
to its end goes on to other threads, so that it keeps no short question waiting.
"""

from __future__ import annotations

import os
import pwd
import threading
import traceback
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from cachemgr.base.clock import MonotonicClock
from cachemgr.base.shares import Share
from outrider.service.daemon.log import TracingLog
from outrider.service.front import Busy
from outrider.service.images.slowness import SLOW_S, Slowness, host_of
from outrider.service.ports import FoundImage, ImageClaim, ImageTrouble, Resolve, Unread
from outrider.service.settings import Effort
from outrider.service.task_threads import Running, Task, TaskThreads

MOST_WAITING = 1_024
KEPT = 2
"""Threads and places that are root's."""
KEPT_WAITING = 32

Done = Callable[[FoundImage | Exception], None]


class Lookups:
    """Any thread may call."""

    def __init__(
        self, resolve: Resolve, *, clock: MonotonicClock, log: TracingLog, effort: Effort | None = None
    ) -> None:
        self._resolve = resolve
        self._clock = clock
        self._log = log
        self._effort = effort or Effort()
        self._slowness = Slowness()
        self._guard = threading.Lock()
        chosen = self._effort
        self._asking = TaskThreads(
            "the look-up of images",
            chosen.at_once,
            clock=clock,
            timeout_s=chosen.limit_s,
            most_waiting=MOST_WAITING,
            most_of_one=chosen.waiting_of_one,
            most_running_of_one=chosen.of_one,
            kept=min(KEPT_WAITING, MOST_WAITING // 4),
            kept_threads=min(KEPT, chosen.at_once // 4),
            spare=chosen.at_once,
            may=self._may_begin,
        )
        self._reading = TaskThreads(
            "the reading of images",
            chosen.reading_at_once,
            clock=clock,
            timeout_s=chosen.reading_limit_s,
            most_waiting=MOST_WAITING,
            most_of_one=chosen.waiting_of_one,
            most_running_of_one=max(1, chosen.reading_at_once // 16),
            kept=min(KEPT_WAITING, MOST_WAITING // 4),
            kept_threads=min(KEPT, chosen.reading_at_once // 4),
            spare=chosen.reading_at_once,
        )

    def ask(self, question: ImageClaim, done: Done) -> Lookup:
        """`done` is told once what is there, by some thread, or ImageTrouble. Raises Busy."""
        lookup = Lookup(self, question, done)
        if self._has_pause(lookup):
            limit_s = self._effort.limit_s
            lookup.end(
                ImageTrouble(
                    f"the image {question.uri} cannot be looked up: {lookup.host} has not answered you "
                    f"within {limit_s:g} s lately, and is not asked again for some minutes"
                )
            )
            return lookup
        self._asking.add(lookup, question.uid)
        return lookup

    def abandon(self, lookup: Lookup) -> None:
        """Nobody wants to know any more: its place is free, and `done` is not told."""
        lookup.drop()
        # A file that is read is left alone within a moment, and one that waits is closed in its turn:
        # not here, since to close a file of a user's own file system may take forever.
        self._asking.abandon(lookup)

    def expire(self) -> int:
        return self._asking.expire() + self._reading.expire()

    def close(self) -> None:
        self._asking.close()
        self._reading.close()

    @property
    def running(self) -> int:
        return self._asking.running + self._reading.running

    def shares(self) -> list[Share]:
        return [*self._asking.shares(), *self._reading.shares()]

    def look(self, lookup: Lookup) -> FoundImage | Unread | Exception:
        """Ask now. Errors that belong to it are its result."""
        asked, began_s = lookup.question, self._clock.monotonic_s()
        try:
            claim = replace(asked, gids=groups_of(asked.uid)) if asked.gids is None else asked
            found: FoundImage | Unread | Exception = self._resolve(claim)
        except ImageTrouble as error:
            found = error
        except Exception as error:  # noqa: BLE001 - whoever waits is told, whatever it is
            found = self._fault(asked, error)
        self.note(lookup, self._clock.monotonic_s() - began_s, has_failed=isinstance(found, Exception))
        return found

    def read(self, lookup: Lookup, unread: Unread) -> FoundImage | Exception:
        try:
            return unread.read(lambda: not lookup.is_over)
        except ImageTrouble as error:
            return error
        except Exception as error:  # noqa: BLE001 - as above
            return self._fault(lookup.question, error)

    def read_later(self, reading: Reading, uid: int) -> None:
        """Raises Busy."""
        self._reading.add(reading, uid)

    def note(self, lookup: Lookup, took_s: float, *, has_failed: bool) -> None:
        if not lookup.host:
            return
        with self._guard:
            if not lookup.is_noted:
                lookup.is_noted = True
                now_s = self._clock.monotonic_s()
                self._slowness.note(lookup.question.uid, lookup.host, took_s, now_s, has_failed=has_failed)

    def note_given_up(self, lookup: Lookup) -> None:
        self.note(lookup, self._effort.limit_s, has_failed=True)

    def _has_pause(self, lookup: Lookup) -> bool:
        with self._guard:
            return self._slowness.has_pause(lookup.question.uid, lookup.host, self._clock.monotonic_s())

    def _may_begin(self, owner: Hashable, task: Task, running: Sequence[Running]) -> bool:
        """Neither one host nor what is slow takes all threads."""
        assert isinstance(task, Lookup)
        if not task.host or owner == 0:
            return True
        others = [
            (each.task, each.since_s)
            for each in running
            if isinstance(each.task, Lookup) and not each.is_given_up
        ]
        if sum(other.host == task.host for other, _ in others) >= self._effort.of_host:
            return False
        with self._guard:
            now_s = self._clock.monotonic_s()
            if not self._slowness.is_slow(task.question.uid, task.host, now_s):
                return True
            slow = sum(
                now_s - since_s > SLOW_S or self._slowness.is_slow(other.question.uid, other.host, now_s)
                for other, since_s in others
            )
        return slow < self._effort.slow

    def _fault(self, asked: ImageClaim, error: Exception) -> ImageTrouble:
        self._log.trace("look-up of an image failed", traceback.format_exc())
        return ImageTrouble(
            f"image {asked.uri} could not be looked up: a fault of Outrider itself: {type(error).__name__}: "
            f"{error}"
        )


class Lookup:
    """One question, from being asked to being answered once, or dropped."""

    def __init__(self, lookups: Lookups, question: ImageClaim, done: Done) -> None:
        self._lookups = lookups
        self.question = question
        self.host = host_of(question.uri)
        self.is_noted = False
        """Whether it is known already how long it took."""
        self._done: Done | None = done
        self._guard = threading.Lock()

    @property
    def is_over(self) -> bool:
        return self._done is None

    def run(self) -> None:
        if self.is_over:
            return
        found = self._lookups.look(self)
        if isinstance(found, Unread):
            self._read_later(found)
        else:
            self.end(found)

    def give_up(self, words: str) -> None:
        self._lookups.note_given_up(self)
        what = f"image {self.question.uri} could not be looked up"
        where = f" at {self.host}" if self.host else ""
        self.end(ImageTrouble(f"{what}{where}: {words}; ask again"))

    def end(self, result: FoundImage | Exception) -> None:
        done = self.drop()
        if done is not None:
            done(result)

    def drop(self) -> Done | None:
        """From now on nobody is told anything; who was to be."""
        with self._guard:
            done, self._done = self._done, None
            return done

    def _read_later(self, unread: Unread) -> None:
        try:
            self._lookups.read_later(Reading(self._lookups, self, unread), self.question.uid)
        except Busy as error:
            unread.close()
            self.end(ImageTrouble(str(error)))


class Reading:
    """What is left of a look-up whose file has to be read."""

    def __init__(self, lookups: Lookups, lookup: Lookup, unread: Unread) -> None:
        self._lookups = lookups
        self._lookup = lookup
        self._unread: Unread | None = unread
        self._guard = threading.Lock()

    def run(self) -> None:
        unread = self._take()
        if unread is None:
            return
        try:
            result = None if self._lookup.is_over else self._lookups.read(self._lookup, unread)
        finally:
            unread.close()
        if result is not None:
            self._lookup.end(result)

    def give_up(self, words: str) -> None:
        self._lookup.end(ImageTrouble(f"image {self._lookup.question.uri} could not be read: {words}"))
        unread = self._take()
        if unread is not None:
            # Nobody waits for it: a file system of the user's own may not let it be closed.
            threading.Thread(target=unread.close, daemon=True).start()

    def _take(self) -> Unread | None:
        with self._guard:
            unread, self._unread = self._unread, None
            return unread


def groups_of(uid: int) -> tuple[int, ...]:
    """A user's groups; none of one whom the user database does not know."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return ()
    return tuple(sorted(set(os.getgrouplist(entry.pw_name, entry.pw_gid))))
