"""One stream into the sink, for as long as it is worth it.

A stream is left when it fails, when it is silent although its source has more (or no longer
answers), and when it is slow while somebody else would be faster. The last is found out by
trying; if it was not faster the trouble is our own, and we go back and expect less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.judge import BETTER_FACTOR, Judgement, Verdict, ahead_bytes, is_slow, judge
from cachemgr.fetch.pace import MINUTE_S, Pace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cachemgr.fetch.job import Job
    from cachemgr.fetch.ledger import Entry
    from cachemgr.fetch.ports import Stream

# The longest that a read blocks: so soon is a cancellation noticed.
POLL_S = 0.2
STATUS_S = 0.75
# A relay that is silent is asked why after a few of its usual pauses.
ASK_GAPS = 4
LEAST_ASK_S = 0.4
LONGEST_ASK_S = 2.0
# Others cannot be asked, and so they get more patience; the more if there is nobody else.
ORIGIN_GAPS = 16
LEAST_ORIGIN_S = 3.0
LONGEST_ORIGIN_S = 15.0
FIRST_BYTE_S = 10.0
ALONE_FACTOR = 4
# Whoever is nearer to the trouble is given this long to mend it, a step.
DEFER_S = 3.0
LONGEST_STARVATION_S = 120.0
JUDGE_S = 0.5
MOST_ASKED = 6


@dataclass(frozen=True)
class Ending:
    """Why a stream was left without a fault, and for whom."""

    target: Entry | None = None


class Pump:
    """Moves bytes from a stream to the sink of a job."""

    def __init__(self, job: Job, entry: Entry, stream: Stream) -> None:
        self._job = job
        self._entry = entry
        self._stream = stream
        self._pace = Pace()
        self._skip_bytes = job.sink.offset - stream.start_bytes
        self._ask_at_s = LEAST_ASK_S
        self._judge_at_s = 0.0
        self._deferred_s: float | None = None
        # Silent because it had nothing itself: that time says nothing about its speed.
        self._is_excused = False

    def run(self) -> Ending:
        """Until the image is complete or this stream is left. Raises what the stream and the sink raise."""
        job = self._job
        if self._skip_bytes < 0:
            raise SourceFault("it begins after the byte that was asked for", is_final=True)
        while job.sink.offset < job.sink.size_bytes:
            if job.is_interrupted():
                return Ending()
            if ending := self._step():
                return ending
        return Ending()

    def _step(self) -> Ending | None:
        job, clock = self._job, self._job.clock
        begin_s = clock.monotonic_s()
        count = self._stream.read_into(job.room(self._skip_bytes), POLL_S)
        self._pace.note(count or 0, clock.monotonic_s() - begin_s)
        self._refuse_trickle()
        if count is None:
            job.tell()
            return self._when_silent()
        if count == 0:
            raise SourceFault(f"it ended after {job.sink.offset} of {job.sink.size_bytes} bytes")
        if self._skip_bytes:
            self._skip(count)
        else:
            job.keep(self._entry, count)
        return self._when_slow()

    def _skip(self, count: int) -> None:
        self._skip_bytes -= count
        self._job.pass_over(count)

    def _refuse_trickle(self) -> None:
        """A source that sends a byte now and then is never silent, and never done either."""
        came_bytes, least = self._pace.last_minute_bytes, self._job.least_rate_bytes_per_s
        if came_bytes is None or self._entry.source.is_relay:
            # A relay sends what comes to it: who is to blame is found out further up.
            return
        self._pace.last_minute_bytes = None
        if came_bytes < least * MINUTE_S:
            raise SourceFault(
                f"it sent {came_bytes} bytes in {MINUTE_S:.0f} s, less than {least} bytes a second "
                "(least_rate)",
                is_final=True,
            )

    # Silence

    def _when_silent(self) -> Ending | None:
        if self._entry.source.is_relay:
            return self._ask_why()
        self._lose_patience()
        return None

    def _lose_patience(self) -> None:
        """The longer this stream's pauses are, the longer is it waited for."""
        pace = self._pace
        patience_s = min(LONGEST_ORIGIN_S, max(LEAST_ORIGIN_S, ORIGIN_GAPS * pace.longest_gap_s))
        if not pace.delivered_bytes:
            patience_s = FIRST_BYTE_S
        if self._job.other(self._entry) is None:
            patience_s *= ALONE_FACTOR
        if pace.quiet_s >= patience_s:
            raise SourceFault(f"it was silent for {pace.quiet_s:.1f} s")

    def _ask_why(self) -> Ending | None:
        """A silent relay: is it gone, is it stuck, or does it have nothing more itself?"""
        pace, offset = self._pace, self._job.sink.offset
        usual_s = min(LONGEST_ASK_S, max(LEAST_ASK_S, ASK_GAPS * pace.longest_gap_s))
        if pace.quiet_s < max(usual_s, self._ask_at_s):
            return None
        self._ask_at_s = pace.quiet_s + usual_s
        status = self._entry.source.status(STATUS_S)
        if status is None:
            raise SourceFault(f"it was silent for {pace.quiet_s:.1f} s and does not answer")
        if status.have_bytes > offset:
            if pace.quiet_s >= 3 * usual_s:
                raise SourceFault(f"it was silent for {pace.quiet_s:.1f} s, having {status.have_bytes} bytes")
            return None
        self._is_excused = True
        if pace.quiet_s >= LONGEST_STARVATION_S:
            raise SourceFault(f"it has received nothing for {pace.quiet_s:.0f} s itself")
        found = judge(offset, status.have_bytes, self._above(), 0)
        if found.verdict is Verdict.STAY or pace.quiet_s < DEFER_S * (1 + found.target):
            return None
        return self._leave(found)

    # Slowness

    def _when_slow(self) -> Ending | None:
        if not self._pace.delivered_bytes:
            return None
        self._ask_at_s = LEAST_ASK_S
        if self._is_excused:
            self._is_excused = False
            self._pace.forget()
        rate = self._pace.rate_bytes_per_s()
        now_s = self._job.clock.monotonic_s()
        if rate is None or now_s < self._judge_at_s:
            return None
        self._judge_at_s = now_s + JUDGE_S
        if self._job.trial is not None:
            return self._conclude(rate)
        if not is_slow(rate, self._job.expected(self._entry)):
            self._deferred_s = None
            return None
        found = self._find_fault()
        if found.verdict is Verdict.WAIT and self._deferred_s is None:
            self._deferred_s = now_s
        if found.verdict is Verdict.STAY:
            self._deferred_s = None
            return None
        if self._deferred_s is not None and now_s - self._deferred_s < DEFER_S * (1 + found.target):
            return None
        return self._leave(found, rate)

    def _find_fault(self) -> Judgement:
        if not self._entry.source.is_relay:
            return Judgement(Verdict.GO, 0, "it is slow")
        status = self._entry.source.status(STATUS_S)
        margin = ahead_bytes(self._job.expected(self._entry))
        have = None if status is None else status.have_bytes
        return judge(self._job.sink.offset, have, self._above(), margin)

    def _conclude(self, rate: float) -> Ending | None:
        """The end of a trial: stay with whom was tried, or go back and expect less."""
        job, trial = self._job, self._job.trial
        assert trial is not None
        job.trial = None
        if rate >= trial.rate_bytes_per_s * BETTER_FACTOR:
            job.ledger.left(trial.back, job.clock.monotonic_s())
            return None
        job.expect_at_most(max(rate, trial.rate_bytes_per_s))
        job.log.said(self._entry.source.name, "it is not faster either")
        return Ending(trial.back)

    # Others

    def _above(self) -> Iterator[int | None]:
        """What those further upstream have, asked one by one."""
        job = self._job
        for each in job.ledger.above(self._entry, job.clock.monotonic_s())[:MOST_ASKED]:
            if each.source.is_relay:
                status = each.source.status(STATUS_S)
                yield None if status is None else status.have_bytes
            else:
                yield job.sink.size_bytes

    def _leave(self, found: Judgement, rate: float | None = None) -> Ending | None:
        """Go to another source; for slowness only on trial."""
        job, now_s = self._job, self._job.clock.monotonic_s()
        above = job.ledger.above(self._entry, now_s)
        target = above[found.target] if found.target < len(above) else job.other(self._entry)
        if target is None:
            return None
        if rate is None:
            raise SourceFault(f"it was silent for {self._pace.quiet_s:.1f} s: {found.reason}")
        job.log.said(self._entry.source.name, f"{rate / 1e6:.2f} MB/s is slow: {found.reason}")
        job.begin_trial(self._entry, rate)
        return Ending(target)
