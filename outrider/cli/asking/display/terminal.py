"""Colour where it helps, the terminal's width, and tables whose colours do not shift columns."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from cachemgr.base.tables import printable, width

GAP = "  "
NOTHING = "-"
_CODES = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "bold": "1", "dim": "2"}
_COLOURS = {
    "accepted": "blue", "preparing": "yellow", "ready": "green", "active": "green", "endangered": "red",
    "failed": "red", "cancelled": "dim", "ended": "dim", "waiting": "blue", "running": "yellow",
    "arriving": "yellow", "away": "red", "down": "red", "drained": "yellow", "up": "green", "late": "red",
    "unknown": "dim",
}  # fmt: skip
Paint = Callable[[str, str], str]
"""A text and the name of a state or of a colour; the text, with codes around it if they are wanted."""


def paint_for(stream: TextIO, environment: Mapping[str, str]) -> Paint:
    """Colours for terminals alone, and not where NO_COLOR asks for none."""
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb" or not stream.isatty():
        return plain_paint
    return _coloured


def plain_paint(text: str, name: str) -> str:
    return text


def _coloured(text: str, name: str) -> str:
    code = _CODES.get(_COLOURS.get(name, name))
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def columns() -> int:
    """How wide the terminal is; 80 where there is none, unless COLUMNS says otherwise."""
    return max(40, shutil.get_terminal_size((80, 24)).columns)


def lines() -> int:
    return max(10, shutil.get_terminal_size((80, 24)).lines)


def is_live(environment: Mapping[str, str]) -> bool:
    """Whether something can be redrawn in place."""
    return sys.stdout.isatty() and environment.get("TERM") != "dumb"


def table(
    header: Sequence[str], rows: Sequence[Sequence[object]], paint: Paint, *, has_header: bool = True
) -> str:
    """Columns as wide as need be; a `>` before a name aligns it to the right.

    No field is empty and none but the last has a blank, so that `awk` can take a column.
    """
    names = [name.lstrip(">") for name in header]
    last = len(names) - 1
    cells = [
        [
            printable(value) if at == last else printable(value).replace(" ", "_")
            for at, value in enumerate(row)
        ]
        for row in rows
    ]
    cells = [[cell if cell.strip() else NOTHING for cell in row] for row in cells]
    shown = [names, *cells] if has_header else cells
    widths = [max((width(row[at]) for row in shown), default=0) for at in range(len(names))]
    return "\n".join(
        _row(header, row, widths, paint, is_head=has_header and number == 0)
        for number, row in enumerate(shown)
    )


def _row(
    header: Sequence[str], row: Sequence[str], widths: Sequence[int], paint: Paint, *, is_head: bool
) -> str:
    fields = []
    for at, (name, cell) in enumerate(zip(header, row, strict=True)):
        space = " " * (widths[at] - width(cell))
        if is_head:
            cell = paint(cell, "bold")
        elif name == "STATE":
            cell = paint(cell, cell)
        fields.append(space + cell if name.startswith(">") else cell + (space if at < len(row) - 1 else ""))
    return GAP.join(fields).rstrip()


def facts(pairs: Sequence[tuple[str, str]], paint: Paint) -> str:
    """Indented lines of a name and what is known; further lines of a value stand below its first."""
    known = [(name, value) for name, value in pairs if value]
    wide = max((len(name) for name, _ in known), default=0)
    written = []
    for name, value in known:
        first, *others = value.split("\n")
        written.append(f"  {paint(name.ljust(wide), 'dim')}{GAP}{first}")
        written += [f"  {' ' * wide}{GAP}{other}" for other in others]
    return "\n".join(written)
