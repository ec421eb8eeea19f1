"""Reads what Grid Engine prints as XML and what is none: one element is lost rather than a look. Pure.

Values are what users have written, and some names of elements are no names: `<JATASK:       1.>`, of a task
that is just about to go, and `<job ids>`, of jobs that wait for a node to be cleaned up after them. What is
known is mended at once. Where the rest still cannot be read, each job, host or reservation is read by itself,
and of one that cannot be, a line is left empty or a part left out, as few as will do.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from outrider.rms.base import RmsError

Told = Callable[[str], None]
"""Is given what could not be read."""
MOST_LOSSES = 20
"""Of one job, host or reservation; then it is left out as a whole."""
MOST_TOLD = 200
UNQUOTED = {f"&amp;{name};": f"&{name};" for name in ("amp", "lt", "gt", "quot", "apos")}
"""What was quoted before stays as it was."""
# XML 1.0 has no such characters, but qstat prints what users put into names.
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)(?:#(\d{1,7}|x[0-9a-fA-F]{1,6});)?")
NAME_WITH_NUMBER = re.compile(r"<(/?\w+):\s[^<>]*>")
NAME_WITH_BLANKS = re.compile(r"<(/?\w+(?: \w+)+)>")
UNIT = re.compile(r"( *)<(element|job_list|host|ar_summary)\b[^<>]*>\s*")
BEGUN = re.compile(r"^ *<(\w+)(?: [^<>\n]*)?>(?!\n)", re.MULTILINE)
ENDED = re.compile(r"</(\w+)>$", re.MULTILINE)
LEAF = re.compile(r"(\s*<(\w+)(?: [^<>]*)?>)(.*)(</\2>\s*)")


def nobody(lost: str) -> None:
    """For who asks once, and sees what is missing."""


def tree(text: str, told: Told = nobody) -> ElementTree.Element:
    """What can be read of a whole answer. Raises RmsError if it is not one."""
    mended = AMPERSAND.sub(_reference, UNPRINTABLE.sub("�", text))
    mended = NAME_WITH_NUMBER.sub(r"<\1>", mended)
    mended = NAME_WITH_BLANKS.sub(lambda name: name[0].replace(" ", "_"), mended)
    try:
        return ElementTree.fromstring(mended)
    except ElementTree.ParseError:
        lines = _readable(mended.split("\n"), told)
    try:
        return ElementTree.fromstring("\n".join(lines))
    except ElementTree.ParseError as error:
        place = error.position[0] - 1
        culprit = repr(lines[place][:MOST_TOLD]) if place < len(lines) else "its end"
        raise RmsError(f"Grid Engine printed XML that cannot be read: {error}: {culprit}") from error


def _reference(found: re.Match[str]) -> str:
    """A reference to a character that XML has is one; any other ampersand is what somebody wrote."""
    if found[1] is None:
        return "&amp;"
    number = int(found[1][1:], 16) if found[1].startswith("x") else int(found[1])
    is_one = 0 < number <= 0x10FFFF and not UNPRINTABLE.match(chr(number))
    return found[0] if is_one else "&amp;" + found[0][1:]


def _readable(lines: list[str], told: Told) -> list[str]:
    """The lines, with those units mended or left out that cannot be read by themselves."""
    found: list[str] = []
    at = 0
    depth: str | None = None
    while at < len(lines):
        begun = UNIT.fullmatch(lines[at])
        if begun is None or (depth is not None and begun[1] != depth):
            found.append(lines[at])
            at += 1
            continue
        depth = begun[1]
        end = next(
            (k for k in range(at + 1, len(lines)) if lines[k].rstrip() == f"{depth}</{begun[2]}>"), None
        )
        if end is None:
            return [*found, *lines[at:]]
        found += _unit(lines[at : end + 1], told)
        at = end + 1
    return found


def _with_values_escaped(text: str) -> str:
    """The text with all between a tag that begins a line and the next one that ends it, at a line's end."""
    ends: dict[str, list[int]] = {}
    for ended in ENDED.finditer(text):
        ends.setdefault(ended[1], []).append(ended.start())
    parts, at = [], 0
    for begun in BEGUN.finditer(text):
        of_tag = ends.get(begun[1], [])
        which = bisect_left(of_tag, begun.end())
        if begun.start() < at or which == len(of_tag):
            continue
        parts += [text[at : begun.end()], escape(text[begun.end() : of_tag[which]], UNQUOTED)]
        at = of_tag[which]
    return "".join([*parts, text[at:]])


def _unit(lines: list[str], told: Told) -> list[str]:
    text = "\n".join(lines)
    try:
        ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        place = min(error.position[0], len(lines)) - 1
        told(lines[place].strip()[:MOST_TOLD])
    else:
        return lines
    # Values are what somebody wrote, all of them.
    lines = _with_values_escaped(text).split("\n")
    for _ in range(MOST_LOSSES):
        try:
            ElementTree.fromstring("\n".join(lines))
        except ElementTree.ParseError as error:
            place = min(error.position[0], len(lines)) - 1
            told(lines[place].strip()[:MOST_TOLD])
            if place in (0, len(lines) - 1):
                break
            lines = _without(lines, place)
        else:
            return lines
    told(f"all of {' '.join(line.strip() for line in lines[:3])[:MOST_TOLD]}")
    return []


def _without(lines: list[str], place: int) -> list[str]:
    """The lines without what is wrong at one: a value, or an element."""
    line = lines[place]
    leaf = LEAF.fullmatch(line)
    if leaf is not None and leaf[3]:
        return [*lines[:place], f"{leaf[1]}{leaf[4]}", *lines[place + 1 :]]
    if not line.lstrip().startswith("<"):
        # A value of several lines.
        rest = line[line.rindex("</") :] if "</" in line else ""
        return [*lines[:place], rest, *lines[place + 1 :]]
    begin, end = _element(lines, place)
    return [*lines[:begin], *lines[end + 1 :]]


def _element(lines: list[str], place: int) -> tuple[int, int]:
    """The lines of the element that begins or ends at one, by how far they are indented."""
    depth = _indented(lines[place])
    if lines[place].lstrip().startswith("</"):
        begin = next(k for k in range(place - 1, -1, -1) if k == 0 or _indented(lines[k]) <= depth)
        return max(begin, 1), place
    if _indented(lines[place + 1]) <= depth:
        return place, place
    end = next((k for k in range(place + 1, len(lines)) if _indented(lines[k]) <= depth), place)
    return place, min(end, len(lines) - 2)


def _indented(line: str) -> int:
    return len(line) - len(line.lstrip())
