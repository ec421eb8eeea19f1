"""The Standard Workload Format of the Parallel Workloads Archive: reader and writer.

A log is held as columns, because a reader of 200,000 jobs looks at a few fields of
each. What a log means as a trace is decided in `swf_trace`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TextIO

from outrider.sim.workload.formats.files import blocks, open_workload, replace_text
from outrider.sim.workload.trace import WorkloadError

FIELDS_PER_JOB = 18
UNKNOWN = -1

# What is read, in the order of the columns below: the field's place in a line, its name.
_READ = (
    (0, "job number"),
    (1, "submit time"),
    (2, "wait time"),
    (3, "run time"),
    (4, "allocated processors"),
    (7, "requested processors"),
    (8, "requested time"),
    (10, "status"),
    (11, "user"),
    (12, "group"),
    (13, "executable"),
    (14, "queue"),
)
_STRIDE = FIELDS_PER_JOB + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SwfLog:
    """A log as columns of equal length; -1 is the format's word for unknown.

    `processors` is what was allocated, or what was requested where that is unknown.
    `header` holds the comment lines as they were, with their semicolons, because some
    logs may only be passed on together with them.
    """

    header: tuple[str, ...] = ()
    job: list[int] = field(default_factory=list)
    submit_s: list[int] = field(default_factory=list)
    wait_s: list[int] = field(default_factory=list)
    run_s: list[int] = field(default_factory=list)
    processors: list[int] = field(default_factory=list)
    requested_processors: list[int] = field(default_factory=list)
    requested_s: list[int] = field(default_factory=list)
    status: list[int] = field(default_factory=list)
    user: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    executable: list[int] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, column in zip(COLUMNS, self.columns(), strict=True):
            if len(column) != len(self.job):
                raise ValueError(f"column {name} has {len(column)} values where job has {len(self.job)}")
        for line in self.header:
            if not line.startswith(";") or "\n" in line:
                raise ValueError(f"header line {line!r}: it must be one line and start with ;")

    def __len__(self) -> int:
        return len(self.job)

    def columns(self) -> tuple[list[int], ...]:
        return tuple(getattr(self, name) for name in COLUMNS)

    def rows(self, chosen: Sequence[int]) -> SwfLog:
        """The log that has only these rows, in this order."""
        picked = {
            name: [column[row] for row in chosen]
            for name, column in zip(COLUMNS, self.columns(), strict=True)
        }
        return SwfLog(header=self.header, **picked)

    def header_text(self, label: str) -> str | None:
        """What the header says after `; Label:`, for instance the computer's name."""
        for line in self.header:
            name, colon, text = line.lstrip("; ").partition(":")
            if colon and name.strip() == label:
                return text.strip()
        return None

    @property
    def max_processors(self) -> int | None:
        return self._header_number("MaxProcs")

    @property
    def unix_start_s(self) -> int | None:
        """The instant, since the epoch, from which the log's submit times count."""
        return self._header_number("UnixStartTime")

    def _header_number(self, label: str) -> int | None:
        # Some logs explain the number: "338 (batch partition; 512 total)".
        words = (self.header_text(label) or "").split()
        return int(words[0]) if words and words[0].isdecimal() else None


COLUMNS = tuple(column.name for column in fields(SwfLog) if column.name != "header")


def read_log(path: str | os.PathLike[str], *, limit: int | None = None) -> SwfLog:
    """The first `limit` jobs of a log, or all of them; .gz or plain.

    Blocks of lines are split and turned into columns in bulk. Only where that fails is a
    block read line by line, to take what is merely unusual and to name what is wrong.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"a limit of {limit} jobs is impossible")
    header: list[str] = []
    columns: list[list[int]] = [[] for _ in _READ]
    first_line = 1
    with open_workload(path) as file:
        for block in blocks(file, path):
            lines = block.split(b"\n")
            rows = _without_comments(lines, header) if b";" in block else lines
            rows = [row for row in rows if row]
            if limit is not None:
                rows = rows[: limit - len(columns[0])]
            found = _in_bulk(rows)
            if found is None:
                left = None if limit is None else limit - len(columns[0])
                found = _line_by_line(lines, f"{os.fspath(path)}, line ", first_line, left)
            for column, values in zip(columns, found, strict=True):
                column.extend(values)
            if limit is not None and len(columns[0]) >= limit:
                break
            first_line += len(lines) - 1
    return _log(tuple(header), columns)


def write_log(target: str | os.PathLike[str] | TextIO, log: SwfLog) -> None:
    """Write the header lines and 18 fields a job; what the log does not hold is -1."""
    if isinstance(target, str | os.PathLike):
        with replace_text(target) as file:
            _write_lines(file, log)
    else:
        _write_lines(target, log)


def _write_lines(file: TextIO, log: SwfLog) -> None:
    file.writelines(f"{line}\n" for line in log.header)
    file.writelines(
        f"{job} {submit} {wait} {run} {allocated} -1 -1 {wanted} {wanted_s} -1 "
        f"{status} {user} {group} {executable} {queue} -1 -1 -1\n"
        for (
            job, submit, wait, run, allocated, wanted, wanted_s,
            status, user, group, executable, queue,
        ) in zip(*log.columns(), strict=True)
    )  # fmt: skip


def _without_comments(lines: list[bytes], header: list[str]) -> list[bytes]:
    rows = []
    for line in lines:
        if line.lstrip().startswith(b";"):
            header.append(line.decode("utf-8", "surrogateescape").strip())
        else:
            rows.append(line)
    return rows


def _in_bulk(rows: list[bytes]) -> list[list[int]] | None:
    """The columns of these lines, or None if any line is not exactly as expected.

    A semicolon closes each line, so that a field too few in one line and a field too many
    in the next cannot pass for two good lines.
    """
    text = b" ; ".join(rows) + b" ;" if rows else b""
    if b"_" in text:  # int() takes 1_000, the format does not
        return None
    try:
        words = text.decode("ascii").split()
        if len(words) != _STRIDE * len(rows):
            return None
        if words[FIELDS_PER_JOB::_STRIDE].count(";") != len(rows):
            return None
        return [list(map(int, words[place::_STRIDE])) for place, _ in _READ]
    except ValueError:  # not ASCII, or not a number
        return None


def _line_by_line(lines: list[bytes], where: str, first_line: int, left: int | None) -> list[list[int]]:
    columns: list[list[int]] = [[] for _ in _READ]
    for number, line in enumerate(lines, first_line):
        words = line.decode("utf-8", "backslashreplace").split()
        if not words or words[0].startswith(";"):
            continue
        if left is not None and len(columns[0]) >= left:
            break
        if len(words) != FIELDS_PER_JOB:
            raise WorkloadError(
                f"{where}{number}: {len(words)} fields where the format has "
                f"{FIELDS_PER_JOB}; repair the line, or delete it"
            )
        for column, (place, name) in zip(columns, _READ, strict=True):
            what = f"{where}{number}: field {place + 1} ({name})"
            column.append(_whole_number(words[place], what))
    return columns


def _whole_number(word: str, what: str) -> int:
    """12, and also 12.0, which some converters write; 12.5 s would need a rounding rule.

    Rounding silently was rejected: it could put a job's end after its successor's start.
    """
    number, point, fraction = word.partition(".")
    digits = number.removeprefix("-").removeprefix("+")
    if digits.isascii() and digits.isdigit() and (not point or not fraction.strip("0")):
        return int(number)
    raise WorkloadError(f"{what} is {word!r}, not a whole number; round it, or write -1 for unknown")


def _log(header: tuple[str, ...], columns: list[list[int]]) -> SwfLog:
    place = {name: at for at, name in enumerate(COLUMNS)}
    allocated = columns[place["processors"]]
    requested = columns[place["requested_processors"]]
    columns[place["processors"]] = [
        given if given > 0 else wanted for given, wanted in zip(allocated, requested, strict=True)
    ]
    return SwfLog(header=header, **dict(zip(COLUMNS, columns, strict=True)))
