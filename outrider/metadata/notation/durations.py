"""How long something takes, as users of Slurm write it (`--time`) and as most others do (2h30m)."""

from __future__ import annotations

import re

from outrider.metadata.errors import TextError, shown

MINUTE_S, HOUR_S, DAY_S, WEEK_S = 60, 3600, 86_400, 604_800
MOST_S = 3650 * DAY_S
"""Ten years: more is a slip of the keyboard."""
FORMS = "write 90 (minutes), 90:00, 1:30:00, 2-12 (days-hours), 2-12:30, 2-12:30:00, 2h30m or 90s"

_WORDS = {
    WEEK_S: ("w", "week", "weeks"),
    DAY_S: ("d", "day", "days"),
    HOUR_S: ("h", "hour", "hours"),
    MINUTE_S: ("m", "min", "minute", "minutes"),
    1: ("s", "sec", "second", "seconds"),
}
UNITS = {word: unit_s for unit_s, words in _WORDS.items() for word in words}
_COLONS = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?", re.ASCII)
_PART = re.compile(r"([0-9]+)\s*([a-z]+)\s*", re.ASCII)
MOST_DIGITS = 10
MOST_CHARACTERS = 100


def parse_duration(text: str) -> int:
    """Seconds. At least one, at most ten years."""
    if len(text) > MOST_CHARACTERS:
        raise TextError(f"{shown(text)} has more than {MOST_CHARACTERS} characters: {FORMS}")
    wanted = text.strip().lower()
    if any(len(digits) > MOST_DIGITS for digits in re.findall(r"[0-9]+", wanted)):
        raise TextError(f"{shown(text)} has more than {MOST_DIGITS} digits in a row: {FORMS}")
    found = _COLONS.fullmatch(wanted)
    duration_s = _of_colons(found) if found else _of_units(wanted, text)
    if duration_s < 1:
        raise TextError(f"{shown(text)} is not a length of time: a duration is 1 second or more")
    if duration_s > MOST_S:
        raise TextError(f"{shown(text)} is longer than ten years; {FORMS}")
    return duration_s


def format_duration(duration_s: int) -> str:
    """A duration that `parse_duration` reads back: 2h30m, 1d12h, 90s as 1m30s."""
    written = ""
    rest_s = duration_s
    for unit_s in (DAY_S, HOUR_S, MINUTE_S, 1):
        count, rest_s = divmod(rest_s, unit_s)
        written += f"{count}{_WORDS[unit_s][0]}" if count else ""
    return written or "0s"


def _of_colons(found: re.Match[str]) -> int:
    """Slurm's forms: with days the first number counts hours, without the last counts seconds.

    A lone number is minutes. Numbers beyond 59 are added up, as Slurm does.
    """
    days, first, second, third = found[1], int(found[2]), found[3], found[4]
    if days is not None:
        hours, minutes, seconds = first, int(second or 0), int(third or 0)
    elif third is not None:
        hours, minutes, seconds = first, int(second), int(third)
    else:
        hours, minutes, seconds = 0, first, int(second or 0)
    return int(days or 0) * DAY_S + hours * HOUR_S + minutes * MINUTE_S + seconds


def _of_units(wanted: str, text: str) -> int:
    """Numbers with units, the larger unit first, each once."""
    duration_s = at = 0
    last_unit_s = WEEK_S + 1
    while at < len(wanted):
        found = _PART.match(wanted, at)
        if found is None:
            raise TextError(f"{shown(wanted[at:])} in {shown(text)} is not a number with a unit: {FORMS}")
        unit_s = UNITS.get(found[2], 0)
        if not unit_s:
            raise TextError(f"{shown(found[2])} in {shown(text)} is not a unit of time: use w, d, h, m or s")
        if unit_s >= last_unit_s:
            raise TextError(f"{shown(found[0].strip())} in {shown(text)} is out of order: {FORMS}")
        duration_s += int(found[1]) * unit_s
        last_unit_s, at = unit_s, found.end()
    return duration_s
