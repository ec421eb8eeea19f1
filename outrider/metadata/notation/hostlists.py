"""Sets of nodes as batch systems write them: `n[1-4,7]`, `rack[1-2]n[01-16]`, `login,n[1-3]`.

What these functions return are names, never paths or arguments of a shell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from math import prod

from outrider.metadata.errors import TextError, shown

MOST_NAMES = 100_000
"""How many names a list may stand for unless the caller says otherwise."""
MOST_CHARACTERS = 65_536
MOST_DIGITS = 18
MOST_NAME_CHARACTERS = 253
"""Of one name, as of a host's: a long one would be written out once for each number behind it."""
MOST_KNOWN = 1 << 15
"""How many names are remembered with what they are made of."""

_FORMS = "write names and sets like login,n[1-4,7],rack[1-2]n[01-16]"
_LITERAL = re.compile(r"[A-Za-z0-9._:-]+")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_PIECE = re.compile(r"([0-9]{1,18})")
Range = tuple[int, int, int]
"""The first and the last number, and the width to which both are filled with zeros."""


def expand(text: str, *, limit: int = MOST_NAMES) -> tuple[str, ...]:
    """The names that a list stands for, in the order written. A name may stand in it once only.

    How many there are is known before the first is made, so a short text cannot fill memory.
    """
    if len(text) > MOST_CHARACTERS:
        raise TextError(
            f"a list of nodes of {len(text)} characters is too long: at most {MOST_CHARACTERS} are read"
        )
    items = [_item(each) for each in _split(text)]
    for item in items:
        if sum(map(_longest, item)) > MOST_NAME_CHARACTERS:
            raise TextError(
                f"{shown(text)} has a name of more than {MOST_NAME_CHARACTERS} characters: {_FORMS}"
            )
    count = sum(prod(map(_size, item)) for item in items)
    if count > limit:
        raise TextError(f"{shown(text)} stands for {count} names: at most {limit} are allowed here")
    names = tuple("".join(parts) for item in items for parts in product(*map(_texts, item)))
    if len(set(names)) < len(names):
        twice = next(name for name, times in Counter(names).items() if times > 1)
        raise TextError(f"{shown(text)} names {twice} twice: leave one of them out")
    return names


def fold(names: Iterable[str]) -> str:
    """The shortest usual way to write these names: n1, n2, n3, n7 become n[1-3,7].

    Numbers are folded from the right, so that rack1n1, rack1n2, rack2n1, rack2n2 become
    rack[1-2]n[1-2]. Names that are alike stand together, otherwise they are in their
    natural order: n2 before n10.
    """
    taken = {name: _row(name) for name in names}
    rows = [taken[name] for name in sorted(taken, key=natural)]
    longest = max((len(row) for row in rows), default=0)
    for position in range(longest - longest % 2 - 1, 0, -2):
        rows = _fold_at(rows, position)
    return ",".join("".join(row) for row in rows)


# The names of one site come again and again, in every reservation: they are taken apart once.
@lru_cache(maxsize=MOST_KNOWN)
def _row(name: str) -> tuple[str, ...]:
    """A name's texts and numbers in turns."""
    if len(name) > MOST_NAME_CHARACTERS or not _LITERAL.fullmatch(name) or name.startswith("-"):
        raise TextError(f"{shown(name)} is not the name of a node: {_FORMS}")
    return tuple(_PIECE.split(name))


@lru_cache(maxsize=MOST_KNOWN)
def natural(name: str) -> tuple[tuple[str, int, str], ...]:
    """A key that sorts names as people count: n2 before n10."""
    pieces = _PIECE.split(name)
    numbers = [*pieces[1::2], ""]
    return tuple((text, int(number or -1), number) for text, number in zip(pieces[::2], numbers, strict=True))


def _fold_at(rows: list[tuple[str, ...]], position: int) -> list[tuple[str, ...]]:
    """The rows that differ in one number alone become one row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        rest = row[:position] + row[position + 1 :]
        number = row[position] if position < len(row) else ""
        alike.setdefault((rest if number else row), []).append(number)
    folded: list[tuple[str, ...]] = []
    for rest, numbers in alike.items():
        if numbers == [""]:
            folded.append(rest)
        else:
            folded.append((*rest[:position], _ranges(numbers), *rest[position:]))
    return folded


def _ranges(numbers: list[str]) -> str:
    """Numbers as ranges. A range goes on with the text that counting up from its first number gives."""
    if len(numbers) == 1:
        return numbers[0]
    run, last, width = [numbers[0]], int(numbers[0]), len(numbers[0])
    runs = [run]
    expected: dict[str, list[str]] = {}
    for number in numbers[1:]:
        value = int(number)
        # Mostly it goes on with the last one, whose next text then need not be made.
        if value == last + 1 and len(number) == (width if number[0] == "0" else max(width, len(number))):
            run.append(number)
            last = value
            continue
        following = f"{last + 1:0{width}}"
        if len(following) <= MOST_DIGITS:
            expected[following] = run
        found = expected.pop(number, None)
        if found is None:
            found = []
            runs.append(found)
        found.append(number)
        run, last, width = found, value, len(found[0])
    return f"[{','.join(run[0] if len(run) == 1 else f'{run[0]}-{run[-1]}' for run in runs)}]"


def _split(text: str) -> list[str]:
    """The items between the commas that are not in brackets."""
    items: list[str] = []
    depth = start = 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if not 0 <= depth <= 1:
            raise TextError(f"a bracket too many in {shown(text[start : at + 1])}: {_FORMS}")
        if character == "," and depth == 0:
            items.append(text[start:at].strip())
            start = at + 1
    if depth:
        raise TextError(f"a bracket is not closed in {shown(text[start:])}: {_FORMS}")
    items.append(text[start:].strip())
    if "" in items:
        raise TextError(f"a name is missing in {shown(text)}: {_FORMS}")
    return items


def _item(item: str) -> list[str | list[Range]]:
    """An item as literal texts and bracketed ranges by turns."""
    if item.startswith("-"):
        raise TextError(f"{shown(item)} begins with a hyphen: a name begins with a letter or a digit")
    pieces: list[str | list[Range]] = []
    for number, piece in enumerate(re.split(r"\[([^][]*)\]", item)):
        if number % 2:
            pieces.append([_range(part.strip(), item) for part in piece.split(",")])
        elif piece:
            found = _LITERAL.match(piece)
            if found is None or found.end() < len(piece):
                culprit = piece[found.end() if found else 0]
                raise TextError(f"{shown(culprit)} in {shown(item)} cannot be part of a name: {_FORMS}")
            pieces.append(piece)
    return pieces


def _range(part: str, item: str) -> Range:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise TextError(f"{shown(part)} in {shown(item)} is neither a number nor a range like 1-4: {_FORMS}")
    low, high = found[1], found[2] or found[1]
    if len(high) > MOST_DIGITS or len(low) > MOST_DIGITS:
        raise TextError(f"{shown(part)} in {shown(item)} has more than {MOST_DIGITS} digits")
    if int(low) > int(high):
        raise TextError(f"{shown(part)} in {shown(item)} counts down: write {high}-{low}")
    if f"{int(high):0{len(low)}}" != high:
        raise TextError(f"{shown(part)} in {shown(item)} fills its ends with zeros differently: write 01-16")
    return int(low), int(high), len(low)


def _size(piece: str | list[Range]) -> int:
    return 1 if isinstance(piece, str) else sum(high - low + 1 for low, high, _ in piece)


def _longest(piece: str | list[Range]) -> int:
    """How many characters a piece has in the longest of its names."""
    return (
        len(piece) if isinstance(piece, str) else max(max(len(str(high)), width) for _, high, width in piece)
    )


def _texts(piece: str | list[Range]) -> Iterator[str]:
    if isinstance(piece, str):
        yield piece
        return
    for low, high, width in piece:
        for number in range(low, high + 1):
            yield f"{number:0{width}}"
