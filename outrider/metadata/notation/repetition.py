"""When a reservation that recurs starts, from what its user wrote: how often, and until when.

`daily`, `weekdays` and `weekly` keep the time of day in the user's zone, so that two occurrences are 23 or
25 hours apart when clocks are changed. A time that does not happen on such a day is the same moment by the
clock as it was before the change (02:30 becomes 03:30), one that happens twice is the first. A duration
counts seconds and knows no such change.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta, tzinfo
from itertools import count

from outrider.metadata.errors import TextError, shown
from outrider.metadata.notation.durations import format_duration, parse_duration
from outrider.metadata.notation.times import format_instant, parse_instant

MOST_OCCURRENCES = 1_000
FRIDAY = 4
_DAYS = {"daily": 1, "weekdays": 1, "weekly": 7}
FORMS = "write daily, weekdays, weekly, or a duration like 12h"


def starts(
    every: str, until: str, *, first_s: int, duration_s: int, now_s: int, zone: tzinfo
) -> tuple[int, ...]:
    """All starts from the first on; `until` is a date, whose whole day is meant, or an instant.

    On `weekdays` the first is the first working day's from `first_s` on.
    """
    last_s = _last_s(until, now_s, zone)
    found: list[int] = []
    for start_s in _all(every.strip().lower(), first_s, zone):
        if start_s > last_s:
            break
        if found and start_s < found[-1] + duration_s:
            raise TextError(
                f"each lasts {format_duration(duration_s)}, and one would begin at "
                f"{format_instant(start_s, zone=zone)} before the one before it has ended: ask for less often"
            )
        found.append(start_s)
        if len(found) > MOST_OCCURRENCES:
            raise TextError(
                f"more than {MOST_OCCURRENCES} times until {shown(until)}: ask for an earlier end"
            )
    if not found:
        raise TextError(f"{shown(until)} is before the first start, {format_instant(first_s, zone=zone)}")
    return tuple(found)


def _last_s(until: str, now_s: int, zone: tzinfo) -> int:
    """The last second in which one may start. What says no time of day is a date, with all of that day."""
    at_s = parse_instant(until, now_s=now_s, zone=zone)
    local = datetime.fromtimestamp(at_s, zone)
    if local.time() != time():
        return at_s
    following = datetime.combine(local.date() + timedelta(days=1), time(), zone)
    return _seconds(following) - 1


def _all(every: str, first_s: int, zone: tzinfo) -> Iterator[int]:
    """Without end."""
    if every not in _DAYS:
        try:
            step_s = parse_duration(every)
        except TextError as error:
            raise TextError(f"{shown(every)} is not how often: {FORMS} ({error})") from None
        yield from count(first_s, step_s)
        return
    first = datetime.fromtimestamp(first_s, zone)
    for number in count():
        day = first.date() + timedelta(days=number * _DAYS[every])
        if every == "weekdays" and day.weekday() > FRIDAY:
            continue
        yield first_s if number == 0 else _seconds(datetime.combine(day, first.time(), zone))


def _seconds(moment: datetime) -> int:
    """Whole seconds since 1970; of two readings of a local time the one before the change of clocks."""
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
