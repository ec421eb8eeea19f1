"""A link.rate that is higher than what transfers get: named, with the measured rate, until it is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.cli.installing.common.findings import Level
from outrider.cli.installing.common.headchecks import link_findings
from outrider.service.answers.site import Status
from outrider.service.desk.reservations.link_rate import LinkWatch
from outrider.service.requests import ShowStatus
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import ADMIN, RATE, Sandbox, reserve

MB = 1_000_000
SIZE = 100 * RATE
LONG = 100 * 10 * MB


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path, settings=Settings(link_rate_bytes_per_s=RATE, reserve_s=0))
    yield made
    made.close()


def status(sandbox: Sandbox) -> Status:
    answer = sandbox.ask(ShowStatus(), ADMIN)
    assert isinstance(answer, Status)
    return answer


def carry(sandbox: Sandbox, *servers: str) -> None:
    """One transfer from each of these servers, to its end."""
    for number, server in enumerate(servers):
        image = f"{sandbox.now_s}-{number}"
        made = reserve(
            sandbox, server=server, image=image, size_bytes=SIZE, start="now+1hours", duration="5m"
        )
        assert made.result == "accepted"
        sandbox.sleep(2 * 3600)


def set_rates(sandbox: Sandbox, percent: int) -> None:
    for pool in sandbox.pools.values():
        pool.rate_bytes_per_s = RATE * percent // 100


def test_link_that_gives_less_to_several_servers_is_named_until_it_is_right(sandbox: Sandbox) -> None:
    set_rates(sandbox, 50)
    carry(sandbox, "a.example", "b.example", "a.example")
    slow = status(sandbox)
    set_rates(sandbox, 100)
    carry(sandbox, "a.example")
    right = status(sandbox)

    assert slow.is_link_doubted
    assert slow.link_measured_bytes_per_s == pytest.approx(RATE / 2, rel=0.1)
    assert f"set link.rate to {slow.link_measured_bytes_per_s}" in slow.link_words
    (finding,) = link_findings(slow)
    assert (finding.level, finding.words) == (Level.WARNING, slow.link_words)
    assert any("link is slower than planned" in line for line in sandbox.log.lines)
    assert (right.is_link_doubted, right.link_words, link_findings(right)) == (False, "", [])


def test_one_slow_server_is_no_slow_link() -> None:
    watch = LinkWatch()
    for _ in range(5):
        watch.note("https://a.example/x", LONG, 200, 10 * MB)

    assert not watch.is_doubted
    assert "all from a.example" in watch.words


def test_one_server_that_gets_the_whole_rate_clears_the_link() -> None:
    watch = LinkWatch()
    for name in "abab":
        watch.note(f"https://{name}.example/x", LONG, 200, 10 * MB)
    doubted = watch.is_doubted
    watch.note("https://c.example/x", LONG, 105, 10 * MB)
    for name in "abab":
        watch.note(f"https://{name}.example/x", LONG, 200, 10 * MB)

    assert doubted
    assert (watch.is_doubted, watch.words) == (False, "")


def test_short_transfers_and_such_as_had_a_part_say_nothing() -> None:
    watch = LinkWatch()
    for name in "abab":
        watch.note(f"https://{name}.example/x", 10 * 10 * MB, 60, 10 * MB)
        watch.note(f"https://{name}.example/x", LONG, 50, 10 * MB)

    assert watch.measured_bytes_per_s is None
