"""One stream into the sink, for as long as it is worth it.

A stream is left when it fails, when it is silent although its source has more (or no longer
answers), and when it is slow while somebody else would be faster. The last is found out by
trying; if it was not faster the trouble is our own, and we go back and expect less.

Whoever left a relay for one further up makes that one send everything twice, if the relay was
only busy: so a stream that is slow away from the planned source goes back there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.judge import (
    BETTER_FACTOR,
    DETOUR_SHARE,
    HOME_FACTOR,
    Judgement,
    SourceVerdict,
    ahead_bytes,
    is_slow,
)
from cachemgr.fetch.pace import MINUTE_S, Pace
from cachemgr.fetch.sources.inquiry import STATUS_S, SourceInquiry

if TYPE_CHECKING:
    from cachemgr.fetch.job import Job
    from cachemgr.fetch.ledger import SourceRecord
    from cachemgr.fetch.ports import Stream
    from cachemgr.fetch.sources.inquiry import InquiryAnswer, Question

# The longest that a read blocks: so soon is a cancellation noticed.
POLL_S = 0.2
# While others are being asked, their answers are looked for so often.
ASKING_POLL_S = 0.05
# A read that lasts longer than it may by this much says something about us, and nothing about the source.
STANDSTILL_S = 0.2
# A relay that is silent is asked why after a few of its usual pauses.
ASK_GAPS = 4
LEAST_ASK_S = 0.4
LONGEST_ASK_S = 2.0
# Asking costs little: how soon one that is gone is noticed must not depend on how busy this machine is.
SURELY_ASK_S = 0.6
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
# A planned source that lags behind is gone back to if it catches up, once it is alone, sooner than what is
# missing would come at half of the rate.
LONGEST_LAG_S = 20.0
LAG_SHARE = 0.5


@dataclass(frozen=True)
class Ending:
    """Why a stream was left without a fault, and for whom."""

    target: SourceRecord | None = None
    reason: str = ""


class Pump:
    """Moves bytes from a stream to the sink of a job."""

    def __init__(self, job: Job, entry: SourceRecord, stream: Stream) -> None:
        self._job = job
        self._entry = entry
        self._stream = stream
        self._pace = Pace()
        self._skip_bytes = job.sink.offset - stream.start_bytes
        self._ask_at_s = LEAST_ASK_S
        self._judge_at_s = 0.0
        self._deferred_s: float | None = None
        self._inquiry: SourceInquiry | None = None
        self._is_about_silence = False
        self._home: tuple[SourceRecord, Question] | None = None
        # Silent because it had nothing itself: that time says nothing about its speed.
        self._is_excused = False

    def run(self) -> Ending:
        """Until the image is complete or this stream is left. Raises what the stream and the sink raise."""
        job = self._job
        if self._skip_bytes < 0:
            raise SourceFault("it begins after the byte that was asked for", is_final=True)
        while job.sink.offset < job.sink.size_bytes:
            if job.is_interrupted():
                return Ending(reason="interrupted")
            if ending := self._step():
                return ending
        return Ending()

    def _step(self) -> Ending | None:
        job, clock = self._job, self._job.clock
        begin_s = clock.monotonic_s()
        most_s = POLL_S if self._inquiry is None else ASKING_POLL_S
        count = self._stream.read_into(job.room(self._skip_bytes), most_s)
        took_s = clock.monotonic_s() - begin_s
        if took_s > most_s + STANDSTILL_S:
            # This process had no processor. Others would be left for it, and each of them for the next one.
            self._pace.stood_still(count or 0, most_s)
        else:
            self._pace.note(count or 0, took_s)
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
        if not self._is_about_silence:
            # What was asked while it was slow is another question.
            self._inquiry = None
        if self._inquiry is None:
            if pace.quiet_s < max(min(usual_s, SURELY_ASK_S), self._ask_at_s):
                return None
            self._inquire(0)
            self._is_about_silence = True
        found = self._found()
        if found is None:
            return None
        self._ask_at_s = pace.quiet_s + usual_s
        if found.have is None:
            raise SourceFault(f"it was silent for {pace.quiet_s:.1f} s and does not answer")
        if found.have > offset:
            if pace.quiet_s >= 3 * usual_s:
                raise SourceFault(f"it was silent for {pace.quiet_s:.1f} s, having {found.have} bytes")
            return None
        self._is_excused = True
        if pace.quiet_s >= LONGEST_STARVATION_S:
            raise SourceFault(f"it has received nothing for {pace.quiet_s:.0f} s itself")
        judgement = found.judgement
        patience_s = DEFER_S * (1 + judgement.target)
        if self._job.trial is not None:
            patience_s += self._job.trial.patience_s or 0.0
        if judgement.verdict is SourceVerdict.STAY or pace.quiet_s < patience_s:
            return None
        return self._leave(judgement)

    # Slowness

    def _when_slow(self) -> Ending | None:
        if not self._pace.delivered_bytes:
            return None
        self._ask_at_s = LEAST_ASK_S
        if self._is_about_silence:
            # The bytes came before those further up had all answered.
            self._is_excused |= self._inquiry is not None and self._inquiry.is_starving()
            self._inquiry, self._is_about_silence = None, False
        if self._is_excused:
            self._is_excused = False
            self._pace.forget()
        rate = self._pace.rate_bytes_per_s()
        if rate is None:
            return None
        if self._job.trial is not None:
            return self._conclude(rate) if self._is_time() else None
        expected = self._job.expected(self._entry)
        if is_slow(rate, expected, DETOUR_SHARE) and (ending := self._go_home(rate, expected)):
            return ending
        if not is_slow(rate, expected):
            self._deferred_s = None
            return None
        if self._inquiry is None:
            if not self._is_time():
                return None
            if not self._entry.source.is_relay:
                return self._leave(Judgement(SourceVerdict.GO, 0, "it is slow"), rate)
            self._inquire(ahead_bytes(expected))
        found = self._found()
        return None if found is None else self._weigh(found.judgement, rate)

    def _is_time(self) -> bool:
        """Whether it is time for the next judgement."""
        now_s = self._job.clock.monotonic_s()
        if now_s < self._judge_at_s:
            return False
        self._judge_at_s = now_s + JUDGE_S
        return True

    def _weigh(self, found: Judgement, rate: float) -> Ending | None:
        """Leave a slow source, unless whoever is nearer to the trouble has yet to mend it."""
        now_s = self._job.clock.monotonic_s()
        if found.verdict is SourceVerdict.WAIT and self._deferred_s is None:
            self._deferred_s = now_s
        if found.verdict is SourceVerdict.STAY:
            self._deferred_s = None
            return None
        if self._deferred_s is not None and now_s - self._deferred_s < DEFER_S * (1 + found.target):
            return None
        return self._leave(found, rate)

    def _conclude(self, rate: float) -> Ending | None:
        """The end of a trial: stay with whom was tried, or go back and expect less."""
        job, trial = self._job, self._job.trial
        assert trial is not None
        job.trial = None
        now_s = job.clock.monotonic_s()
        if trial.patience_s is not None:
            if rate >= trial.rate_bytes_per_s * HOME_FACTOR:
                return None
            job.ledger.left(self._entry, now_s)
            return Ending(trial.back, "the planned source is slower still")
        if rate >= trial.rate_bytes_per_s * BETTER_FACTOR:
            job.ledger.left(trial.back, now_s)
            return None
        job.expect_at_most(max(rate, trial.rate_bytes_per_s))
        job.log.said(self._entry.source.name, "it is not faster either")
        return Ending(trial.back, "it is not faster either")

    # The way back

    def _go_home(self, rate: float, expected: float | None) -> Ending | None:
        """Slow away from the planned source: back to it, if it can give what is wanted next."""
        job, now_s = self._job, self._job.clock.monotonic_s()
        if self._home is None:
            nearer = job.ledger.nearer(self._entry, now_s)
            if nearer is not None:
                self._home = nearer, job.ask(nearer.source, STATUS_S)
            return None
        home, question = self._home
        if not question.is_answered():
            return None
        self._home, status = None, question.status()
        lag = job.sink.size_bytes if status is None else max(0, job.sink.offset - status.have_bytes)
        lag_s = lag / expected if expected else LONGEST_LAG_S
        if lag > (job.sink.size_bytes - job.sink.offset) * LAG_SHARE or lag_s > LONGEST_LAG_S:
            job.ledger.left(home, now_s)
            return None
        job.begin_trial(self._entry, rate, homeward_s=lag_s)
        return Ending(home, f"{rate / 1e6:.2f} MB/s is slow, and {home.source.name} is there again")

    # Others

    def _inquire(self, margin_bytes: int) -> None:
        job, now_s = self._job, self._job.clock.monotonic_s()
        self._inquiry = SourceInquiry(
            job.ask,
            self._entry.source,
            [each.source for each in job.ledger.above(self._entry, now_s)[:MOST_ASKED]],
            offset=job.sink.offset,
            size_bytes=job.sink.size_bytes,
            margin_bytes=margin_bytes,
        )

    def _found(self) -> InquiryAnswer | None:
        """What the inquiry has found, which ends it."""
        found = None if self._inquiry is None else self._inquiry.poll()
        if found is not None:
            self._inquiry = None
        return found

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
        return Ending(target, f"{rate / 1e6:.2f} MB/s is slow: {found.reason}")
