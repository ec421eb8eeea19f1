"""Texts against a regular expression, made of what it repeats, and how long it takes with them."""

from __future__ import annotations

import re
import re._constants as kinds  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import signal
import time
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any

from tests.security.growth.judging import ENOUGH_S, MOST_A_DOUBLING

SCREENED, LONGEST = 2048, 1 << 17
SUSPECT_S = 0.002
"""What takes less for 2 KiB cannot take time with its square: that is 2 million steps."""
CUT_S = 1.0
TAILS = ("", "\x00", "\n!", " ")
MOST_TEXTS = 120
_REPEATS = (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT)
_CATEGORIES = {
    kinds.CATEGORY_DIGIT: "7", kinds.CATEGORY_NOT_DIGIT: "x", kinds.CATEGORY_SPACE: " \t\n",
    kinds.CATEGORY_NOT_SPACE: "x-", kinds.CATEGORY_WORD: "a_", kinds.CATEGORY_NOT_WORD: " -",
}  # fmt: skip

Text = tuple[str, str, str]
"""A beginning, what is repeated, and an end."""


class _TooLong(Exception):
    """The processor time that a match may take is over."""


def texts(pattern: str | bytes, flags: int = 0) -> list[Text]:
    """For each repetition: what leads to it, what it repeats, and ends that do not match."""
    tree = parser.parse(pattern, flags)
    found = dict.fromkeys((head, piece, tail) for head, piece in _pumps(tree, "") for tail in TAILS if piece)
    whole = _least(tree)
    letters = dict.fromkeys(letter for node in _nodes(tree) for letter in _letters(node))
    more = [("", letter, tail) for letter in islice(letters, 24) for tail in TAILS]
    more += [("", whole + letter, tail) for letter in islice(letters, 8) for tail in TAILS[:2]]
    more += [("", head + piece * 2, tail) for head, piece in _pumps(tree, "") for tail in TAILS[:2] if head]
    return list(dict.fromkeys([*found, *more]))[:MOST_TEXTS]


def _pumps(tree: Any, head: str) -> Iterator[tuple[str, str]]:
    """What leads to each repetition, and what it repeats."""
    for code, value in tree:
        if code in _REPEATS:
            body = value[2]
            yield from ((head, piece) for piece in _pieces(body))
            yield from _pumps(body, head)
        else:
            for inner in _inner(code, value):
                yield from _pumps(inner, head)
        head += _least([(code, value)])


def _pieces(body: Any) -> list[str]:
    """Ways to say what is repeated: shortest, and with each of its letters if it is one."""
    if len(body) == 1:
        return list(dict.fromkeys(_letters(body[0]))) or [_least(body)]
    return [_least(body)]


def _inner(code: Any, value: Any) -> list[Any]:
    if code is kinds.SUBPATTERN:
        return [value[3]]
    if code is kinds.BRANCH:
        return list(value[1])
    if code in (kinds.ASSERT, kinds.ASSERT_NOT):
        return [value[1]]
    return [value] if code is kinds.ATOMIC_GROUP else []


def _nodes(tree: Any) -> Iterator[Any]:
    for code, value in tree:
        yield code, value
        for inner in [value[2]] if code in _REPEATS else _inner(code, value):
            yield from _nodes(inner)


def _letters(node: Any) -> str:
    """Some of what a node of one letter matches."""
    code, value = node
    if code is kinds.LITERAL:
        return chr(value)
    if code is kinds.ANY:
        return "x ."
    if code is kinds.NOT_LITERAL:
        return next(each for each in "xy" if ord(each) != value)
    if code is not kinds.IN:
        return ""
    if value[0][0] is kinds.NEGATE:
        inside = re.compile("[" + re.escape("".join(map(_letters_of_item, value[1:]))) + "\x7f]")
        return "".join(each for each in 'x1 -.,:/"\\' if not inside.match(each))[:4]
    return "".join(map(_letters_of_item, value))[:12]


def _letters_of_item(item: Any) -> str:
    code, value = item
    if code is kinds.LITERAL:
        return chr(value)
    if code is kinds.RANGE:
        return chr(value[0])
    return _CATEGORIES.get(value, "") if code is kinds.CATEGORY else ""


def _least(tree: Any) -> str:
    """One of the shortest texts that match, if nothing but letters is looked at."""
    said = ""
    for code, value in tree:
        if code in _REPEATS:
            said += _least(value[2]) * value[0]
        elif code in (kinds.ASSERT, kinds.ASSERT_NOT, kinds.AT):
            continue
        elif inner := _inner(code, value):
            said += _least(inner[0])
        else:
            said += _letters((code, value))[:1]
    return said


def growth_of(pattern: re.Pattern[Any], method: str, text: Text) -> float:
    """How many times longer it takes for twice the text; 1 if it takes no time worth a word."""
    first_s = _least_s(pattern, method, _of(text, SCREENED))
    if first_s < SUSPECT_S:
        return 1.0
    seconds, size = first_s, SCREENED
    while seconds <= ENOUGH_S and size < LONGEST:
        size *= 2
        seconds = _least_s(pattern, method, _of(text, size))
    if seconds >= CUT_S and size <= 2 * SCREENED:
        return float("inf")
    return float((seconds / first_s) ** (1 / ((size // SCREENED).bit_length() - 1 or 1)))


def is_fast(growth: float) -> bool:
    return growth <= MOST_A_DOUBLING


def _of(text: Text, size: int) -> str:
    head, piece, tail = text
    return head + piece * max(1, (size - len(head) - len(tail)) // len(piece)) + tail


def _least_s(pattern: re.Pattern[Any], method: str, text: str) -> float:
    """Of two measurements; what is given up, or quick, is so the second time."""
    first_s = _seconds(pattern, method, text)
    return min(first_s, _seconds(pattern, method, text)) if SUSPECT_S <= first_s < CUT_S else first_s


def _seconds(pattern: re.Pattern[Any], method: str, text: str) -> float:
    """Processor time of one match; it is given up after a second."""
    given: Any = text.encode("utf-8", "surrogatepass") if isinstance(pattern.pattern, bytes) else text
    run = getattr(pattern, {"sub": "findall", "subn": "findall", "split": "findall"}.get(method, method))
    if method == "finditer":
        run = pattern.findall

    def end(_number: int, _frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, end)
    begin_s = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, CUT_S)
        run(given)
    except _TooLong:
        return CUT_S
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return time.process_time() - begin_s
