"""What is known of each source of a transfer, and which one is next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from cachemgr.fetch.faults import SourceFault
    from cachemgr.fetch.ports import Source

FIRST_AVOIDANCE_S = 0.5
LONGEST_AVOIDANCE_S = 60.0
EARLY_RETRY_S = 0.05
LONGEST_EARLY_RETRY_S = 0.5
MOST_FAILURES = 8
MOST_FAILURES_IN_ALL = 100
# So much delivered since the last failure makes that one forgotten.
REDEEMING_BYTES = 8 * 1024 * 1024


class SourceRecord:
    """One source and its record."""

    def __init__(self, source: Source, place: int) -> None:
        self.source = source
        self.place = place
        self.failures = 0
        self.early_answers = 0
        self.has_delivered = False
        self.delivered_bytes = 0
        self.avoided_until_s = 0.0
        self.is_out = False


class Ledger:
    """Sources in the order of preference; a bad one is avoided for growing times."""

    def __init__(self, sources: Sequence[Source], random: Random, early_s: float, now_s: float) -> None:
        self.entries = [SourceRecord(source, place) for place, source in enumerate(sources)]
        self._random = random
        self._early_until_s = now_s + early_s
        self._failures = 0

    def is_hopeless(self) -> bool:
        return self._failures >= MOST_FAILURES_IN_ALL or all(entry.is_out for entry in self.entries)

    def choose(self, now_s: float) -> SourceRecord | None:
        """The first that is not avoided now. A relay that has just not begun yet is waited for."""
        for entry in () if self.is_hopeless() else self.entries:
            if entry.is_out:
                continue
            if entry.avoided_until_s <= now_s:
                return entry
            if entry.early_answers:
                return None
        return None

    def next_s(self) -> float:
        """When the next choice may be different."""
        return min(entry.avoided_until_s for entry in self.entries if not entry.is_out)

    def above(self, entry: SourceRecord, now_s: float) -> list[SourceRecord]:
        """Those further upstream that may be asked now, the nearest first."""
        following = self.entries[entry.place + 1 :]
        return [each for each in following if not each.is_out and each.avoided_until_s <= now_s]

    def nearer(self, entry: SourceRecord, now_s: float) -> SourceRecord | None:
        """The relay that would come first and may be asked again."""
        for each in self.entries[: entry.place]:
            if each.source.is_relay and not each.is_out and each.avoided_until_s <= now_s:
                return each
        return None

    def other(self, entry: SourceRecord, now_s: float) -> SourceRecord | None:
        """The best of the others that may be asked now."""
        for each in self.entries:
            if each is not entry and not each.is_out and each.avoided_until_s <= now_s:
                return each
        return None

    def delivered(self, entry: SourceRecord, size_bytes: int) -> None:
        entry.early_answers = 0
        entry.has_delivered = True
        entry.delivered_bytes += size_bytes
        if entry.delivered_bytes >= REDEEMING_BYTES:
            entry.failures = 0

    def failed(self, entry: SourceRecord, fault: SourceFault, now_s: float) -> None:
        """Avoid a source after a fault: for good, for a moment, or for growing times."""
        if fault.is_final:
            entry.is_out = True
            return
        may_be_early = entry.source.is_relay and not entry.has_delivered and now_s < self._early_until_s
        if fault.is_early and may_be_early:
            entry.early_answers += 1
            wait_s = min(LONGEST_EARLY_RETRY_S, EARLY_RETRY_S * entry.early_answers)
            entry.avoided_until_s = now_s + wait_s
            return
        entry.early_answers = 0
        entry.failures += 1
        entry.delivered_bytes = 0
        self._failures += 1
        entry.is_out = entry.failures >= MOST_FAILURES
        self.avoid(entry, now_s, fault.retry_after_s or 0)

    def left(self, entry: SourceRecord, now_s: float) -> None:
        """It was too slow: nothing wrong with it, but not again soon."""
        entry.failures += 1
        entry.delivered_bytes = 0
        # Slow is better than nothing, so slowness alone never rules a source out.
        entry.failures = min(entry.failures, MOST_FAILURES - 1)
        self.avoid(entry, now_s, 4 * FIRST_AVOIDANCE_S)

    def avoid(self, entry: SourceRecord, now_s: float, least_s: float) -> None:
        wait_s = min(LONGEST_AVOIDANCE_S, FIRST_AVOIDANCE_S * 2 ** (entry.failures - 1))
        # Spread by up to a half, so that nodes that failed together do not come back together.
        wait_s *= 1 + 0.5 * self._random.uniform(0, 1)
        entry.avoided_until_s = now_s + max(least_s, wait_s)
