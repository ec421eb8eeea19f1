"""The daemon's transfers: several requests for one image are one transfer, and few run at once.

A transfer has a thread from its first start to its end. Paused, it keeps the right to write
and what it has hashed, so that going on costs nothing; what is stopped with the daemon goes
on from what lies in the pool.
"""

from __future__ import annotations

import os
import threading
import traceback
from dataclasses import dataclass, field

from cachemgr.bring import Reins
from cachemgr.daemon import schedule
from cachemgr.daemon.schedule import CANCELLED, DONE, ENDED, FAILED, PAUSED, RUNNING, WAITING, Standing
from cachemgr.errors import Busy, CacheError, Cancelled, Missing
from cachemgr.fetch.control import Control
from cachemgr.fetch.rate import RateLimit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cachemgr.bring import Origin
    from cachemgr.clock import Clock
    from cachemgr.daemon.log import Log
    from cachemgr.fetch.report import Progress
    from cachemgr.ingest import Writer
    from cachemgr.records import Image

    Work = Callable[["Transfer", Reins], Image]

# Ended transfers are remembered so long, and so many of them.
REMEMBERED_S = 3600
MOST_REMEMBERED = 1000
STOPPING = "the daemon is stopping; what has arrived is kept"


@dataclass
class Transfer:
    """One image on its way here, for everybody who wants it. Changed with the table's lock only."""

    number: int
    key: str
    uri: str
    size_bytes: int
    work: Work
    limit: RateLimit
    created_s: int
    control: Control = field(default_factory=Control)
    state: str = WAITING
    deadline_s: int | None = None
    is_held: bool = False
    # Wanted by ordinary users alone.
    is_ordinary: bool = False
    is_held_by_waiting: bool = False
    wanted_by: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    origins: list[Origin] = field(default_factory=list)
    expected_rate_bytes_per_s: int | None = None
    progress: Progress | None = None
    sink: Writer | None = None
    image: Image | None = None
    error: CacheError | None = None
    ended_s: int | None = None
    has_thread: bool = False
    changes: int = 0

    @property
    def name(self) -> str:
        return f"t{self.number}"

    @property
    def arrived_bytes(self) -> int:
        told = self.progress.offset_bytes if self.progress else 0
        return max(told, self.sink.offset if self.sink else 0)

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


class Transfers:
    """The table of all transfers, those that ended a while ago included."""

    def __init__(
        self, *, slots: int, most_waiting: int, rate_bytes_per_s: int | None, clock: Clock, log: Log
    ) -> None:
        self.limit = RateLimit(rate_bytes_per_s, clock)
        self._slots = slots
        self._most_waiting = most_waiting
        self._clock = clock
        self._log = log
        self._changed = threading.Condition()
        self._all: dict[int, Transfer] = {}
        self._last = 0
        self._is_stopping = False
        self._threads: dict[int, threading.Thread] = {}
        # To be closed without the lock: a file system of a user's own may not answer, ever.
        self._unused: list[Origin] = []

    def join(
        self,
        key: str,
        *,
        uri: str,
        size_bytes: int,
        uid: int,
        origins: Sequence[Origin],
        work: Work,
        is_ordinary: bool = False,
        deadline_s: int | None = None,
        rate_bytes_per_s: int | None = None,
        expected_rate_bytes_per_s: int | None = None,
        names: Iterable[str] = (),
    ) -> tuple[Transfer, bool]:
        """The transfer of that key, begun or joined; whether it was there before.

        Of several deadlines the earliest holds. Who joins brings its own origins along; the
        open files among them belong to the transfer once this has returned. `names` are to
        stand for the image.
        """
        with self._changed:
            self._check_going()
            found = self._alive(key)
            is_joined = found is not None
            if found is None:
                self._check_place()
                self._last += 1
                limit = RateLimit(rate_bytes_per_s, self._clock)
                found = Transfer(self._last, key, uri, size_bytes, work, limit, self._clock.now_s())
                found.expected_rate_bytes_per_s = expected_rate_bytes_per_s
                found.is_ordinary = is_ordinary
                self._all[found.number] = found
            waited = set(found.wanted_by)
            found.wanted_by.add(uid)
            found.is_ordinary = found.is_ordinary and is_ordinary
            known = {origin.name for origin in found.origins}
            self._unused += [origin for origin in origins if origin.name in known]
            found.origins += [origin for origin in origins if origin.name not in known]
            if deadline_s is not None and (found.deadline_s is None or deadline_s < found.deadline_s):
                found.deadline_s = deadline_s
            found.names.update(names)
            if found.is_held and found.is_held_by_waiting and uid not in waited:
                # Who paused it did so for those who waited then.
                self._release(found)
            self._schedule()
        self._close_unused()
        return found, is_joined

    def check_room(self, key: str) -> None:
        """Refuse what `join` would refuse: before anything is reserved for it."""
        with self._changed:
            self._check_going()
            if self._alive(key) is None:
                self._check_place()

    def all(self) -> list[Transfer]:
        with self._changed:
            return sorted(self._all.values(), key=lambda each: each.number)

    def get(self, name: str) -> Transfer:
        with self._changed:
            number = int(name[1:]) if name[:1] == "t" and name[1:].isdecimal() else 0
            found = self._all.get(number)
        if found is None:
            raise Missing(f"there is no transfer {name[:40]!r}: it may have ended long ago")
        return found

    def writer_of(self, key: str) -> Writer | None:
        """Who writes under that key here; None if nobody does."""
        with self._changed:
            found = self._alive(key)
            return found.sink if found else None

    def wait(self, transfer: Transfer, seen: int, timeout_s: float) -> int:
        """Until something about it has changed since `seen`, or the time is over; how it is numbered."""
        with self._changed:
            self._changed.wait_for(lambda: transfer.changes != seen or transfer.has_ended, timeout_s)
            return transfer.changes

    def hold(self, transfer: Transfer, *, is_held: bool, is_by_waiting: bool = False) -> None:
        """Pause it until it is resumed, or resume it.

        What one of those who wait for it has paused goes on when somebody else joins.
        """
        with self._changed:
            if transfer.has_ended:
                return
            if is_held:
                transfer.is_held, transfer.is_held_by_waiting = True, is_by_waiting
                if transfer.state == WAITING:
                    self._to(transfer, PAUSED)
            else:
                self._release(transfer)
            self._schedule()
        self._close_unused()

    def set_deadline(self, transfer: Transfer, deadline_s: int) -> None:
        with self._changed:
            transfer.deadline_s = deadline_s
            self._schedule()
        self._close_unused()

    def cancel(self, transfer: Transfer, reason: str) -> None:
        """End it. What has arrived stays until its lease ends."""
        with self._changed:
            if transfer.has_ended:
                return
            transfer.control.cancel(reason)
            if not transfer.has_thread:
                transfer.error = Cancelled(f"the transfer of {transfer.uri} was cancelled: {reason}")
                self._end(transfer, CANCELLED)
        self._close_unused()

    def leave(self, transfer: Transfer, uid: int, reason: str) -> bool:
        """One user's interest ends; whether that ended the transfer."""
        with self._changed:
            transfer.wanted_by.discard(uid)
            if transfer.wanted_by:
                return False
            # With the lock still held: nobody joins what is about to be cancelled.
            self.cancel(transfer, reason)
            return True

    def counts(self) -> dict[str, int]:
        with self._changed:
            states = [each.state for each in self._all.values()]
        return {state: states.count(state) for state in schedule.STATES}

    def stop(self, timeout_s: float) -> None:
        """Let everything note what has arrived, and end."""
        with self._changed:
            self._is_stopping = True
            alive = [each for each in self._all.values() if not each.has_ended]
        for transfer in alive:
            self.cancel(transfer, STOPPING)
        until_s = self._clock.monotonic_s() + timeout_s
        for thread in list(self._threads.values()):
            thread.join(max(0.0, until_s - self._clock.monotonic_s()))

    def forget_old(self) -> None:
        """Drop what ended long ago, and the oldest beyond a number."""
        with self._changed:
            now_s = self._clock.now_s()
            ended = sorted(each.number for each in self._all.values() if each.has_ended)
            surplus = set(ended[: max(0, len(ended) - MOST_REMEMBERED)])
            for number in ended:
                if number in surplus or (self._all[number].ended_s or 0) + REMEMBERED_S <= now_s:
                    del self._all[number]

    def _alive(self, key: str) -> Transfer | None:
        """Whom to join. Not what was cancelled and has not noticed yet: that brings nobody anything."""
        alive = (each for each in self._all.values() if each.key == key and not each.has_ended)
        return next((each for each in alive if each.control.cancelled is None), None)

    def _check_going(self) -> None:
        if self._is_stopping:
            raise Busy("the daemon is stopping: ask the next one")

    def _check_place(self) -> None:
        if sum(not each.has_ended for each in self._all.values()) >= self._slots + self._most_waiting:
            raise Busy(f"{self._most_waiting} transfers are waiting already: try again later")

    def _release(self, transfer: Transfer) -> None:
        transfer.is_held = False
        if transfer.state == PAUSED and not transfer.has_thread:
            self._to(transfer, WAITING)

    def _schedule(self) -> None:
        """Carry out the choice; called with the lock."""
        while not self._is_stopping and not self._carry_out_choice():
            """Who could not begin has left a slot to others."""
        self._changed.notify_all()

    def _carry_out_choice(self) -> bool:
        """Whether all that were chosen run now."""
        standings = [
            Standing(each.number, each.state, each.deadline_s, each.is_held, each.is_ordinary)
            for each in self._all.values()
        ]
        choice = schedule.choose(standings, self._slots)
        for number in choice.to_pause:
            transfer = self._all[number]
            transfer.control.pause()
            self._to(transfer, PAUSED)
        for number in choice.to_run:
            transfer = self._all[number]
            transfer.control.resume()
            self._to(transfer, RUNNING)
            if not transfer.has_thread and not self._start(transfer):
                return False
        return True

    def _start(self, transfer: Transfer) -> bool:
        """A thread for it, or its end: who has no thread must not keep a slot."""
        thread = threading.Thread(
            target=self._run, args=(transfer,), name=f"transfer {transfer.name}", daemon=True
        )
        self._threads[transfer.number] = thread
        try:
            thread.start()
        except RuntimeError as error:
            self._log.warning("cannot start a transfer", transfer=transfer.name, reason=error)
            del self._threads[transfer.number]
            transfer.error = Busy("this node has too many processes to begin a transfer: try again")
            self._note_end(transfer, FAILED)
            return False
        transfer.has_thread = True
        return True

    def _run(self, transfer: Transfer) -> None:
        def on_progress(progress: Progress) -> None:
            with self._changed:
                transfer.progress = progress
                transfer.changes += 1
                self._changed.notify_all()

        def on_sink(sink: Writer) -> None:
            transfer.sink = sink

        reins = Reins(
            control=transfer.control,
            limits=(transfer.limit, self.limit),
            on_progress=on_progress,
            on_sink=on_sink,
            expected_rate_bytes_per_s=transfer.expected_rate_bytes_per_s,
        )
        state = DONE
        try:
            transfer.image = transfer.work(transfer, reins)
        except Cancelled as error:
            state, transfer.error = CANCELLED, error
        except CacheError as error:
            state, transfer.error = FAILED, error
        except Exception as error:  # noqa: BLE001 - a thread's outermost loop
            self._log.trace("transfer failed", traceback.format_exc())
            state, transfer.error = FAILED, CacheError(f"the transfer failed ({type(error).__name__})")
        with self._changed:
            self._end(transfer, state)
            self._threads.pop(transfer.number, None)
        self._close_unused()

    def _end(self, transfer: Transfer, state: str) -> None:
        self._note_end(transfer, state)
        self._schedule()
        self._changed.notify_all()

    def _note_end(self, transfer: Transfer, state: str) -> None:
        self._to(transfer, state)
        transfer.ended_s = self._clock.now_s()
        self._unused += transfer.origins
        transfer.origins = []

    def _close_unused(self) -> None:
        with self._changed:
            origins, self._unused = self._unused, []
        close_files(origins)

    def _to(self, transfer: Transfer, state: str) -> None:
        transfer.state = schedule.checked_change(transfer.state, state)
        transfer.changes += 1


def close_files(origins: Iterable[Origin]) -> None:
    """Close the files that users had opened for their transfer."""
    for origin in origins:
        if origin.descriptor is not None:
            os.close(origin.descriptor)
