"""Every regular expression of the product is listed in expressions.md, and grows as its text does."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from outrider.metadata import fields
from tests.security.growth.attacks import growth_of, is_fast, texts
from tests.security.growth.patterns import Written, compiled, lua_patterns, methods, written

KINDS = ("Name", "Account", "Digest", "Mode", "Argument")
# What is made of what a function was given, with what it is given.
GIVEN = {
    ("outrider/metadata/fields.py", "pattern"): [
        getattr(fields, kind).__metadata__[1].json_schema["pattern"] for kind in KINDS
    ],
    ("outrider/cli/installing/common/headfiles.py", "f'(?m)^ +{key}: *(\\\\S+)'"): [r"(?m)^ +key: *(\S+)"],
}


def expressions(each: Written) -> list[re.Pattern[str] | re.Pattern[bytes]]:
    given = GIVEN.get((each.file, each.label))
    return [compiled(each)] if given is None else [re.compile(text) for text in given]


def used(each: Written) -> list[str]:
    """How it is used; what is only handed on is matched in full."""
    return sorted(methods(each) - {"compile"}) or ["fullmatch", "match"]


def files() -> list[str]:
    return sorted({each.file for each in written()})


@pytest.mark.parametrize("file", files())
def test_time_of_an_expression_grows_as_its_text(file: str) -> None:
    too_fast = {}
    for each in (each for each in written() if each.file == file):
        for pattern in expressions(each):
            for text in texts(pattern.pattern, pattern.flags & ~re.UNICODE):
                for method in used(each):
                    growth = growth_of(pattern, method, text)
                    # Once more: a machine with other things to do may have been slow for a moment.
                    if not is_fast(growth) and not is_fast(growth := growth_of(pattern, method, text)):
                        too_fast[each.label, method, text] = growth

    assert too_fast == {}


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"\s+$", r"(?:a|aa)+$", r"[ab]*?c", r"x*y*z", r"[a-z]+=\d+:"])
def test_expression_that_backtracks_is_found(pattern: str) -> None:
    found = re.compile(pattern)

    assert not all(is_fast(growth_of(found, "search", text)) for text in texts(pattern))


def listed() -> dict[str, set[str]]:
    """The patterns that expressions.md names, by file."""
    table = Path(__file__).with_name("expressions.md").read_text()
    found: dict[str, set[str]] = defaultdict(set)
    for line in table.splitlines():
        cells = [cell.replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)]
        if len(cells) == 5 and cells[1].startswith(" `"):
            found[cells[1].strip(" `")] |= {each for _, each in re.findall(r"(`+) ?(.+?) ?\1(?!`)", cells[2])}
    return found


def test_every_expression_is_listed_and_none_that_is_not_there() -> None:
    there: dict[str, set[str]] = defaultdict(set)
    for each in written():
        there[each.file].add(each.label)
    for file, label in lua_patterns():
        there[file].add(label)

    assert listed() == there
