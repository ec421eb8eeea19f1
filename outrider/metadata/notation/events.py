"""Events for which a reservation can wait, as texts: `file:/data/run-17.done`, `job:4711`, `time:16:00`,
`call`, `source:beam` or `source:beam:hutch 3`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import tzinfo

from outrider.metadata.errors import TextError, shown
from outrider.metadata.notation.times import parse_instant

FILE, JOB, TIME, CALL, SOURCE = "file", "job", "time", "call", "source"
MOST_TEXT = 1024
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class EventSpec:
    """One event. `text` is the path, the job, the second, or the name of a source and what it is asked."""

    kind: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.text}" if self.text else self.kind

    @property
    def at_s(self) -> int:
        """When it is, of a time."""
        return int(self.text)


def parse_event(text: str, *, now_s: int, zone: tzinfo) -> EventSpec:
    """Raises TextError."""
    kind, _, rest = text.partition(":")
    if kind == FILE:
        return of_file(rest)
    if kind == JOB:
        return of_job(rest)
    if kind == TIME:
        return EventSpec(TIME, str(parse_instant(rest, now_s=now_s, zone=zone)))
    if kind == SOURCE:
        return of_source(rest)
    if text == CALL:
        return EventSpec(CALL)
    raise TextError(
        f"{shown(text)} is not an event: write file:/a/path, job:4711, time:16:00, call, or source:NAME"
    )


def of_file(path: str) -> EventSpec:
    if not path.startswith("/") or len(path) > MOST_TEXT or _CONTROL.search(path):
        raise TextError(f"{shown(path)} is not a file to wait for: write its full path, like /data/run.done")
    if any(part in (".", "..") for part in path.split("/")):
        raise TextError(f"{shown(path)} has a . or .. part: write the path without it")
    return EventSpec(FILE, path)


def of_job(key: str) -> EventSpec:
    if not _JOB.fullmatch(key):
        raise TextError(f"{shown(key)} is not a job: write its number, like 4711")
    return EventSpec(JOB, key)


def of_source(text: str) -> EventSpec:
    name, _, more = text.partition(":")
    if not _NAME.fullmatch(name) or len(more) > MOST_TEXT or _CONTROL.search(more):
        raise TextError(f"{shown(text)} is not a source of events: write NAME, or NAME and what it is asked")
    return EventSpec(SOURCE, text)


def read_spec(text: str) -> EventSpec:
    """What `str` wrote."""
    kind, _, rest = text.partition(":")
    return EventSpec(kind, rest)
