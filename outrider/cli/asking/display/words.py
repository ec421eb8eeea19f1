"""Times, lengths of time, sizes and bars as people read them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from cachemgr.base.sizes import in_words
from cachemgr.base.tables import printable
from cachemgr.base.times import span_in_words

NOTHING = "-"
SHORT_DIGEST = 12
LAST_S = 221_845_392_000
"""The beginning of the year 9000: nothing later has a date, whatever is sent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class When:
    """Instants in words, as somebody in this zone at this time would say them."""

    now_s: int
    zone: tzinfo

    def clock(self, at_s: int) -> str:
        """14:00, 13:47:10, and with its date if that is not today's."""
        at = self._local(at_s)
        text = at.strftime("%H:%M:%S" if at.second else "%H:%M")
        return text if at.date() == self._local(self.now_s).date() else f"{at:%Y-%m-%d} {text}"

    def column(self, at_s: int | None) -> str:
        """For a table: to the minute, always of one form, and without a blank."""
        return NOTHING if at_s is None else self._local(at_s).strftime("%Y-%m-%dT%H:%M")

    def stamp(self, at_s: int) -> str:
        """To the second, for a record of what happened."""
        return self._local(at_s).strftime("%Y-%m-%dT%H:%M:%S")

    def period(self, start_s: int, end_s: int) -> str:
        """from 14:00 to 16:00 (2 h): the end's date is said only if it is another day's."""
        start, end = self._local(start_s), self._local(end_s)
        if start.date() == end.date():
            last = end.strftime("%H:%M:%S" if end.second else "%H:%M")
        else:
            last = (
                self.clock(end_s) if end.date() != self._local(self.now_s).date() else f"{end:%Y-%m-%d %H:%M}"
            )
        return f"from {self.clock(start_s)} to {last} ({span_in_words(end_s - start_s)})"

    def distance(self, at_s: int) -> str:
        """in 25 min, or 3 h ago."""
        if at_s > self.now_s:
            return f"in {span_in_words(at_s - self.now_s)}"
        return f"{span_in_words(self.now_s - at_s)} ago" if at_s < self.now_s else "now"

    def label(self, at_s: int) -> str:
        """For an axis: a time, and at midnight the day."""
        at = self._local(at_s)
        return at.strftime("%a %b %d" if at.hour == at.minute == 0 else "%H:%M")

    def offset_s(self, at_s: int) -> int:
        """How far the zone is ahead of UTC then."""
        return int((self._local(at_s).utcoffset() or timedelta()).total_seconds())

    def exact(self, at_s: int) -> str:
        """With its offset, to be typed again anywhere: 2026-01-31T14:00:00+01:00."""
        return self._local(at_s).isoformat(timespec="seconds")

    def _local(self, at_s: int) -> datetime:
        return datetime.fromtimestamp(max(0, min(at_s, LAST_S)), self.zone)


def nodes_in_words(count: int, names: str) -> str:
    return f"{count} {'node' if count == 1 else 'nodes'}, {names}" if names else f"{count} nodes"


def image_name(uri: str | None, digest: str | None) -> str:
    """The last part of an address, as people call an image, or else the beginning of its digest."""
    last = (uri or "").partition("@sha256:")[0].rstrip("/").rpartition("/")[2]
    return printable(last) or short(digest) or "(private)"


def short(digest: str | None) -> str:
    """As much of a digest as tells images apart."""
    return printable((digest or "").removeprefix("sha256:")[:SHORT_DIGEST])


def bar(done: int, total: int, width: int = 20) -> str:
    filled = width if total <= 0 else max(0, min(width, width * done // total))
    return "[" + "#" * filled + "." * (width - filled) + "]"


def percent(done: int, total: int) -> int:
    return 100 if total <= 0 else max(0, min(100, 100 * done // total))


def rate_in_words(rate_bytes_per_s: int) -> str:
    return f"{in_words(rate_bytes_per_s)}/s"


def slack_in_words(slack_s: int) -> str:
    """12 min 50 s before the start, or how late."""
    if slack_s == 0:
        return "just at the start"
    side = "before" if slack_s > 0 else "after"
    return f"{span_in_words(abs(slack_s))} {side} the start"


def money(amount: int) -> str:
    """Thousandths of the site's unit: 12.500."""
    return f"{amount // 1000:,}.{amount % 1000:03}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
