"""What a file in the form of slurm.conf says: lines as Slurm joins them, and the settings on them.

Pure: texts in, values out. The rules are those of Slurm's own reader: a `#` that is not escaped
begins a comment, even within quotes; an odd number of backslashes at a line's end goes on with the
next; keys are told apart without regard to case; of a key that is given twice the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LINES_OF_THEIR_OWN = frozenset({"nodename", "partitionname", "downnodes", "nodeset", "frontendname"})
"""What follows such a key on its line belongs to it and is no setting of the whole site."""
_BLANK = r"[ \t\r\f\v]"
_PAIR = re.compile(
    rf"{_BLANK}*(?P<key>[A-Za-z0-9_.]+){_BLANK}*(?P<operator>[-*+/]?)={_BLANK}*"
    rf'(?:"(?P<quoted>[^"]*)"|(?P<bare>[^ \t\r\f\v]+))(?={_BLANK}|$)'
)
_INCLUDE = re.compile(rf"include{_BLANK}+(?P<path>[^ \t\r\f\v]+)", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.?)")


@dataclass(frozen=True, kw_only=True, slots=True)
class LogicalLine:
    """One line as Slurm sees it, and the physical ones, `[first, end)`, that it is made of."""

    first: int
    end: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A key with its value, and where in the logical line's text the value stands, quotes included."""

    key: str
    value: str
    line: LogicalLine
    start: int
    end: int

    def written(self, value: str) -> str:
        """Another value as it has to stand in this one's place."""
        is_quoted = self.line.text[self.start] == '"' or not value or re.search(r"\s", value)
        return f'"{value}"' if is_quoted else value


def logical_lines(text: str) -> Iterator[LogicalLine]:
    """The lines of a file, comments taken off and continued ones joined. Escapes stay as they are."""
    physical = text.split("\n")
    joined, first = "", 0
    for number, line in enumerate(physical):
        body, goes_on = _continued(_without_comment(line))
        joined += body
        if goes_on and number + 1 < len(physical):
            continue
        yield LogicalLine(first=first, end=number + 1, text=joined)
        joined, first = "", number + 1


def settings(text: str) -> Iterator[Setting]:
    """Every setting of the whole site, in the file's order."""
    for line in logical_lines(text):
        if included(line) is not None:
            continue
        at = 0
        while found := _PAIR.match(line.text, at):
            value = found["quoted"] if found["quoted"] is not None else found["bare"]
            start = found.start("bare") if found["quoted"] is None else found.start("quoted") - 1
            yield Setting(key=found["key"], value=_unescaped(value), line=line, start=start, end=found.end())
            if found["key"].lower() in LINES_OF_THEIR_OWN:
                break
            at = found.end()


def included(line: LogicalLine) -> str | None:
    """The file that a line includes, as it is written there; such a line begins in the first column."""
    found = _INCLUDE.match(line.text)
    return _unescaped(found["path"]) if found else None


def node_lines(text: str) -> Iterator[str]:
    """The names of each NodeName line, which may be sets."""
    for found in settings(text):
        if found.key.lower() == "nodename" and found.value.upper() != "DEFAULT":
            yield found.value


def _without_comment(line: str) -> str:
    backslashes = 0
    for at, letter in enumerate(line):
        if letter == "#" and backslashes % 2 == 0:
            return line[:at]
        backslashes = backslashes + 1 if letter == "\\" else 0
    return line


def _continued(line: str) -> tuple[str, bool]:
    """A line without the backslash that joins it to the next, and whether there was one."""
    bare = line.rstrip(" \t\r\f\v")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return (bare[:-1], True) if backslashes % 2 else (line, False)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(r"\1", text)
