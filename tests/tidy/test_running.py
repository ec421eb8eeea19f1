"""How tests are run: interrupts reach what they start, and long files are begun first."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from tests.repository import ROOT
from tests.scheduling import FIRST_OF_ITS_SITE, LONGEST_FIRST, SHARING, next_unit, ordered, unit_of, waits


def test_interrupts_are_not_ignored() -> None:
    ignored = [each for each in (signal.SIGINT, signal.SIGQUIT) if signal.getsignal(each) is signal.SIG_IGN]

    assert ignored == []


def test_interrupts_are_not_ignored_in_the_background_either() -> None:
    one = f"{__file__}::{test_interrupts_are_not_ignored.__name__}"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", one]
    done = subprocess.run(
        ["/bin/sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh", *argv],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert "1 passed" in done.stdout


@pytest.mark.parametrize("name", [*LONGEST_FIRST, *SHARING])
def test_what_is_begun_first_is_there(name: str) -> None:
    assert (ROOT / name).exists()
    assert unit_of(f"{name}::test_x") == name


@pytest.mark.parametrize("name", FIRST_OF_ITS_SITE)
def test_files_on_one_site_are_there_make_none_of_their_own_and_are_one_unit(name: str) -> None:
    text = (ROOT / name).read_text()

    assert unit_of(f"{name}::test_x") == FIRST_OF_ITS_SITE[name] in LONGEST_FIRST
    assert not re.search(r"^(SETTINGS|NODES_OF_SITE|def site\b)|site_cluster", text, re.MULTILINE)


def test_what_is_repeated_at_a_cost_has_a_cheaper_test_that_always_runs() -> None:
    texts = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    wanted = [
        "".join(parts)
        for text in texts.values()
        for parts in re.findall(
            r'^@pytest\.mark\.repeats\(\s*"([^"]+)"(?:\s*"([^"]+)")?\s*\)', text, re.MULTILINE
        )
    ]
    cheaper = {
        f"{path.relative_to(ROOT)}::{name}"
        for path, text in texts.items()
        for marks, name in re.findall(r"^((?:@.*\n|[ )].*\n)*)def (test_\w+)", text, re.MULTILINE)
        if not re.search(r"^@pytest\.mark\.(long|repeats)", marks, re.MULTILINE)
    }

    assert len(wanted) == sum(text.count("\n@pytest.mark.repeats(") for text in texts.values()) > 0
    assert sorted(set(wanted) - cheaper) == []


def test_long_files_come_first_and_keep_the_order_of_their_tests(request: pytest.FixtureRequest) -> None:
    items = list(reversed(request.session.items))
    found = [unit_of(item.nodeid) for item in ordered(items)]
    mine = [item for item in ordered(items) if item.path.name == request.path.name]
    ranks = [LONGEST_FIRST.index(each) for each in found if each in LONGEST_FIRST]

    assert ranks == sorted(ranks)
    assert not ranks or found[0] in LONGEST_FIRST
    assert mine == [item for item in items if item.path.name == request.path.name]


def test_what_waits_for_daemons_is_begun_before_what_is_over_soon(request: pytest.FixtureRequest) -> None:
    names = [unit_of(item.nodeid) for item in ordered(request.session.items)]
    others = [waits(name) for name in names if name not in LONGEST_FIRST]

    assert others == sorted(others, reverse=True)
    assert False in others


@pytest.mark.parametrize(
    ("units", "of_those_that_wait", "of_those_that_compute"),
    [
        (["tests/contract/a", "tests/unit/b", "tests/unit/c"], "tests/contract/a", "tests/unit/b"),
        (["tests/unit/b", "tests/daemons/a", "tests/security/test_a"], "tests/daemons/a", "tests/unit/b"),
        (["tests/unit/b", "tests/security/growth/c"], "tests/unit/b", "tests/unit/b"),
        (["tests/contract/a", "tests/daemons/c"], "tests/contract/a", "tests/contract/a"),
    ],
)
def test_workers_begin_what_is_of_their_kind_and_help_the_others_then(
    units: list[str], of_those_that_wait: str, of_those_that_compute: str
) -> None:
    assert next_unit(units, computes=False) == of_those_that_wait
    assert next_unit(units, computes=True) == of_those_that_compute
