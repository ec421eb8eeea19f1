"""The daemon's log: one line an event, a fixed phrase and then `key=value`.

Values come from users: they are quoted and never end a line.
"""

from __future__ import annotations

import json
import re
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
# By these numbers journald knows a line's importance.
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3}
PLAIN = re.compile(r"[A-Za-z0-9_.:/@+,%-]{1,200}")
MOST_CHARACTERS = 1000


class Log:
    """Writes lines of at least one level. Safe for several threads."""

    def __init__(self, stream: TextIO, *, level: str = "info", is_journal: bool = False) -> None:
        self._stream = stream
        self._least = LEVELS.index(level)
        self._is_journal = is_journal
        self._guard = threading.Lock()

    def debug(self, phrase: str, **values: object) -> None:
        self._write("debug", phrase, values)

    def info(self, phrase: str, **values: object) -> None:
        self._write("info", phrase, values)

    def warning(self, phrase: str, **values: object) -> None:
        self._write("warning", phrase, values)

    def error(self, phrase: str, **values: object) -> None:
        self._write("error", phrase, values)

    def trace(self, phrase: str, text: str) -> None:
        """A traceback: the one thing that has several lines, each of them marked."""
        for line in text.rstrip().splitlines():
            self._write("error", f"{phrase} | {line}", {})

    def _write(self, level: str, phrase: str, values: dict[str, object]) -> None:
        if LEVELS.index(level) < self._least:
            return
        words = [f"{name}={quoted(value)}" for name, value in values.items() if value is not None]
        line = " ".join([phrase, *words])
        mark = f"<{PRIORITIES[level]}>" if self._is_journal else f"{level} "
        with self._guard:
            self._stream.write(f"{mark}{line}\n")
            self._stream.flush()


def quoted(value: object) -> str:
    text = str(value)[:MOST_CHARACTERS]
    return text if PLAIN.fullmatch(text) else json.dumps(text)
