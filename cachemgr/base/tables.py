"""Results as text for people: aligned tables and lines of a name and a value."""

from __future__ import annotations

import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = "  "
NOTHING = "-"


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, has_header: bool = True) -> str:
    """Columns as wide as need be; a `>` before a name aligns it to the right, as numbers want it.

    No field is empty and none but the last has a blank, so that `awk` can take a column.
    """
    names = [name.lstrip(">") for name in header]
    lines = [[printable(value) or NOTHING for value in row] for row in rows]
    shown = [names, *lines] if has_header else lines
    widths = [max((width(line[column]) for line in shown), default=0) for column in range(len(names))]
    return "\n".join(_line(header, line, widths) for line in shown)


def facts(pairs: Sequence[tuple[str, object]]) -> str:
    """One line each: a name, and what is known. What is not known has no line."""
    known = [(name, printable(value)) for name, value in pairs if value not in (None, "")]
    wide = max((width(name) for name, _ in known), default=0)
    return "\n".join(f"{name}{' ' * (wide - width(name))}{GAP}{value}" for name, value in known)


def printable(value: object) -> str:
    """What comes from users must not move the cursor or forge a line."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value))


def width(text: str) -> int:
    """Columns on a terminal."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def cut(text: str, columns: int) -> str:
    """As much as fits on a line."""
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 1:
        text = text[:-1]
    return text + "…"


def _line(header: Sequence[str], line: Sequence[str], widths: Sequence[int]) -> str:
    fields = []
    for name, field, wide in zip(header, line, widths):
        padding = " " * (wide - width(field))
        fields.append(padding + field if name.startswith(">") else field + padding)
    return GAP.join(fields).rstrip()
