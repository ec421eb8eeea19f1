"""How tests are run: interrupts reach what they start, and long files are begun first."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.repository import ROOT
from tests.scheduling import LONGEST_FIRST, SHARING, WAITING, ordered, unit_of


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
    others = [name.startswith(WAITING) for name in names if name not in LONGEST_FIRST]

    assert others == sorted(others, reverse=True)
    assert False in others
