"""Points in time and lengths of time as people write and read them. Inside it is seconds."""

from __future__ import annotations

import re
import time
from datetime import datetime

from cachemgr.base.errors import BadRequest

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SPAN = re.compile(r"(?:\d+[smhdw])+|\d+", re.IGNORECASE | re.ASCII)
PART = re.compile(r"(\d+)([smhdw]?)", re.IGNORECASE)
MOST_DIGITS = 12
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


def read_span(text: str) -> int:
    """Seconds from `90`, `90s`, `10m`, `2h30m`, `7d` or `2w`."""
    if not SPAN.fullmatch(text) or max(map(len, re.findall(r"\d+", text))) > MOST_DIGITS:
        raise BadRequest(f"{text!r} is not a length of time: write 90s, 10m, 2h30m, 7d or 2w")
    return sum(int(amount) * UNITS_S[unit.lower() or "s"] for amount, unit in PART.findall(text))


def read_time(text: str, now_s: int) -> int:
    """Epoch seconds from `2026-01-31T14:00` (local, or with `Z` or `+01:00`) or `+2h` from now."""
    if text.startswith("+") and SPAN.fullmatch(text[1:]):
        return now_s + read_span(text[1:])
    # Python 3.9 and 3.10 do not read the Z.
    iso = f"{text[:-1]}+00:00" if text[-1:] in ("Z", "z") else text
    try:
        # A time without a zone is the node's own local time.
        return int(datetime.fromisoformat(iso).timestamp())
    except (ValueError, OverflowError, OSError) as error:
        raise BadRequest(
            f"{text!r} is not a point in time: write 2026-01-31T14:00, 2026-01-31T14:00Z, or +2h for from now"
        ) from error


def time_in_words(epoch_s: int) -> str:
    """Local time to the minute, for people."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(epoch_s))


def span_in_words(seconds: float) -> str:
    """A length of time with the two digits' worth that help: 8 s, 4 min 12 s, 3 h 5 min, 2 d 4 h."""
    whole = max(0, round(seconds))
    for unit_s, name, below_s, below in (
        (DAY_S, "d", HOUR_S, "h"),
        (HOUR_S, "h", MINUTE_S, "min"),
        (MINUTE_S, "min", 1, "s"),
    ):
        if whole >= unit_s:
            rest = whole % unit_s // below_s
            return f"{whole // unit_s} {name} {rest} {below}" if rest else f"{whole // unit_s} {name}"
    return f"{whole} s"


def ago_in_words(epoch_s: int, now_s: int) -> str:
    """How long ago, in one unit, for a narrow column."""
    seconds = max(0, now_s - epoch_s)
    for unit_s, name in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s} {name}"
    return f"{seconds} s"
