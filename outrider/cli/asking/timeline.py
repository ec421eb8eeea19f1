"""`outrider timeline`: nodes against time, one letter a stretch of time, one row for nodes that are alike."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers
from outrider.cli.asking.session import Session, add_asking, add_header_option, session
from outrider.cli.errors import InputError
from outrider.cli.output import print_json

if TYPE_CHECKING:
    from outrider.cli.asking.display.terminal import Paint
    from outrider.cli.asking.display.words import When
    from outrider.service.answers.site import Stretch, Timeline
    from outrider.service.answers.transfers import TransferView

HOUR_S = 3600
DEFAULT_S = 12 * HOUR_S
FREE, PREPARING, RESERVED, OTHER, DOWN = ".", "~", "#", "o", "x"
_MARKS = {"reservation": RESERVED, "job": OTHER, "other": OTHER, "down": DOWN}
_RANK = {FREE: 0, PREPARING: 1, OTHER: 2, DOWN: 3, RESERVED: 4}
"""Which mark is seen when a letter's time holds several: what was promised above all."""
_COLOURS = {PREPARING: "yellow", RESERVED: "green", OTHER: "blue", DOWN: "red", FREE: "dim"}
MOST_NAME_COLUMNS = 24
LABEL_COLUMNS = 8
LEGEND_GAP = "   "
_EPILOG = """A letter is a stretch of time; how long is said below the rows. Nodes whose rows are the same
share one. A reservation's name stands in its marks where it fits.

examples:
  outrider timeline
  outrider timeline --from 08:00 --until 20:00 --nodes 'n[1-16]'
  outrider timeline --until now+7days
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Nodes that have the same marks and the same names in them."""

    nodes: str
    marks: str
    names: tuple[tuple[int, int, str], ...]


def add(commands: Subparsers) -> None:
    parser = add_asking(commands, "timeline", timeline, "show what is on the nodes, and when", _EPILOG)
    add_header_option(parser)
    parser.add_argument("--from", dest="start", metavar="TIME", help="the start of the period (now)")
    parser.add_argument("--until", metavar="TIME", help="the end of the period (12 hours later)")
    parser.add_argument("--nodes", metavar="NODES", help="these nodes only (those with something on them)")


def timeline(arguments: argparse.Namespace) -> None:
    from outrider.service.answers.site import Timeline
    from outrider.service.answers.transfers import TransferList

    asking = session(arguments)
    from_s = asking.when.now_s if arguments.start is None else _instant_s(arguments.start, "--from", asking)
    until_s = (
        from_s + DEFAULT_S if arguments.until is None else _instant_s(arguments.until, "--until", asking)
    )
    if until_s <= from_s:
        raise InputError("--until is not after --from: choose a later time, perhaps with its date")
    query = {"from": from_s, "until": until_s, "nodes": arguments.nodes}
    answer = asking.client.get("/v1/timeline", query)
    if asking.is_json:
        print_json(answer)
        return
    from outrider.cli.asking.display.terminal import columns

    found = asking.read(Timeline, answer)
    # Only transfers say when an image is on its way; without any of them the rest is still true.
    moving = asking.read(TransferList, asking.client.get("/v1/transfers")).transfers
    if not found.nodes:
        print("outrider: nothing is reserved in this time, and no nodes were named", file=sys.stderr)
        return
    print(picture(found, moving, asking.when, asking.paint, columns(), has_header=asking.has_header))
    if not found.is_complete:
        print("outrider: there is more than the service shows at once; name fewer --nodes", file=sys.stderr)


def picture(
    found: Timeline,
    moving: Sequence[TransferView],
    when: When,
    paint: Paint,
    wide: int,
    *,
    has_header: bool = True,
) -> str:
    """The rows between an axis and what their marks mean."""
    # How wide the names are depends on which rows are alike, and that on what is left for the rows.
    needed = min(MOST_NAME_COLUMNS, max(len(node) for node in found.nodes))
    names_wide = 0
    while needed > names_wide:
        names_wide = needed
        scale = scale_for(found.from_s, found.until_s, max(10, wide - names_wide - 2))
        shown = rows(found, moving, scale)
        needed = min(MOST_NAME_COLUMNS, max(len(row.nodes) for row in shown))
    written = [" " * (names_wide + 2) + line for line in scale.axis(when)] if has_header else []
    for row in shown:
        name = row.nodes if len(row.nodes) <= names_wide else row.nodes[: names_wide - 1] + "…"
        written.append(f"{name.ljust(names_wide)}  {_painted(row, paint)}")
    return "\n".join([*written, *(_legend(shown, scale.step_s, wide, paint) if has_header else [])])


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Which letter stands for which seconds."""

    from_s: int
    step_s: int
    count: int

    def letters(self, start_s: int, end_s: int) -> range:
        """Those that a half-open interval touches."""
        first = max(0, (start_s - self.from_s) // self.step_s)
        last = min(self.count, -(-(end_s - self.from_s) // self.step_s))
        return range(first, max(first, last))

    def axis(self, when: When) -> list[str]:
        """A line of times, and below it a line with their ticks."""
        times, ticks = [" "] * self.count, [" "] * self.count
        free_from = 0
        end_s = self.from_s + self.step_s * self.count
        for at_s in round_instants(self.from_s, end_s, self.step_s * LABEL_COLUMNS, when):
            letter = (at_s - self.from_s) // self.step_s
            label = when.label(at_s)
            ticks[letter] = "|"
            if letter >= free_from and letter + len(label) <= self.count:
                times[letter : letter + len(label)] = label
                free_from = letter + len(label) + 1
        return ["".join(times).rstrip(), "".join(ticks).rstrip()]


def scale_for(from_s: int, until_s: int, most: int) -> Scale:
    """At most so many letters; none stands for less than a second, nor ends at a fraction of one."""
    step_s = max(1, -(-(until_s - from_s) // most))
    return Scale(from_s=from_s, step_s=step_s, count=-(-(until_s - from_s) // step_s))


def round_instants(from_s: int, until_s: int, least_s: int, when: When) -> Iterable[int]:
    """Instants at whole quarters, hours or days of the user's clock, no closer together than this."""
    choices = (60, 300, 900, 1800, HOUR_S, 2 * HOUR_S, 4 * HOUR_S, 6 * HOUR_S, 12 * HOUR_S, 24 * HOUR_S)
    every_s = next((each for each in choices if each >= least_s), -(-least_s // (24 * HOUR_S)) * 24 * HOUR_S)
    offset_s = when.offset_s(from_s)
    first_s = -(-(from_s + offset_s) // every_s) * every_s - offset_s
    return range(first_s, until_s, every_s)


def rows(found: Timeline, moving: Sequence[TransferView], scale: Scale) -> list[Row]:
    """One row for each set of nodes that are alike, in the order of their first node."""
    from outrider.cli.asking.display.staging import folded

    stretches: dict[str, list[Stretch]] = {node: [] for node in found.nodes}
    for each in found.stretches:
        stretches.setdefault(each.node, []).append(each)
    arriving = _arriving(moving, stretches)
    alike: dict[tuple[str, tuple[tuple[int, int, str], ...]], list[str]] = {}
    for node, some in stretches.items():
        marks = _marks(some, arriving.get(node, []), scale)
        alike.setdefault((marks, _names(some, scale)), []).append(node)
    return [Row(nodes=folded(nodes), marks=marks, names=names) for (marks, names), nodes in alike.items()]


def _arriving(
    moving: Sequence[TransferView], known: Mapping[str, object]
) -> dict[str, list[tuple[int, int]]]:
    """For each node when images are on their way to it."""
    from outrider.metadata.errors import TextError
    from outrider.metadata.notation.hostlists import expand

    found: dict[str, list[tuple[int, int]]] = {}
    for each in moving:
        end_s = each.ready_s or each.deadline_s
        try:
            names = expand(each.nodes) if end_s else ()
        except TextError:
            names = ()
        for name in names:
            if name in known and end_s:
                found.setdefault(name, []).append((each.begin_s, end_s))
    return found


def _marks(stretches: Sequence[Stretch], arriving: Sequence[tuple[int, int]], scale: Scale) -> str:
    marks = [FREE] * scale.count
    for start_s, end_s, mark in (
        *((start_s, end_s, PREPARING) for start_s, end_s in arriving),
        *((each.start_s, each.end_s, _MARKS.get(each.kind, OTHER)) for each in stretches),
    ):
        for letter in scale.letters(start_s, end_s):
            if _RANK[mark] > _RANK[marks[letter]]:
                marks[letter] = mark
    return "".join(marks)


def _names(stretches: Sequence[Stretch], scale: Scale) -> tuple[tuple[int, int, str], ...]:
    """Where a reservation's name fits between its marks, with one of them on either side. Of several that
    share a node at a time the names stand there that come first."""
    found: list[tuple[int, int, str]] = []
    for each in sorted(stretches, key=lambda each: (each.start_s, each.name)):
        letters = scale.letters(each.start_s, each.end_s)
        if each.kind == "reservation" and each.name.isprintable() and len(each.name) + 2 <= len(letters):
            begin = letters.start + (len(letters) - len(each.name)) // 2
            end = begin + len(each.name)
            if all(end < other[0] or other[1] < begin for other in found):
                found.append((begin, end, each.name))
    return tuple(sorted(found))


def _painted(row: Row, paint: Paint) -> str:
    """Marks in runs of one colour, with the names in them."""
    letters = list(row.marks)
    for begin, end, name in row.names:
        letters[begin:end] = name
    written = ""
    begin = 0
    for at in range(1, len(letters) + 1):
        if at == len(letters) or row.marks[at] != row.marks[begin]:
            written += paint("".join(letters[begin:at]), _COLOURS[row.marks[begin]])
            begin = at
    return written


def _legend(shown: Sequence[Row], step_s: int, wide: int, paint: Paint) -> list[str]:
    from cachemgr.base.times import span_in_words

    meanings = {
        PREPARING: "an image is arriving", RESERVED: "reserved", OTHER: "a job, or others' reservation",
        DOWN: "down", FREE: "free",
    }  # fmt: skip
    seen = [mark for mark in meanings if any(mark in row.marks for row in shown)]
    entries = [
        (f"{mark} {meanings[mark]}", f"{paint(mark, _COLOURS[mark])} {meanings[mark]}") for mark in seen
    ]
    letter = f"(a letter is {span_in_words(step_s)})"
    written, free = [""], 0
    for bare, painted in (*entries, (letter, letter)):
        if len(bare) > free:
            written.append(painted)
            free = wide - len(bare)
        else:
            written[-1] += f"{LEGEND_GAP}{painted}"
            free -= len(bare)
        free -= len(LEGEND_GAP)
    return written


def _instant_s(text: str, option: str, asking: Session) -> int:
    from outrider.metadata.errors import TextError
    from outrider.metadata.notation.times import parse_instant

    try:
        return parse_instant(text, now_s=asking.when.now_s, zone=asking.zone)
    except TextError as error:
        raise InputError(f"{option}: {error}") from error
