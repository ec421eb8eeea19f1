"""What the doctor says of a node's clock by what its daemon answers alone."""

from __future__ import annotations

import pytest

from cachemgr.base.clock import SystemClock
from outrider.cli.installing.nodechecks import NodeChecks


class Fixed(SystemClock):
    def now_s(self) -> int:
        return 1_800_000_000


def said(found: dict[str, object]) -> list[str]:
    checks = NodeChecks(keys=(), port=1, kit=None, remote=None, clock=Fixed())
    return [each.words for each in checks._time("n1", found)]


@pytest.mark.parametrize(
    ("off_s", "words"),
    [
        (2, []),
        (-2, []),
        (86_400, ["is 1 day ahead of the head's: pins, tickets and MUNGE fail; start chrony"]),
        (-90, ["is 2 minutes back of the head's: pins, tickets and MUNGE fail; start chrony"]),
    ],
)
def test_clock_of_a_node_is_compared_with_the_heads(off_s: int, words: list[str]) -> None:
    assert said({"now_s": 1_800_000_000 + off_s, "clock_trouble": ""}) == words


def test_node_that_doubts_its_clock_says_so_itself() -> None:
    words = "the clock was set 1 day ahead: nothing ends"

    assert said({"now_s": 1_800_000_000, "clock_trouble": words}) == [words]


def test_daemon_of_an_earlier_version_says_nothing_of_its_clock() -> None:
    assert said({"version": "0"}) == []
