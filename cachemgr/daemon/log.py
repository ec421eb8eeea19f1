"""The daemon's log: one line an event, a fixed phrase and then `key=value`.

Values come from users: they are quoted and never end a line. What one user, or an address that has
proved nothing, causes is bounded by the minute; what is left out is counted, and told with the name.
"""

from __future__ import annotations

import json
import re
import threading

from cachemgr.base.shares import BYTES, Shares

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import TextIO

    from cachemgr.base.clock import Clock
    from cachemgr.base.shares import Share

LEVELS = ("debug", "info", "warning", "error")
# By these numbers journald knows a line's importance.
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3}
PLAIN = re.compile(r"[A-Za-z0-9_.:/@+,%-]{1,200}")
MOST_CHARACTERS = 1000
WINDOW_S = 60.0
# All culprits together may cause so many times what one may.
MOST_AT_ONCE = 16
# So many are named in a minute; the lines of more are counted as those of others.
MOST_NAMED = 20
OTHERS = "others"


class DaemonLog:
    """Writes lines of at least one level. Safe for several threads.

    The `culprit` of a line is the user who causes it, or an address; None if nobody has to be bounded.
    """

    def __init__(self, stream: TextIO, *, level: str = "info", is_journal: bool = False) -> None:
        self._stream = stream
        self._least = LEVELS.index(level)
        self._is_journal = is_journal
        self._guard = threading.Lock()
        self._bounds: _Bounds | None = None

    def bound(self, bytes_of_culprit: int, clock: Clock) -> None:
        """From now on one culprit causes at most so much in a minute; 0: no limit."""
        self._bounds = _Bounds(bytes_of_culprit, clock) if bytes_of_culprit else None

    def debug(self, phrase: str, *, culprit: Hashable = None, **values: object) -> None:
        self._write("debug", phrase, values, culprit)

    def info(self, phrase: str, *, culprit: Hashable = None, **values: object) -> None:
        self._write("info", phrase, values, culprit)

    def warning(self, phrase: str, *, culprit: Hashable = None, **values: object) -> None:
        self._write("warning", phrase, values, culprit)

    def error(self, phrase: str, *, culprit: Hashable = None, **values: object) -> None:
        self._write("error", phrase, values, culprit)

    def trace(self, phrase: str, text: str, *, culprit: Hashable = None) -> None:
        """A traceback: the one thing that has several lines, each of them marked."""
        for line in text.rstrip().splitlines():
            self._write("error", f"{phrase} | {line}", {}, culprit)

    def tell_left_out(self) -> None:
        """Say what was left out, once its minute is over, also if nobody causes anything any more."""
        with self._guard:
            if self._bounds is not None:
                self._put_left_out(self._bounds)

    def shares(self) -> list[Share]:
        return self._bounds.taken.shares() if self._bounds else []

    def refused(self) -> dict[str, int]:
        return self._bounds.taken.refused() if self._bounds else {}

    def _write(self, level: str, phrase: str, values: dict[str, object], culprit: Hashable = None) -> None:
        if LEVELS.index(level) < self._least:
            return
        line = _line(phrase, values)
        with self._guard:
            if culprit is not None and self._bounds is not None:
                self._put_left_out(self._bounds)
                if not self._bounds.admits(culprit, len(line)):
                    if self._bounds.left_out.get(culprit, (0, 0))[0] == 1:
                        told = {"user": culprit, "bytes_per_minute": self._bounds.taken.most_of_one}
                        self._put("warning", _line("log lines are left out", {**told, "option": "user_log"}))
                    return
            self._put(level, line)

    def _put_left_out(self, bounds: _Bounds) -> None:
        for culprit, (lines, size_bytes) in bounds.ended():
            told = {"user": culprit, "lines": lines, "bytes": size_bytes}
            self._put("warning", _line("log lines were left out", told))

    def _put(self, level: str, line: str) -> None:
        mark = f"<{PRIORITIES[level]}>" if self._is_journal else f"{level} "
        self._stream.write(f"{mark}{line}\n")
        self._stream.flush()


class _Bounds:
    """What each culprit has caused in this minute, and what of it was left out."""

    def __init__(self, most_of_one: int, clock: Clock) -> None:
        self.taken = Shares(
            "log of a minute", most=MOST_AT_ONCE * most_of_one, most_of_one=most_of_one, unit=BYTES
        )
        # Lines and bytes.
        self.left_out: dict[Hashable, tuple[int, int]] = {}
        self._clock = clock
        self._until_s = clock.monotonic_s() + WINDOW_S

    def admits(self, culprit: Hashable, size_bytes: int) -> bool:
        if self.taken.take(culprit, size_bytes):
            return True
        name = culprit if culprit in self.left_out or len(self.left_out) < MOST_NAMED else OTHERS
        lines, left_out_bytes = self.left_out.get(name, (0, 0))
        self.left_out[name] = (lines + 1, left_out_bytes + size_bytes)
        return False

    def ended(self) -> list[tuple[Hashable, tuple[int, int]]]:
        """What was left out in a minute that is over."""
        now_s = self._clock.monotonic_s()
        if now_s < self._until_s:
            return []
        self._until_s = now_s + WINDOW_S
        self.taken.give_all()
        told, self.left_out = self.left_out, {}
        return list(told.items())


def _line(phrase: str, values: dict[str, object]) -> str:
    words = [f"{name}={quoted(value)}" for name, value in values.items() if value is not None]
    return " ".join([phrase, *words])


def quoted(value: object) -> str:
    text = str(value)[:MOST_CHARACTERS]
    return text if PLAIN.fullmatch(text) else json.dumps(text)
