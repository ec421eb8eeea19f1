"""What a transfer and its pumps share: the sink, the limits, the books, and what speed is expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachemgr.fetch.pace import Odometer
from cachemgr.fetch.report import FetchProgress
from cachemgr.fetch.sources.inquiry import Beside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cachemgr.base.clock import Clock
    from cachemgr.base.rate import RateLimit
    from cachemgr.fetch.control import Control
    from cachemgr.fetch.ledger import Ledger, SourceRecord
    from cachemgr.fetch.ports import Sink
    from cachemgr.fetch.report import FetchLog
    from cachemgr.fetch.sources.inquiry import Asker

ROOM_BYTES = 256 * 1024
TELL_S = 0.5
LEARN_S = 2.0


@dataclass(frozen=True)
class Trial:
    """Somebody else is being tried: whom to go back to, and how fast that one was."""

    back: SourceRecord
    rate_bytes_per_s: float
    # The one that is tried is nearer in the plan than the one left for it: so long may it take to catch up.
    patience_s: float | None = None


@dataclass(eq=False)
class Job:
    """One transfer's surroundings."""

    sink: Sink
    ledger: Ledger
    log: FetchLog
    limits: Sequence[RateLimit]
    control: Control
    clock: Clock
    planned_rate_bytes_per_s: int | None
    on_progress: Callable[[FetchProgress], None] | None
    least_rate_bytes_per_s: int = 0
    ask: Asker = Beside
    trial: Trial | None = None

    def __post_init__(self) -> None:
        self._learned_rate: float | None = None
        self._most_rate: float | None = None
        self._learn_at_s = self.clock.monotonic_s() + LEARN_S
        self._known: dict[str, tuple[float, int]] = {}
        self._source = ""
        self._odometer = Odometer()
        self._tell_at_s = self.clock.monotonic_s()
        self._buffer = memoryview(bytearray(ROOM_BYTES))

    def is_interrupted(self) -> bool:
        """Whether somebody wants the transfer to stop, for now or for good."""
        deadline_s = self.control.deadline_s
        is_late = deadline_s is not None and self.clock.now_s() >= deadline_s
        return self.control.is_paused or self.control.cancelled is not None or is_late

    def room(self, skip_bytes: int) -> memoryview:
        """Where the next bytes go: no more than are missing, or than the limits let through at once."""
        most = skip_bytes or self.sink.size_bytes - self.sink.offset
        for limit in self.limits:
            most = min(most, limit.step_bytes(ROOM_BYTES))
        return self._buffer[:most]

    def keep(self, entry: SourceRecord, count: int) -> None:
        """Hand to the sink what was read."""
        self._take(count)
        offset = self.sink.offset
        self.sink.write(self._buffer[:count])
        self.log.delivered(entry.source.name, offset, offset + count)
        self.ledger.delivered(entry, count)
        self.tell(entry.source.name)

    def pass_over(self, count: int) -> None:
        """Throw away what is here already."""
        self._take(count)
        self.log.skipped_bytes += count

    def _take(self, count: int) -> None:
        for limit in self.limits:
            limit.take(count, self.is_interrupted)

    def tell(self, source: str = "") -> None:
        """Report progress, now and then and at the end; also that there is none, from whoever was last."""
        self._source = source or self._source
        now_s, offset = self.clock.monotonic_s(), self.sink.offset
        if now_s < self._tell_at_s and offset < self.sink.size_bytes:
            return
        self._tell_at_s = now_s + TELL_S
        self._odometer.note(now_s, offset)
        if self.on_progress is None:
            return
        rate = self._odometer.rate_bytes_per_s()
        left = self.sink.size_bytes - offset
        finish_s = self.clock.now_s() + -(-left // rate) if rate else None
        self.on_progress(FetchProgress(offset, self.sink.size_bytes, rate, finish_s, self._source))

    def other(self, entry: SourceRecord) -> SourceRecord | None:
        return self.ledger.other(entry, self.clock.monotonic_s())

    def begin_trial(self, back: SourceRecord, rate: float, *, homeward_s: float | None = None) -> None:
        self.trial = Trial(back, rate, homeward_s)

    def expect_at_most(self, rate: float) -> None:
        """Nobody is faster than this, so it is no reason to leave anybody."""
        self._most_rate = rate if self._most_rate is None else min(rate, self._most_rate)

    def expected(self, entry: SourceRecord) -> float | None:
        """The rate that a good source would have: planned or learned, and no more than is allowed."""
        planned = self.planned_rate_bytes_per_s
        if planned is None:
            self._learn(entry)
        rate = self._learned_rate if planned is None else float(planned)
        if rate is None:
            return None
        caps = [limit.rate_bytes_per_s for limit in self.limits]
        return min([rate, *(cap for cap in (*caps, self._most_rate) if cap is not None)])

    def _learn(self, entry: SourceRecord) -> None:
        """Without a plan: what this relay and the one above it receive is what can be had."""
        now_s = self.clock.monotonic_s()
        if now_s < self._learn_at_s:
            return
        self._learn_at_s = now_s + LEARN_S
        growths = []
        for each in [entry, *self.ledger.above(entry, now_s)[:1]]:
            status = each.source.status(LEARN_S / 4) if each.source.is_relay else None
            before = self._known.pop(each.source.name, None)
            if status is None:
                continue
            at_s = self.clock.monotonic_s()
            if before is not None and at_s > before[0]:
                growths.append((status.have_bytes - before[1]) / (at_s - before[0]))
            # What is complete does not grow any more, which says nothing about a rate.
            if status.have_bytes < status.size_bytes:
                self._known[each.source.name] = (at_s, status.have_bytes)
        self._learned_rate = max(growths, default=self._learned_rate)
