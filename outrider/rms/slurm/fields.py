"""Values out of Slurm's output: both of its ways to write a number in JSON, and its key=value texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TypeGuard

from outrider.rms.base import RmsError

MOST_NUMBER = 1 << 62
MOST_SHOWN = 80
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_DECODER = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\r\n]*")
_FACTOR = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,18}))?")
_AMOUNT = re.compile(r"(\d{1,18})(?:\.(\d+))?([KMGTP]?)")


class BadField(RmsError):
    """Slurm printed something else than it is known to."""


def document(data: bytes, what: str) -> dict[str, object]:
    """The JSON that a command has printed."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadField(f"{what} printed no JSON ({error}): see what it prints by hand") from error
    if not isinstance(found, dict):
        raise BadField(f"{what} printed JSON that is not an object")
    return found


def entries(found: Mapping[str, object], name: str, what: str) -> list[object]:
    rows = found.get(name)
    if not isinstance(rows, list):
        raise BadField(f"{what} printed JSON without a list of {name}")
    return rows


def each_entry(data: bytes, name: str, what: str) -> Iterator[object]:
    """The rows of a list in the JSON that a command has printed, one after the other.

    Whoever takes a large text apart as a whole holds up all other threads meanwhile.
    """
    printed = data.decode("utf-8", "replace")
    try:
        at = _after(printed, 0, "{")
        while True:
            key, at = _DECODER.raw_decode(printed, _blanks(printed, at))
            at = _blanks(printed, _after(printed, at, ":"))
            if key == name and printed[at : at + 1] == "[":
                yield from _rows(printed, at + 1)
                return
            _, at = _DECODER.raw_decode(printed, at)
            at = _blanks(printed, at)
            if printed[at : at + 1] == "}":
                raise BadField(f"{what} printed JSON without a list of {name}")
            at = _after(printed, at, ",")
    except (ValueError, RecursionError) as error:
        raise BadField(f"{what} printed no JSON ({error}): see what it prints by hand") from error


def _rows(printed: str, at: int) -> Iterator[object]:
    at = _blanks(printed, at)
    if printed[at : at + 1] == "]":
        return
    while True:
        row, at = _DECODER.raw_decode(printed, at)
        yield row
        at = _blanks(printed, at)
        if printed[at : at + 1] == "]":
            return
        at = _blanks(printed, _after(printed, at, ","))


def _after(printed: str, at: int, sign: str) -> int:
    at = _blanks(printed, at)
    if printed[at : at + 1] != sign:
        raise ValueError(f"{sign!r} is expected at character {at}")
    return at + 1


def _blanks(printed: str, at: int) -> int:
    found = _BLANKS.match(printed, at)
    assert found is not None
    return found.end()


def text(row: Mapping[str, object], name: str) -> str:
    """A text; None and what is absent are empty."""
    value = row.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _bad(name, value, "a text")
    return value


def number(row: Mapping[str, object], name: str) -> int | None:
    """A number that is at least 0; None if there is none, or it is without a limit."""
    value = row.get(name)
    if _is_plain(value):
        if value.get("infinite") is True or value.get("set") is False:
            return None
        value = value.get("number")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_NUMBER:
        raise _bad(name, value, "a number that is not negative")
    return value


def needed(row: Mapping[str, object], name: str) -> int:
    """A number that has to be there."""
    found = number(row, name)
    if found is None:
        raise BadField(f"field {name} is missing")
    return found


def words(row: Mapping[str, object], name: str) -> tuple[str, ...]:
    """One word or a list of them: states are the one in 22.05 and the other later."""
    value = row.get(name)
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise _bad(name, value, "a word or words")


def amounts(tres: str) -> Iterator[tuple[str, int]]:
    """`cpu=4,mem=200M,gres/gpu=2` in pieces; sizes without a unit are as they stand."""
    for part in tres.split(","):
        name, equals, value = part.partition("=")
        found = _AMOUNT.fullmatch(value)
        if not equals or found is None:
            continue
        whole, fraction, unit = found[1], found[2] or "0", _SIZES[found[3]]
        yield name, int(whole) * unit + int(fraction) * unit // 10 ** len(fraction)


def value_in(line: str, name: str) -> str | None:
    """The value of a key in a line of `scontrol -o show`, up to the next blank; None if there is none."""
    key = f"{name}="
    at = 0 if line.startswith(key) else line.find(f" {key}") + 1
    if at == 0 and not line.startswith(key):
        return None
    begin = at + len(key)
    end = line.find(" ", begin)
    value = line[begin:] if end < 0 else line[begin:end]
    return "" if value in ("(null)", "N/A", "None") else value


def _is_plain(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _bad(name: str, value: object, wanted: str) -> BadField:
    return BadField(f"field {name} is {str(value)[:MOST_SHOWN]!r}, not {wanted}")


def shares_in(printed: bytes) -> dict[str, int]:
    """Fair share factors in millionths by user, as `sshare --format=User,FairShare` prints them."""
    found: dict[str, int] = {}
    for line in printed.decode("utf-8", "replace").splitlines():
        user, _, factor = line.strip().partition("|")
        known = _FACTOR.fullmatch(factor)
        if user and known is not None:
            millionths = int(known[1]) * 1_000_000 + int((known[2] or "").ljust(6, "0")[:6])
            found[user] = max(found.get(user, 0), millionths)
    return found
