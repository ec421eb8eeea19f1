"""JSON as the API reads it: UTF-8, not deep, no key twice, no number that only some programs can hold.

What is too deep or has too many values is refused by a look at its brackets and commas, before
anything is built from it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import NoReturn

from outrider.metadata.errors import shown

MOST_DEPTH = 32
MOST_TOKENS = 20_000
MOST_DIGITS = 18

# A text is one token, closed or not: without going back, so that no input takes more than one pass.
_TOKEN = re.compile(rb'(?s)"(?:[^"\\]*+(?:\\.)?+)*+"?|[][{},]')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class JsonError(ValueError):
    """One sentence on why it is not read."""


def parse_json(content: bytes) -> object:
    """The value in these bytes. Raises JsonError."""
    _check_shape(content)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start} of the body is not UTF-8: write it as UTF-8") from None
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_int=_integer,
            parse_float=_fraction,
        )
    except json.JSONDecodeError as error:
        raise JsonError(
            f"the body is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    if _SURROGATE.search(text):
        _check_surrogates(value)
    return value


def _check_shape(content: bytes) -> None:
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(content)):
        first = content[token.start()]
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
        if depth > MOST_DEPTH:
            raise JsonError(f"the body is nested deeper than {MOST_DEPTH} levels: nothing here needs that")
        if count >= MOST_TOKENS:
            raise JsonError(f"the body has more than {MOST_TOKENS} values and brackets: send less")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise JsonError(f"{shown(twice)} is twice in one object: keep one of them")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not a number in JSON: leave it out")


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MOST_DIGITS:
        raise JsonError(f"a number has more than {MOST_DIGITS} digits: nothing here is so large")
    return int(digits)


def _fraction(text: str) -> NoReturn:
    raise JsonError(f"{shown(text)} is not a whole number: times and sizes are whole numbers here")


def _check_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise JsonError("a text has half of a character (\\ud800 to \\udfff alone): write it whole") from None
