"""The service as its process runs it: born, killed, born again from what is on the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from cachemgr.base.steady import Reckoning
from outrider.metadata.policies import Policies
from outrider.service.answers.reply import Replied
from outrider.service.desk.desk import Desk, Event
from outrider.service.ports import Finished
from outrider.service.requests import Asked, Ticked
from outrider.service.settings import Settings
from outrider.store.errors import StoreError
from tests.simulation.dst.clockwork import Clockwork, Trace, Violation
from tests.simulation.dst.disks import Died, DiskFault, FailingStore
from tests.simulation.dst.knobs import Knobs
from tests.simulation.dst.wire import Wire

REBIRTH_MS = 4_000
MOST_TICKS_A_SECOND = 300
MOST_SLICES = 200
LONGEST_SLEEP_MS = 3_600_000
DISK_FAULTS = (
    DiskFault.FULL_BEFORE,
    DiskFault.FULL,
    DiskFault.READ_ONLY,
    DiskFault.FAILED_BEFORE,
    DiskFault.FAILED_AFTER,
)
DEATHS = (DiskFault.DIED_BEFORE, DiskFault.DIED_AFTER)

MakeDesk = Callable[[FailingStore, Settings, Policies, int, "Notes"], Desk]


class Notes:
    """The service's log and meter: what it says goes into the trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.store_troubles = 0

    def debug(self, event: str, **fields: object) -> None:
        self.info(event, **fields)

    def info(self, event: str, **fields: object) -> None:
        self._trace.note(f"  {event} " + " ".join(f"{name}={value}" for name, value in fields.items()))

    def warning(self, event: str, **fields: object) -> None:
        self.info(event, **fields)

    def error(self, event: str, **fields: object) -> None:
        if event.startswith("store cannot"):
            self.store_troubles += 1
        self.info(event, **fields)

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        pass

    def set(self, name: str, value: float, *labels: str) -> None:
        pass

    def observe(self, name: str, value: float, *labels: str) -> None:
        pass


def make_desk(store: FailingStore, settings: Settings, policies: Policies, now_s: int, notes: Notes) -> Desk:
    return Desk(store, settings, policies, now_s, log=notes, meter=notes)


class Office:
    """Drives the desk: hands it events, carries away what it answers and asks for."""

    def __init__(
        self,
        clock: Clockwork,
        trace: Trace,
        random: Random,
        knobs: Knobs,
        policies: Policies,
        path: Path,
        wire: Wire,
        make: MakeDesk,
    ) -> None:
        self._clock = clock
        self._trace = trace
        self._random = random
        self._knobs = knobs
        self._policies = policies
        self._path = path
        self._wire = wire
        self._make = make
        self.notes = Notes(trace)
        self.skew_s = 0
        self.jump_s = 0
        """By how much the clock is off for a while, beside what it was set by for good."""
        self._time = Reckoning(clock.now_s(), 0.0)
        self._steps = 0
        self.is_calm = False
        self.generation = 0
        self.died_s = self.born_s = 0
        """When it died last, and when it was born."""
        self.desk: Desk | None = None
        self.store: FailingStore | None = None
        self.replied: Callable[[Replied], None] = lambda _: None
        """Called when a reply leaves; it may still be lost on its way."""
        self.was_away: Callable[[int], None] = lambda _: None
        """Called when it is back, with the seconds for which it was not there."""
        self.handled: Callable[[], None] = lambda: None
        """Called after each event."""
        self.planned_troubles = 0
        self.died = 0
        self._disk_until_ms = 0
        self._disk_fault: DiskFault | None = None
        self._tick_ms: int | None = None
        self._ticks: tuple[int, int] = (0, 0)

    def now_s(self) -> int:
        """What the service takes for the time."""
        clock = self._clock
        self._time.look(clock.now_s() + self.skew_s + self.jump_s, clock.now_ms / 1000)
        return self._time.now_s

    def open(self, *, is_new: bool = False) -> None:
        """Start the service."""
        if self.desk is not None:
            return
        self.generation += 1
        self.born_s = self.now_s()
        self._trace.note(f"service is born ({self.generation})")
        if self.died:
            self.was_away(self.born_s - self.died_s)
        self.store = FailingStore.at(self._path, self.now_s(), self._fate, is_new=is_new)
        try:
            self.desk = self._make(self.store, self._knobs.settings, self._policies, self.now_s(), self.notes)
        except Died:
            self.kill("while it was born")
            return
        self._after_event()

    def kill(self, words: str) -> None:
        """kill -9, and the system starts it again."""
        self._trace.note(f"service dies {words}")
        self.died += 1
        self.died_s = self.now_s()
        self.desk = None
        self._tick_ms = None
        if self.store is not None:
            self.store.close()
            self.store = None
        longest_ms = 0 if self.is_calm else self._knobs.longest_outage_s * 1000
        self._clock.after(self._random.randint(REBIRTH_MS, max(REBIRTH_MS, longest_ms)), self.open)

    def _begin_anew(self) -> None:
        """The clock is believed again: another desk, by its time. Whoever has asked just now asks again."""
        self._trace.note("the time is another: another desk")
        if self.store is not None:
            self.store.close()
        self.desk = self.store = None
        self._tick_ms = None
        self.open()

    def close(self) -> None:
        self.desk = None
        if self.store is not None:
            self.store.close()
            self.store = None

    def ask(self, asked: Asked) -> bool:
        """A request comes in; False if nobody is there."""
        if self.desk is None:
            return False
        self.handle(asked, f"asked {asked.ticket} {type(asked.request).__name__} by {asked.caller.user}")
        return True

    def handle(self, event: Event, words: str) -> None:
        desk = self.desk
        if desk is None:
            return
        self._trace.note(words)
        if not self.is_calm and self._random.random() < self._knobs.deaths / 4:
            self.kill("before an event")
            return
        now_s = self.now_s()
        if self._time.steps != self._steps:
            self._steps = self._time.steps
            self._begin_anew()
            return
        desk.set_doubt("the clock was set" if self._time.is_doubtful else "")
        before = self.notes.store_troubles
        self._fault_met = self.store is not None and self.store.is_failed
        try:
            outcome = desk.handle(event, now_s)
        except Died:
            self.kill("in the middle of a transaction")
            return
        except StoreError as error:
            raise Violation(f"the desk does not deal with {type(error).__name__}: {error}") from error
        if self.notes.store_troubles > before and not self._fault_met:
            raise Violation(f"the store refuses what the service wants: {self._trace.lines[-1]}")
        for reply in outcome.replies:
            self._trace.note(f"  replies {reply.ticket} {_brief(reply)}")
            self.replied(reply)
        generation = self.generation
        for call in outcome.calls:
            self._wire.send(call, lambda finished, born=generation: self._finished(finished, born))  # type: ignore[misc]
        if self.store is not None and self.store.is_failed:
            self._clock.after(2000, lambda: self._restart(generation))
        self._after_event()

    def go_on_until(self, is_over: Callable[[], bool]) -> None:
        """What is done in slices is done with nothing in between."""
        for _ in range(MOST_SLICES):
            next_s = None if self.desk is None else self.desk.next_s()
            if is_over() or next_s is None or next_s > self.now_s():
                return
            self.handle(Ticked(), "tick in a row")

    def _restart(self, generation: int) -> None:
        """An administrator reads that the disk failed."""
        if self.generation == generation and self.desk is not None:
            self.kill("to see what is on the disk")

    def _finished(self, finished: Finished, born: int) -> None:
        if self.desk is not None and self.generation == born:
            result = type(finished.result).__name__
            self.handle(finished, f"finished {_call(finished)} {result}")

    def _after_event(self) -> None:
        self.handled()
        self._plan_tick()

    def _plan_tick(self) -> None:
        desk = self.desk
        next_s = None if desk is None else desk.next_s()
        if next_s is None:
            return
        at_ms = self._clock.now_ms + min(LONGEST_SLEEP_MS, max(1, self._wait_ms(next_s)))
        if self._tick_ms is None or at_ms < self._tick_ms:
            self._tick_ms = at_ms
            self._clock.after(at_ms - self._clock.now_ms, lambda: self._tick(at_ms), order=4)

    def _wait_ms(self, next_s: int) -> int:
        return (next_s - self.now_s()) * 1000 - self._clock.now_ms % 1000

    def _tick(self, at_ms: int) -> None:
        if self._tick_ms != at_ms or self.desk is None:
            return
        self._tick_ms = None
        second, count = self._ticks
        now_s = self._clock.now_s()
        self._ticks = (now_s, count + 1 if second == now_s else 1)
        if self._ticks[1] > MOST_TICKS_A_SECOND:
            raise Violation(f"the service wants to be woken all the time: {self.desk.next_s()}")
        self.handle(Ticked(), "tick")

    def step_clock(self, seconds: int) -> None:
        """Somebody sets the service's clock."""
        self.skew_s += seconds
        self._trace.note(f"clock steps by {seconds}")
        self._tick_ms = None
        self._plan_tick()

    def jump_clock(self, seconds: int) -> None:
        """The service's clock is off by so much, until it is set right again."""
        self.jump_s = seconds
        self._trace.note(f"clock jumps by {seconds}" if seconds else "clock is right again")
        self._tick_ms = None
        self._plan_tick()

    def _fate(self) -> DiskFault | None:
        """What becomes of a transaction. A disk that is full stays so for a while."""
        if self.is_calm:
            return None
        if self._clock.now_ms < self._disk_until_ms:
            self._fault_met = True
            return self._disk_fault
        chance = self._random.random()
        if chance < self._knobs.store_faults:
            self._fault_met = True
            fault = self._random.choice(DISK_FAULTS)
            self._trace.note(f"disk: {fault.value}")
            if fault in (DiskFault.FULL, DiskFault.READ_ONLY, DiskFault.FULL_BEFORE):
                self._disk_fault = fault
                self._disk_until_ms = self._clock.now_ms + self._random.randrange(20_000)
            return fault
        if chance > 1 - self._knobs.deaths:
            return self._random.choice(DEATHS)
        return None


def _brief(reply: Replied) -> str:
    return str(reply.answer)[:400]


def _call(finished: Finished) -> str:
    return str(finished.call)[:200]
