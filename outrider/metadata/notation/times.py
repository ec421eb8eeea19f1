"""Points in time as users of Slurm write them (`--begin`), and ISO 8601 with zones.

What time it is and which zone the user lives in are handed in; the result is a whole number
of seconds since 1970-01-01T00:00Z.

A local time that happens twice, or not at all, when clocks are changed is refused with both
readings: a promise must not rest on a guess. `now+8hours` counts seconds and knows no such
change; `tomorrow` is the next day of the calendar, be it 23 or 25 hours long.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo

from outrider.metadata.errors import TextError, shown
from outrider.metadata.notation.durations import MOST_CHARACTERS, UNITS

FORMS = (
    "write now, now+8hours, 16:00, tomorrow 16:00, 2026-01-31T14:00, 01/31/26-14:00 "
    "or, with a zone, 2026-01-31T14:00:00+01:00"
)
FIRST_YEAR, LAST_YEAR = 1970, 9000
LAST_S = 221_845_392_000
"""The beginning of the year 9000: what is later cannot be written in four digits forever."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - subtracted from local times, which carry no zone either
_NAMED = {"midnight": 0, "noon": 12, "elevenses": 11, "fika": 15, "teatime": 16}
_NOW = re.compile(r"now(?:\s*\+\s*(?P<count>[0-9]{1,10})\s*(?P<unit>[a-z]*))?", re.ASCII)
_SECONDS = re.compile(r"uts([0-9]{1,12})", re.ASCII)
_DATE = re.compile(
    r"(?P<word>today|tomorrow)"
    r"|(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})-(?P<day>[0-9]{1,2})"
    r"|(?P<month_us>[0-9]{1,2})(?P<mark>[/.])(?P<day_us>[0-9]{1,2})(?:(?P=mark)(?P<year_us>[0-9]{4}|[0-9]{2}))?"
    r"|(?P<month_run>[0-9]{2})(?P<day_run>[0-9]{2})(?P<year_run>[0-9]{2})?(?![0-9:])",
    re.ASCII,
)
_CLOCK = re.compile(
    r"(?:(?P<named>midnight|noon|elevenses|fika|teatime)"
    r"|(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,]0+)?)?(?:\s*(?P<half>am|pm))?)"
    r"(?:\s*(?P<zone>z|[+-][0-9]{2}(?::?[0-9]{2})?))?",
    re.ASCII,
)
_BETWEEN = re.compile(r"\s*(?:-|t(?=[0-9]))\s*|\s+", re.ASCII)


def parse_instant(text: str, *, now_s: int, zone: tzinfo) -> int:
    """The instant that a text means to somebody in this zone at this time.

    A time without a date is the next one to come, a month and a day without a year too; a
    date without a time is its midnight.
    """
    if len(text) > MOST_CHARACTERS:
        raise TextError(
            f"{shown(text)} is not a point in time: it has more than {MOST_CHARACTERS} characters"
        )
    wanted = text.strip().lower()
    try:
        return _instant_s(wanted, now_s, zone)
    except TextError as error:
        raise TextError(f"{shown(text)} is not a point in time: {error}") from None


def format_instant(at_s: int, *, zone: tzinfo) -> str:
    """An instant with its offset, which `parse_instant` reads back: 2026-01-31T14:00:00+01:00."""
    return datetime.fromtimestamp(at_s, zone).isoformat(timespec="seconds")


def _instant_s(wanted: str, now_s: int, zone: tzinfo) -> int:
    if found := _NOW.fullmatch(wanted):
        at_s = now_s + _count_s(found)
    elif found := _SECONDS.fullmatch(wanted):
        at_s = int(found[1])
    else:
        day, clock = _parts(wanted)
        if clock is not None and clock["zone"]:
            zone = _fixed(clock["zone"])
        at_s = _of_calendar(day, clock, now_s, zone)
    if not 0 <= at_s < LAST_S:
        raise TextError(f"it is not between the years {FIRST_YEAR} and {LAST_YEAR}")
    return at_s


def _count_s(found: re.Match[str]) -> int:
    if found["count"] is None:
        return 0
    unit = found["unit"] or "seconds"
    if unit not in UNITS:
        raise TextError(f"{shown(unit)} is not a unit: write seconds, minutes, hours, days or weeks")
    return int(found["count"]) * UNITS[unit]


def _parts(wanted: str) -> tuple[re.Match[str] | None, re.Match[str] | None]:
    """The date and the time of day in a text, of which one may be absent; either may come first."""
    first = _DATE.match(wanted) or _CLOCK.match(wanted)
    if first is None:
        raise TextError(FORMS)
    rest = wanted[first.end() :]
    second = None
    if rest:
        between = _BETWEEN.match(rest)
        other = _CLOCK if first.re is _DATE else _DATE
        second = other.fullmatch(rest, between.end()) if between else None
        if second is None:
            raise TextError(f"{shown(rest)} cannot be understood; {FORMS}")
    return (first, second) if first.re is _DATE else (second, first)


def _fixed(text: str) -> tzinfo:
    """A zone written as Z, +01:00, +0100 or +01."""
    if text == "z":
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = (
        _within("hour of the zone", digits[:2], 0, 23),
        _within("minute of the zone", digits[2:], 0, 59),
    )
    away = timedelta(hours=hours, minutes=minutes)
    return timezone(-away if text[0] == "-" else away)


def _of_calendar(day: re.Match[str] | None, clock: re.Match[str] | None, now_s: int, zone: tzinfo) -> int:
    now = _local(now_s, zone)
    at = _time_of(clock) if clock is not None else time()
    if day is None:
        return _next_s([now.date(), now.date() + timedelta(days=1)], at, now_s, zone)
    if day["word"]:
        return _local_s(datetime.combine(now.date() + timedelta(days=day["word"] == "tomorrow"), at), zone)
    month = _within("month", day["month"] or day["month_us"] or day["month_run"], 1, 12)
    number = _within("day", day["day"] or day["day_us"] or day["day_run"], 1, 31)
    written = day["year"] or day["year_us"] or day["year_run"]
    if written is None:
        # 29 February comes back after eight years at the latest.
        days = [each for year in range(now.year, now.year + 9) if (each := _day_or_none(year, month, number))]
        if not days:
            raise TextError(f"month {month} has no day {number}")
        return _next_s(days, at, now_s, zone)
    year = _within("year", written if len(written) == 4 else f"20{written}", FIRST_YEAR, LAST_YEAR - 1)
    found = _day_or_none(year, month, number)
    if found is None:
        raise TextError(f"month {month} of {year} has no day {number}")
    return _local_s(datetime.combine(found, at), zone)


def _next_s(days: list[date], at: time, now_s: int, zone: tzinfo) -> int:
    """The first of these days on which the time of day is still to come."""
    for day in days:
        moment = datetime.combine(day, at)
        if _latest_s(moment, zone) > now_s:
            return _local_s(moment, zone)
    raise TextError(f"{at} does not come again on any of the next days")


def _time_of(clock: re.Match[str]) -> time:
    if clock["named"]:
        return time(_NAMED[clock["named"]])
    if clock["half"]:
        hour = _within("hour", clock["hour"], 1, 12) % 12 + 12 * (clock["half"] == "pm")
    else:
        hour = _within("hour", clock["hour"], 0, 23)
    return time(
        hour, _within("minute", clock["minute"], 0, 59), _within("second", clock["second"] or "0", 0, 59)
    )


def _within(what: str, digits: str, low: int, high: int) -> int:
    if not low <= int(digits) <= high:
        raise TextError(f"{what} {digits} is not between {low} and {high}; {FORMS}")
    return int(digits)


def _day_or_none(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _readings_s(moment: datetime, zone: tzinfo) -> tuple[int, int]:
    """What a local time means before and after a change of the clocks; equal at all other times."""
    since_s = (moment - _EPOCH) // timedelta(seconds=1)
    before, after = (
        (moment.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta()) // timedelta(seconds=1)
        for fold in (0, 1)
    )
    return since_s - before, since_s - after


def _latest_s(moment: datetime, zone: tzinfo) -> int:
    return max(_readings_s(moment, zone))


def _local_s(moment: datetime, zone: tzinfo) -> int:
    """The instant of a local time, which has to be exactly one."""
    first_s, second_s = _readings_s(moment, zone)
    if first_s == second_s:
        return first_s
    readings = " or ".join(format_instant(at_s, zone=zone) for at_s in sorted((first_s, second_s)))
    how = "happens twice" if first_s < second_s else "does not happen"
    raise TextError(f"{moment.isoformat(sep=' ')} {how} because clocks are changed: write {readings}")


def _local(at_s: int, zone: tzinfo) -> datetime:
    """The local time of an instant, without its zone."""
    return datetime.fromtimestamp(at_s, zone).replace(tzinfo=None)
