"""The daemon's transfers: several requests for one image are one transfer, and few run at once.

A transfer has a thread from its first start to its end. Paused, it keeps the right to write
and what it has hashed, so that going on costs nothing; what is stopped with the daemon goes
on from what lies in the pool.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from contextlib import contextmanager

from cachemgr.base.errors import CacheError, Cancelled, InUse, NotInPool
from cachemgr.base.rate import RateLimit
from cachemgr.base.shares import PLACES, Share
from cachemgr.daemon.transfers import schedule
from cachemgr.daemon.transfers.bounds import Bounds, Remembered, UserTurns
from cachemgr.daemon.transfers.places import TransferPlaces
from cachemgr.daemon.transfers.schedule import (
    CANCELLED,
    DONE,
    FAILED,
    PAUSED,
    RUNNING,
    WAITING,
    ScheduledTransfer,
)
from cachemgr.daemon.transfers.transfer import BlobTurn, PoolTransfer
from cachemgr.daemon.transfers.users_rate import OfUsers
from cachemgr.fetch.bring import TransferTerms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cachemgr.base.clock import Clock
    from cachemgr.daemon.log import DaemonLog
    from cachemgr.daemon.transfers.places import Admission
    from cachemgr.daemon.transfers.transfer import Work
    from cachemgr.fetch.bring import Origin
    from cachemgr.fetch.report import FetchProgress
    from cachemgr.pool.ingest import Writer

RUNNING_NOW = "running transfers"
STOPPING = "the daemon is stopping; what has arrived is kept"


class Transfers:
    """The table of all transfers, those that ended a while ago included."""

    def __init__(
        self,
        *,
        slots: int,
        most_waiting: int,
        rate_bytes_per_s: int | None,
        clock: Clock,
        log: DaemonLog,
        bounds: Bounds | None = None,
    ) -> None:
        self.limit = RateLimit(rate_bytes_per_s, clock)
        self._slots = slots
        self._bounds = bounds = bounds or Bounds()
        self.users_limit = RateLimit(bounds.rate_bytes_per_s, clock)
        self.places = TransferPlaces(slots + most_waiting, bounds)
        self._turns = UserTurns(bounds.turn_s)
        self._in_turn_of: Mapping[int, int] = {}
        self._charged_s = clock.monotonic_s()
        self._remembered = Remembered(bounds.remembered, bounds.remembered_of_user)
        self._clock = clock
        self._log = log
        self._changed = threading.Condition()
        self._all: dict[int, PoolTransfer] = {}
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
        admission: Admission | None = None,
    ) -> tuple[PoolTransfer, bool]:
        """The transfer of that key, begun or joined; whether it was there before.

        Of several deadlines the earliest holds. Who joins brings its own origins along; the
        open files among them belong to the transfer once this has returned. `names` are to
        stand for the image.
        """
        with self._changed:
            self._check_going()
            found = self._alive(key)
            is_joined = found is not None
            self.places.use(admission, uid, origins, needs_place=found is None, is_ordinary=is_ordinary)
            if found is None:
                self._last += 1
                limit = RateLimit(rate_bytes_per_s, self._clock)
                found = PoolTransfer(
                    self._last,
                    key,
                    uri,
                    size_bytes,
                    work,
                    limit,
                    self._clock.now_s(),
                    uid,
                    self._clock.monotonic_s(),
                )
                found.expected_rate_bytes_per_s = expected_rate_bytes_per_s
                found.is_ordinary = is_ordinary
                found.place_of = uid
                self._all[found.number] = found
            else:
                self._widen(found, uid, rate_bytes_per_s, is_ordinary=is_ordinary)
            waited = set(found.wanted_by)
            found.wanted_by.add(uid)
            known = {origin.name for origin in found.origins}
            self._unused += [origin for origin in origins if origin.name in known]
            found.origins += [origin for origin in origins if origin.name not in known]
            _hasten(found, deadline_s, is_ordinary=is_ordinary)
            self._take_over(found)
            found.names.update(names)
            if found.is_held and found.is_held_by_waiting and uid not in waited:
                # Who paused it did so for those who waited then.
                self._release(found)
            self._schedule()
        self._close_unused()
        return found, is_joined

    def admit(self, key: str, uid: int, *, is_ordinary: bool, files: int = 0) -> Admission:
        """Set aside what `join` will need, or refuse: before any bytes are reserved for it."""
        with self._changed:
            self._check_going()
            needs_place = self._alive(key) is None
            return self.places.admit(uid, needs_place=needs_place, is_ordinary=is_ordinary, files=files)

    def turn_back(self, admission: Admission) -> None:
        """Nothing came of it."""
        self.places.turn_back(admission)

    def shares(self) -> list[Share]:
        with self._changed:
            running = Counter(self._in_turn_of.values())
        most = self._bounds.slots_of_user or self._slots
        slots = [
            Share(RUNNING_NOW, PLACES, str(uid), count, most, 0) for uid, count in sorted(running.items())
        ]
        return [*self.places.shares(), *slots]

    def refused(self) -> dict[str, int]:
        return self.places.refused()

    def all(self) -> list[PoolTransfer]:
        with self._changed:
            return sorted(self._all.values(), key=lambda each: each.number)

    def get(self, name: str) -> PoolTransfer:
        with self._changed:
            number = int(name[1:]) if name[:1] == "t" and name[1:].isdecimal() else 0
            found = self._all.get(number)
        if found is None:
            raise NotInPool(f"there is no transfer {name[:40]!r}: it may have ended long ago")
        return found

    def writer_of(self, key: str) -> Writer | None:
        """Who writes under that key here; None if nobody does. One transfer may bring several, in turn."""
        with self._changed:
            sinks = [each.sink for each in self._all.values() if not each.has_ended]
        return next((sink for sink in sinks if sink is not None and sink.ingest.key == key), None)

    @contextmanager
    def turn(self, transfer: PoolTransfer, digest: str) -> Iterator[BlobTurn]:
        """It brings a blob, which others may bring, too: the most urgent of them does."""
        with self._changed:
            turn = transfer.turn = BlobTurn(transfer.control, digest)
            self._take_over(transfer)
        try:
            yield turn
        finally:
            with self._changed:
                transfer.turn = None

    def take_over(self, transfer: PoolTransfer, arrived_bytes: int) -> None:
        """It waits for a blob of which so much is there: it brings that itself if it is the most urgent by
        now, or if it comes much slower than with its own rate, which the service has planned with."""
        with self._changed:
            self._take_over(transfer)
            turn = transfer.turn
            if turn is None or transfer.promised_s is None:
                return
            rate, now_s = transfer.limit.rate_bytes_per_s, self._clock.monotonic_s()
            if turn.is_let_down(arrived_bytes, rate, now_s, transfer.patience_s):
                for other in self._beside(transfer):
                    other.slow_at = turn.digest
                transfer.slow_at = ""
                transfer.patience_s *= 2
                self._take_over(transfer)

    def wait(self, transfer: PoolTransfer, seen: int, timeout_s: float) -> int:
        """Until something about it has changed since `seen`, or the time is over; how it is numbered."""
        with self._changed:
            self._changed.wait_for(lambda: transfer.changes != seen or transfer.has_ended, timeout_s)
            return transfer.changes

    def hold(self, transfer: PoolTransfer, *, is_held: bool, is_by_waiting: bool = False) -> None:
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

    def set_deadline(self, transfer: PoolTransfer, deadline_s: int, *, is_ordinary: bool) -> None:
        with self._changed:
            transfer.deadline_s = deadline_s
            if not is_ordinary:
                transfer.promised_s = deadline_s
            self._take_over(transfer)
            self._schedule()
        self._close_unused()

    def cancel(self, transfer: PoolTransfer, reason: str) -> None:
        """End it. What has arrived stays until its lease ends."""
        with self._changed:
            if transfer.has_ended:
                return
            transfer.control.cancel(reason)
            if not transfer.has_thread:
                transfer.error = Cancelled(f"the transfer of {transfer.uri} was cancelled: {reason}")
                self._end(transfer, CANCELLED)
        self._close_unused()

    def leave(self, transfer: PoolTransfer, uid: int, reason: str) -> bool:
        """One user's interest ends; whether that ended the transfer."""
        with self._changed:
            transfer.wanted_by.discard(uid)
            if transfer.wanted_by:
                if transfer.place_of == uid:
                    others = sorted(transfer.wanted_by)
                    transfer.place_of = self.places.handed_on(uid, others, is_ordinary=transfer.is_ordinary)
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
        """Drop what ended long ago."""
        with self._changed:
            now_s, most_s = self._clock.now_s(), self._bounds.remembered_s
            ended = [each for each in self._all.values() if each.has_ended]
            # What ended in the future did so by a clock that was wrong.
            old = [each for each in ended if not 0 <= now_s - (each.ended_s or 0) < most_s]
            for transfer in old:
                self._remembered.forget(transfer.begun_by, transfer.number)
                del self._all[transfer.number]

    def end_overdue(self) -> None:
        """Give up what only ordinary users want and has had its time: no source keeps a place forever."""
        until_s = self._clock.monotonic_s() - self._bounds.longest_s
        with self._changed:
            alive = [each for each in self._all.values() if each.is_ordinary and not each.has_ended]
            late = [each for each in alive if each.begun_s <= until_s and each.control.cancelled is None]
        for transfer in late:
            self.cancel(
                transfer, f"it has taken {self._bounds.longest_s} s, as long as user_transfer_time allows"
            )

    def take_turns(self) -> bool:
        """Let those run whose turn it is; whether there are turns to be taken again."""
        with self._changed:
            self._schedule()
            alive = [each for each in self._all.values() if not each.has_ended and not each.is_held]
            waiting = any(each.state != RUNNING for each in alive)
        self._close_unused()
        return waiting

    def _take_over(self, transfer: PoolTransfer) -> None:
        """Those that bring the same blob, and are less urgent, leave it to this one."""
        now_s = self._clock.now_s()
        for other in self._beside(transfer):
            assert other.turn is not None
            other.turn.is_over |= transfer.right_to_its_blob(now_s) < other.right_to_its_blob(now_s)

    def _beside(self, transfer: PoolTransfer) -> list[PoolTransfer]:
        """The others that bring the same blob, or wait for it."""
        digest = transfer.turn.digest if transfer.turn is not None else ""
        return [
            other
            for other in self._all.values()
            if other is not transfer and other.turn is not None and other.turn.digest == digest
        ]

    def _alive(self, key: str) -> PoolTransfer | None:
        """Whom to join. Not what was cancelled and has not noticed yet: that brings nobody anything."""
        alive = (each for each in self._all.values() if each.key == key and not each.has_ended)
        return next((each for each in alive if each.control.cancelled is None), None)

    def _check_going(self) -> None:
        if self._is_stopping:
            raise InUse("the daemon is stopping: ask the next one")

    def _widen(
        self, transfer: PoolTransfer, uid: int, rate_bytes_per_s: int | None, *, is_ordinary: bool
    ) -> None:
        """One more wants it: nobody is bound by another's rate, and the service takes its own place."""
        before = transfer.limit.rate_bytes_per_s
        is_wider = before is not None and (rate_bytes_per_s is None or rate_bytes_per_s > before)
        if is_wider and not (transfer.is_rate_roots and is_ordinary):
            transfer.limit.set(rate_bytes_per_s)
        if transfer.is_ordinary and not is_ordinary and transfer.place_of is not None:
            transfer.place_of = self.places.taken_over(transfer.place_of, uid)
        transfer.is_ordinary = transfer.is_ordinary and is_ordinary

    def _release(self, transfer: PoolTransfer) -> None:
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
        self._charge()
        now_s = self._clock.now_s()
        standings = [_standing(each, now_s) for each in self._all.values() if not each.has_ended]
        waiting = [each for each in standings if each.is_ordinary and not each.is_held]
        users = sorted({uid for each in waiting for uid in each.users})
        choice = schedule.choose(
            standings, self._slots, most_of_user=self._bounds.slots_of_user, turns=self._turns.of(users)
        )
        self._in_turn_of = choice.in_turn_of
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

    def _charge(self) -> None:
        """Count the time that has passed to those in whose turn transfers ran."""
        now_s = self._clock.monotonic_s()
        for uid in self._in_turn_of.values():
            self._turns.charge(uid, now_s - self._charged_s)
        self._charged_s = now_s

    def _start(self, transfer: PoolTransfer) -> bool:
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
            transfer.error = InUse("this node has too many processes to begin a transfer: try again")
            self._note_end(transfer, FAILED)
            return False
        transfer.has_thread = True
        return True

    def _run(self, transfer: PoolTransfer) -> None:
        def on_progress(progress: FetchProgress) -> None:
            with self._changed:
                transfer.progress = progress
                transfer.changes += 1
                self._changed.notify_all()

        def on_sink(sink: Writer) -> None:
            transfer.sink = sink

        terms = TransferTerms(
            control=transfer.control,
            limits=(
                transfer.limit,
                self.limit,
                OfUsers(self.users_limit, lambda: transfer.is_ordinary, self._clock),
            ),
            on_progress=on_progress,
            on_sink=on_sink,
            expected_rate_bytes_per_s=transfer.expected_rate_bytes_per_s,
        )
        state = DONE
        try:
            transfer.image = transfer.work(transfer, terms)
        except Cancelled as error:
            state, transfer.error = CANCELLED, error
        except CacheError as error:
            state, transfer.error = FAILED, error
        except Exception as error:  # noqa: BLE001 - a thread's outermost loop
            culprit = transfer.begun_by if transfer.is_ordinary else None
            self._log.trace("transfer failed", traceback.format_exc(), culprit=culprit)
            state, transfer.error = FAILED, CacheError(f"the transfer failed ({type(error).__name__})")
        with self._changed:
            self._end(transfer, state)
            self._threads.pop(transfer.number, None)
        self._close_unused()

    def _end(self, transfer: PoolTransfer, state: str) -> None:
        self._note_end(transfer, state)
        self._schedule()
        self._changed.notify_all()

    def _note_end(self, transfer: PoolTransfer, state: str) -> None:
        self._to(transfer, state)
        transfer.ended_s = self._clock.now_s()
        self._unused += transfer.origins
        transfer.origins = []
        if transfer.place_of is not None:
            self.places.transfers.give(transfer.place_of)
            transfer.place_of = None
        uid, is_ordinary = transfer.begun_by, transfer.is_ordinary
        for number in self._remembered.note(uid, transfer.number, is_ordinary=is_ordinary):
            del self._all[number]

    def _close_unused(self) -> None:
        with self._changed:
            origins, self._unused = self._unused, []
        self.places.close(origins)

    def _to(self, transfer: PoolTransfer, state: str) -> None:
        transfer.state = schedule.checked_change(transfer.state, state)
        transfer.changes += 1


def _standing(transfer: PoolTransfer, now_s: int) -> ScheduledTransfer:
    deadline_s = transfer.deadline_s if transfer.is_ordinary else transfer.promised_s
    return ScheduledTransfer(
        transfer.number,
        transfer.state,
        deadline_s,
        transfer.is_held,
        transfer.is_ordinary,
        tuple(sorted(transfer.wanted_by)),
        is_late=deadline_s is not None and deadline_s <= now_s,
    )


def _hasten(transfer: PoolTransfer, deadline_s: int | None, *, is_ordinary: bool) -> None:
    if deadline_s is None:
        return
    transfer.deadline_s = min(deadline_s, transfer.deadline_s or deadline_s)
    if not is_ordinary:
        promised_s = transfer.promised_s
        transfer.promised_s = deadline_s if promised_s is None else min(deadline_s, promised_s)
