"""The one thread that owns the desk and its store: what waits for it is brought to it in turn.

The desk decides, the loop drives: it says what time it is, hands replies to whoever waits for
them and calls to the workers, and wakes the desk when something is due. After an error that the
desk did not expect nobody knows whether its memory agrees with its disk, so the desk is made anew
from the store, as after a crash.
"""

from __future__ import annotations

import gc
import itertools
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Protocol, TypeVar

from cachemgr.base.clock import Clock, SystemClock
from cachemgr.base.clock_offset import StoredOffset
from cachemgr.base.shares import Share
from cachemgr.base.steady import BACK, BELIEVED, DOUBT_S, DOUBTFUL, STEP_S, ClockChange, SteadyClock
from outrider.collector import collector_paused
from outrider.metadata.policies import Policies
from outrider.service.answers.reply import Answer, Trouble
from outrider.service.answers.site import Status
from outrider.service.daemon.log import TracingLog
from outrider.service.daemon.measures.gauges import show_status
from outrider.service.daemon.threads.inbox import Inbox
from outrider.service.daemon.world.lookpace import LookPace
from outrider.service.daemon.world.start_markers import NoStartMarkers, StartMarkers
from outrider.service.desk.desk import Event, Outcome
from outrider.service.meter import Meter
from outrider.service.ports import Call, Finished, Look, Result
from outrider.service.requests import Asked, Caller, EndSubmission, Request, ShowStatus, Ticked, Woken

TURN_S = 1.0
"""At least so often the loop shows that it lives, and looks whether it promises if it did not."""
STATUS_EVERY_S = 2.0
ADMINISTRATORS = 4
"""So many times as much of the desk's time as others may have, if it comes to that."""
LONGEST_PAUSE_S = 60.0
REOPEN_S = 5.0
"""At most so often a store whose disk fails is opened again."""

SERVICE = Caller(uid=0, user="root", is_admin=True)
_LOST = Trouble(
    code="unavailable",
    message="the service had to start again while it dealt with this: ask again, with the same "
    "Idempotency-Key if the request had one",
)
_DISPLACED = Trouble(
    code="busy",
    message="too many requests wait for the service, and most of them are yours: ask again in a moment",
)
_STOPPED = Trouble(code="busy", message="the service is stopping: ask again when it is back")


class DeskLike(Protocol):
    """What the loop needs of a desk."""

    def handle(self, event: Event, now_s: int) -> Outcome: ...

    def next_s(self) -> int | None: ...

    def set_policies(self, policies: Policies) -> None: ...

    def set_doubt(self, words: str) -> None: ...
    def shares(self) -> list[Share]: ...


D = TypeVar("D", bound=DeskLike)


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened(Generic[D]):
    """A desk over an open store, and how to close that."""

    desk: D
    close: Callable[[], None]
    is_broken: Callable[[], bool] = lambda: False
    """Whether the store has to be opened again to be of any use."""
    is_shared: bool = False
    """Whether it is a database of several heads, so that it or another head is back before long."""


Open = Callable[[], Opened[D]]
CarryOut = Callable[[Call, Callable[[Result], None]], None]
"""Carry a call out elsewhere; the result is handed over at most once, by any thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Waiting:
    """Something to be brought to the desk, since when it waits, and how."""

    at_s: float
    bring: Callable[[], None]
    drop: Callable[[], object]
    give_way: Callable[[], object] = lambda: None
    who: int | None = None
    """Whose request it is."""
    weight: int = 1
    """The time that it takes counts so much less for whose turn is next."""


class Loop(Generic[D]):
    """Owns the desk. All but `start` and `stop` may be called by any thread."""

    def __init__(
        self,
        open_desk: Open[D],
        carry_out: CarryOut,
        *,
        log: TracingLog,
        meter: Meter,
        clock: Clock | None = None,
        step_s: int = STEP_S,
        doubt_s: int = DOUBT_S,
        offset_store: StoredOffset | None = None,
        most_requests: int = 1_000,
        markers: StartMarkers | None = None,
    ) -> None:
        self._open_desk = open_desk
        self._carry_out = carry_out
        self._log = log
        self._meter = meter
        self._clock = SteadyClock(
            clock or SystemClock(),
            step_s=step_s,
            doubt_s=doubt_s,
            tell=self._note_clock,
            offset_store=offset_store,
        )
        self._markers = markers or NoStartMarkers()
        self._inbox: Inbox[_Waiting] = Inbox(most_requests)
        self._thread = threading.Thread(target=self._run, name="desk", daemon=True)
        self._is_open: Future[None] = Future()
        self._tickets = itertools.count(1)
        # All of the following belongs to the loop's thread; others only look at it.
        self._opened: Opened[D] | None = None
        self._generation = 0
        self._owed: dict[int, Future[Answer]] = {}
        self._now_s = 0
        self._beat_s = self._clock.monotonic_s()
        self._status: Status | None = None
        self._status_s = -STATUS_EVERY_S
        self._tick_again_s = 0.0
        self._pace = LookPace()
        self._reopen_s = 0.0
        self._bring_s = 0.0
        """When what is being dealt with was begun."""
        self._faults_in_a_row = 0
        self._is_clock_news = self._is_clock_believed = False
        self._failure: Exception | None = None

    def start(self) -> None:
        """Open the desk and begin. Raises what opening raised."""
        self._thread.start()
        self._is_open.result()

    def stop(self, within_s: float) -> bool:
        """Take nothing on any more, let the event in hand end, close the store. Whether it did in time."""
        for each in self._inbox.close():
            each.drop()
        if self._thread.is_alive():
            self._thread.join(within_s)
        return not self._thread.is_alive()

    def ask(self, caller: Caller, request: Request) -> Future[Answer]:
        """The answer, once the desk gave it. Raises Busy."""
        future: Future[Answer] = Future()
        ticket = next(self._tickets)
        displaced = self._inbox.put_request(
            _Waiting(
                at_s=self._clock.monotonic_s(),
                bring=partial(self._bring_request, ticket, caller, request, future),
                drop=partial(_answer, future, _STOPPED),
                give_way=partial(_answer, future, _DISPLACED),
                who=caller.uid,
                weight=ADMINISTRATORS if caller.is_admin else 1,
            ),
            caller.uid,
            is_privileged=caller.is_admin,
        )
        if displaced is not None:
            displaced.give_way()
        return future

    def wake(self) -> None:
        """There is a new job in the batch system, or is about to be: it is looked at soon, if not at once."""
        self._inbox.put_result(
            _Waiting(
                at_s=self._clock.monotonic_s(),
                bring=lambda: self._pace.want(self._clock.monotonic_s()),
                drop=_nothing,
            )
        )

    def set_policies(self, policies: Policies) -> Future[None]:
        """Let others be in force from the next request on. Raises Busy."""
        future: Future[None] = Future()
        displaced = self._inbox.put_request(
            _Waiting(
                at_s=self._clock.monotonic_s(),
                bring=partial(self._bring_policies, policies, future),
                drop=future.cancel,
            ),
            is_privileged=True,
        )
        if displaced is not None:
            displaced.give_way()
        return future

    def desk_shares(self) -> Future[list[Share]]:
        """What the desk knows of users' shares: before the requests that wait, since who fills that
        queue is what may be asked for."""
        future: Future[list[Share]] = Future()
        self._inbox.put_result(
            _Waiting(
                at_s=self._clock.monotonic_s(),
                bring=partial(self._bring_shares, future),
                drop=future.cancel,
            )
        )
        return future

    def shares(self) -> list[Share]:
        """Who has how many requests waiting."""
        return self._inbox.shares()

    def now_s(self) -> int:
        """The time as the desk has it."""
        return self._clock.now_s()

    @property
    def clock(self) -> SteadyClock:
        """What tells the time here, even if somebody sets the machine's clock."""
        return self._clock

    @property
    def beat_age_s(self) -> float:
        """How long ago the loop last turned."""
        return self._clock.monotonic_s() - self._beat_s

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive() and not self._inbox.is_closed

    @property
    def failure(self) -> Exception | None:
        """Why the loop ended by itself."""
        return self._failure

    @property
    def status(self) -> Status | None:
        """The desk's own account, a few seconds old at most; None before the first and after a fault."""
        return self._status

    def _run(self) -> None:
        try:
            self._open()
        except Exception as error:  # noqa: BLE001 - whoever started the loop is told, whatever it is
            self._is_open.set_exception(error)
            return
        self._is_open.set_result(None)
        try:
            while not self._inbox.is_closed:
                self._turn()
        except Exception as error:  # noqa: BLE001 - the outermost loop
            self._failure = error
            self._log.trace("the desk cannot be made again", traceback.format_exc())
        for each in self._inbox.close():
            each.drop()
        self._close(_STOPPED)

    def _open(self) -> None:
        with collector_paused():
            self._markers.clear()
            opened = self._open_desk()
            # What was loaded is millions of values that stay: to look for garbage among them would
            # hold up a request for a second now and then.
            gc.freeze()
        self._opened = opened
        self._generation += 1
        self._is_clock_news = True

    def _close(self, trouble: Trouble) -> None:
        """Give the store back; what the desk still owes is not coming."""
        owed, self._owed = self._owed, {}
        for future in owed.values():
            _answer(future, trouble)
        self._status = None
        opened, self._opened = self._opened, None
        if opened is not None:
            try:
                opened.close()
            except Exception:  # noqa: BLE001 - a store that fails while it is closed is opened with care
                self._log.trace("the store was not closed in good order", traceback.format_exc())

    def _turn(self) -> None:
        """One round: what is due first, then one of what waits."""
        self._beat_s = self._clock.monotonic_s()
        self._meter.set("outrider_inbox_requests", len(self._inbox))
        self._look_at_clock()
        if self._wait_s() <= 0:
            self._tick()
        if self._pace.wait_s(self._clock.monotonic_s()) == 0:
            self._pace.told(self._clock.monotonic_s())
            self._handle(Woken(), "woken")
        is_promising = self._status is not None and self._status.is_promising
        if self._beat_s - self._status_s >= (STATUS_EVERY_S if is_promising else TURN_S):
            self._look_at_status()
        look_s = self._pace.wait_s(self._clock.monotonic_s())
        waiting = self._inbox.take(
            min(TURN_S, max(0.0, self._wait_s()), TURN_S if look_s is None else look_s)
        )
        if waiting is not None:
            self._bring_s = self._clock.monotonic_s()
            self._meter.set("outrider_loop_lag_seconds", self._bring_s - waiting.at_s)
            waiting.bring()
            if waiting.who is not None:
                took_s = self._clock.monotonic_s() - self._bring_s
                self._inbox.charge(waiting.who, took_s / waiting.weight)
        if self._opened is not None and self._opened.is_broken():
            self._reopen()

    def _wait_s(self) -> float:
        """How long nothing is due."""
        due_s = self._desk.next_s()
        if due_s is None:
            return TURN_S
        return max(due_s - self._time_s(), self._tick_again_s - self._clock.monotonic_s())

    def _tick(self) -> None:
        generation = self._generation
        self._handle(Ticked(), "ticked")
        if generation == self._generation:
            self._faults_in_a_row = 0
            return
        # What is due now stays due: without a pause the same error would come back at once.
        self._faults_in_a_row += 1
        pause_s = min(LONGEST_PAUSE_S, 2.0**self._faults_in_a_row)
        self._tick_again_s = self._clock.monotonic_s() + pause_s

    def _look_at_status(self) -> None:
        self._status_s = self._beat_s
        future: Future[Answer] = Future()
        self._bring_request(next(self._tickets), SERVICE, ShowStatus(), future)
        if future.done():
            answer = future.result()
            self._status = answer if isinstance(answer, Status) else None
        if self._status is None:
            self._meter.set("outrider_ready", 0)
        else:
            show_status(self._status, self._meter)

    def _bring_request(self, ticket: int, caller: Caller, request: Request, future: Future[Answer]) -> None:
        # Who hung up while waiting wants nothing any more.
        if future.set_running_or_notify_cancel():
            self._owed[ticket] = future
            kind = type(request).__name__.lower()
            self._handle(Asked(ticket=ticket, caller=caller, request=request), kind)
            if isinstance(request, EndSubmission) and request.job:
                self._pace.want(self._clock.monotonic_s(), settle_s=0)

    def _bring_result(self, generation: int, call: Call, result: Result) -> None:
        if isinstance(call, Look):
            self._pace.ended(self._clock.monotonic_s())
        # The desk that asked may be gone; its successor has asked for itself.
        if generation == self._generation:
            self._handle(Finished(call=call, result=result), "finished")

    def _bring_policies(self, policies: Policies, future: Future[None]) -> None:
        if future.set_running_or_notify_cancel():
            self._desk.set_policies(policies)
            future.set_result(None)

    def _bring_shares(self, future: Future[list[Share]]) -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(self._desk.shares())
            except Exception:  # noqa: BLE001 - it changes nothing: what is promised does not depend on it
                self._log.trace("shares not counted", traceback.format_exc())
                future.set_result([])

    def _handle(self, event: Event, kind: str) -> None:
        began_s = self._clock.monotonic_s()
        try:
            outcome = self._desk.handle(event, self._time_s())
        except Exception:  # noqa: BLE001 - whatever it is, the promises on disk have to be kept
            self._log.trace(f"the desk failed at {kind}", traceback.format_exc())
            self._begin_again()
            return
        self._meter.observe("outrider_desk_seconds", self._clock.monotonic_s() - began_s, kind)
        self._markers.tell(outcome.begins)
        for reply in outcome.replies:
            if (future := self._owed.pop(reply.ticket, None)) is not None:
                _answer(future, self._passing(reply.answer))
        for call in outcome.calls:
            if isinstance(call, Look):
                self._pace.began(self._clock.monotonic_s())
            self._carry_out(call, partial(self._put_result, self._generation, call))

    def _passing(self, answer: Answer) -> Answer:
        """While a database is asked again, what cannot be done now can be before long, here or elsewhere."""
        opened = self._opened
        is_passing = opened is not None and opened.is_shared and opened.is_broken()
        if is_passing and isinstance(answer, Trouble) and answer.code == "unavailable":
            return replace(answer, code="busy")
        return answer

    def _put_result(self, generation: int, call: Call, result: Result) -> None:
        """By whichever thread carried the call out."""
        self._inbox.put_result(
            _Waiting(
                at_s=self._clock.monotonic_s(),
                bring=partial(self._bring_result, generation, call, result),
                drop=_nothing,
            )
        )

    def _begin_again(self, trouble: Trouble = _LOST) -> None:
        """A desk of what is on disk."""
        self._close(trouble)
        gc.unfreeze()
        self._open()
        self._meter.count("outrider_desk_restarts_total")
        self._log.warning("desk made again from the store", generation=self._generation)

    def _reopen(self) -> None:
        """See what a disk that failed has kept: nobody can say without opening the store again."""
        if self._beat_s >= self._reopen_s:
            self._reopen_s = self._beat_s + REOPEN_S
            self._log.error("the store's disk failed: it is opened again")
            is_shared = self._opened is not None and self._opened.is_shared
            self._begin_again(replace(_LOST, code="busy") if is_shared else _LOST)

    @property
    def _desk(self) -> D:
        assert self._opened is not None
        return self._opened.desk

    def _time_s(self) -> int:
        """The time, of which the desk knows whether it is in doubt. It never goes back for the same desk."""
        now_s = self._clock.now_s()
        if self._is_clock_news:
            self._is_clock_news = False
            self._status_s = -STATUS_EVERY_S
            self._desk.set_doubt(self._clock.doubt)
        if not self._is_clock_believed:
            self._now_s = max(self._now_s, now_s)
        return self._now_s

    def _look_at_clock(self) -> None:
        """A clock that was set and is believed now has its time begin with a desk of what is on the disk:
        for the one that is there time cannot go back, and all that it remembers is of another time."""
        if self._clock.is_doubtful:
            self._is_clock_news = True
        if self._is_clock_believed:
            self._is_clock_believed, self._now_s = False, 0
            self._begin_again()

    def _note_clock(self, change: ClockChange) -> None:
        """By whichever thread found it."""
        say = self._log.info if change.kind == BACK else self._log.warning
        say(f"clock is {change.kind}", words=change.words)
        self._meter.set("outrider_clock_doubtful", int(change.kind == DOUBTFUL))
        if change.kind == BELIEVED:
            self._is_clock_believed = True
        self._is_clock_news = True


def _answer(future: Future[Answer], answer: Answer) -> None:
    """Tell whoever waits, unless they went away."""
    with suppress(InvalidStateError):
        future.set_result(answer)


def _nothing() -> None:
    pass
