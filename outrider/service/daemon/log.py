"""The service's log: one line an event, as text or as a JSON object.

The text form is the node daemons' own, so that one reader serves for both. The JSON form is for
collectors: `time`, `level`, `event`, and then the event's own fields.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, Protocol, TextIO

from cachemgr.base.clock import WallClock
from cachemgr.daemon.log import LEVELS, MOST_CHARACTERS
from cachemgr.daemon.log import DaemonLog as NodeLog
from outrider.service.meter import Log

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]
MOST_LINES = 200
"""Of a traceback; what is deeper repeats itself."""


class TracingLog(Log, Protocol):
    """A log that tracebacks can be written to as well."""

    def trace(self, event: str, text: str) -> None: ...


def make_log(
    stream: TextIO, *, level: Level, format: Format, clock: WallClock, environment: Mapping[str, str]
) -> TracingLog:
    if format == "json":
        return JsonLog(stream, level=level, clock=clock)
    return TextLog(NodeLog(stream, level=level, is_journal="JOURNAL_STREAM" in environment))


class TextLog:
    """Lines as the node daemons write them."""

    def __init__(self, lines: NodeLog) -> None:
        self._lines = lines

    def debug(self, event: str, **fields: object) -> None:
        self._lines.debug(event, **fields)

    def info(self, event: str, **fields: object) -> None:
        self._lines.info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        self._lines.warning(event, **fields)

    def error(self, event: str, **fields: object) -> None:
        self._lines.error(event, **fields)

    def trace(self, event: str, text: str) -> None:
        self._lines.trace(event, text)


class JsonLog:
    """Lines of at least one level, each a JSON object. Safe for several threads."""

    def __init__(self, stream: TextIO, *, level: Level, clock: WallClock) -> None:
        self._stream = stream
        self._least = LEVELS.index(level)
        self._clock = clock
        self._guard = threading.Lock()

    def debug(self, event: str, **fields: object) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def trace(self, event: str, text: str) -> None:
        """A traceback as one field: an object stays a line."""
        lines = text.rstrip().splitlines()[-MOST_LINES:]
        self._write("error", event, {"traceback": lines})

    def _write(self, level: Level, event: str, fields: Mapping[str, object]) -> None:
        if LEVELS.index(level) < self._least:
            return
        at = datetime.fromtimestamp(self._clock.now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line: dict[str, object] = {"time": at, "level": level, "event": event}
        for name, value in fields.items():
            if value is not None:
                # A field may not pass for one of the line's own.
                line[f"{name}_" if name in line else name] = _plain(value)
        text = json.dumps(line)
        with self._guard:
            self._stream.write(f"{text}\n")
            self._stream.flush()


def _plain(value: object) -> object:
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [str(each)[:MOST_CHARACTERS] for each in value[:MOST_LINES]]
    return str(value)[:MOST_CHARACTERS]
