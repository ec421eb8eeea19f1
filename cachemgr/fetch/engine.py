"""A transfer: from the first source that can to the sink, going on elsewhere when one fails.

Sources come in the order of preference, the planned upstream first and the origin last. The
engine promises to go on at the sink's offset, never to ask a bad source again and again, and
to end: every source has a bounded number of failures, every wait a bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachemgr.base.errors import Cancelled
from cachemgr.fetch.control import Control
from cachemgr.fetch.faults import DeadlinePassed, SourceFault, TransferFailed
from cachemgr.fetch.job import Job
from cachemgr.fetch.ledger import Ledger
from cachemgr.fetch.pump import Pump
from cachemgr.fetch.report import Attempt, FetchLog
from cachemgr.fetch.sources.inquiry import Beside

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from random import Random

    from cachemgr.base.clock import Clock
    from cachemgr.base.rate import RateLimit
    from cachemgr.fetch.ledger import SourceRecord
    from cachemgr.fetch.ports import Sink, Source
    from cachemgr.fetch.report import FetchProgress, Report
    from cachemgr.fetch.sources.inquiry import Asker

OPEN_RELAY_S = 3.0
OPEN_S = 15.0
LEAST_OPEN_S = 0.2
SLICE_S = 0.05
# Nodes of a chain begin at about the same time; so long is one waited for that has not begun.
EARLY_S = 5.0


def transfer(
    sink: Sink,
    sources: Sequence[Source],
    *,
    clock: Clock,
    random: Random,
    limits: Sequence[RateLimit] = (),
    control: Control | None = None,
    expected_rate_bytes_per_s: int | None = None,
    on_progress: Callable[[FetchProgress], None] | None = None,
    excluding: Collection[str] = (),
    early_s: float = EARLY_S,
    least_rate_bytes_per_s: int = 0,
    ask: Asker = Beside,
) -> Report:
    """Fill the sink, and say which source delivered what.

    Raises `Cancelled`, `DeadlinePassed`, `TransferFailed` (with what each source said), and
    whatever the sink raises. What the sink has by then stays there: calling again goes on.
    `excluding` names sources not to be used, for instance those of a report whose bytes turned
    out to be wrong. A source, other than a relay, that sends less than the least rate for a minute
    is not asked again.
    """
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise ValueError(f"two sources have one name, so a report could not tell them apart: {names}")
    useful = [source for source in sources if source.name not in excluding]
    log = FetchLog()
    ledger = Ledger(useful, random, early_s, clock.monotonic_s())
    job = Job(
        sink=sink,
        ledger=ledger,
        log=log,
        limits=limits,
        control=control or Control(),
        clock=clock,
        planned_rate_bytes_per_s=expected_rate_bytes_per_s,
        on_progress=on_progress,
        least_rate_bytes_per_s=least_rate_bytes_per_s,
        ask=ask,
    )
    return _Transfer(job).carry_out()


class _Transfer:
    """The loop that decides who is next."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._begin_s = job.clock.monotonic_s()

    def carry_out(self) -> Report:
        job, target = self._job, None
        while job.sink.offset < job.sink.size_bytes:
            self._obey()
            entry = target or job.ledger.choose(job.clock.monotonic_s())
            if entry is None:
                self._wait()
                target = None
            else:
                target = self._use(entry)
        return self._report()

    def _use(self, entry: SourceRecord) -> SourceRecord | None:
        """One stream of this source; gives whom to ask next, if that is decided."""
        job = self._job
        offset, begin_s = job.sink.offset, job.clock.monotonic_s()
        try:
            stream = entry.source.open(offset, job.sink.size_bytes, self._patience_s(entry))
            try:
                ending = Pump(job, entry, stream).run()
            finally:
                stream.close()
        except SourceFault as fault:
            job.trial = None
            job.log.said(entry.source.name, str(fault))
            job.ledger.failed(entry, fault, job.clock.monotonic_s())
            self._attempted(entry, offset, begin_s, str(fault))
            return None
        self._attempted(entry, offset, begin_s, ending.reason)
        if ending.target is None:
            # Complete or interrupted: after a pause nothing is compared with what was before.
            job.trial = None
        return ending.target

    def _attempted(self, entry: SourceRecord, offset: int, begin_s: float, reason: str) -> None:
        job = self._job
        since_s, until_s = begin_s - self._begin_s, job.clock.monotonic_s() - self._begin_s
        job.log.attempted(
            Attempt(entry.source.name, since_s, until_s, offset, job.sink.offset, reason or "complete")
        )

    def _patience_s(self, entry: SourceRecord) -> float:
        """How long a source may take to answer: never beyond the deadline."""
        most_s = OPEN_RELAY_S if entry.source.is_relay else OPEN_S
        deadline_s = self._job.control.deadline_s
        if deadline_s is None:
            return most_s
        return max(LEAST_OPEN_S, min(most_s, deadline_s - self._job.clock.now_s()))

    def _wait(self) -> None:
        """Nobody may be asked now: wait a little, or give up if that will not change."""
        job = self._job
        if job.ledger.is_hopeless():
            complaints = job.log.complaints() or "there is none to be asked"
            raise TransferFailed(
                f"no source could deliver the image: {self._standing()}; {complaints}", self._report()
            )
        wait_s = job.ledger.next_s() - job.clock.monotonic_s()
        job.tell()
        job.clock.sleep(min(max(wait_s, 0.001), SLICE_S))

    def _obey(self) -> None:
        """Stop if that is wanted; sit out a pause."""
        job, control = self._job, self._job.control
        while True:
            if control.cancelled is not None:
                raise Cancelled(f"the transfer was cancelled, {self._standing()}: {control.cancelled}")
            if control.deadline_s is not None and job.clock.now_s() >= control.deadline_s:
                complaints = job.log.complaints()
                raise DeadlinePassed(
                    f"the image did not arrive by its deadline: {self._standing()}"
                    + (f"; {complaints}" if complaints else ""),
                    self._report(),
                )
            if not control.is_paused:
                return
            job.tell()
            job.clock.sleep(SLICE_S)

    def _standing(self) -> str:
        sink = self._job.sink
        return f"{sink.offset} of {sink.size_bytes} bytes are here"

    def _report(self) -> Report:
        return self._job.log.report(self._job.clock.monotonic_s() - self._begin_s)
