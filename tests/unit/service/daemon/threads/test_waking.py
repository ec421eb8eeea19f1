"""A submit filter wakes the service: it looks at once, and a flood costs no more looks than a bound."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from outrider.service.daemon.measures.metrics import Metrics
from outrider.service.daemon.threads.loop import Loop, Opened
from outrider.service.daemon.world.lookpace import AGAIN_S, LEAST_PAUSE_S, SETTLE_S, SHARE, LookPace
from outrider.service.daemon.world.wakefile import REST_S, WakeFile
from outrider.service.ports import Result
from outrider.service.requests import EndSubmission
from tests.unit.service.daemon.fakes import ADA, FakeDesk, eventually, text_log

CLOCK = SystemClock()
STEP_S = 0.01


def looks(pace: LookPace, wakes_s: list[float], until_s: float, took_s: float) -> list[float]:
    """When looks begin that take so long each, if somebody says at these instants that there is something
    new."""
    begun: list[float] = []
    ends_s: float | None = None
    waiting = sorted(wakes_s)
    for step in range(round(until_s / STEP_S)):
        now_s = step * STEP_S
        if ends_s is not None and now_s >= ends_s:
            pace.ended(now_s)
            ends_s = None
        while waiting and waiting[0] <= now_s:
            pace.want(waiting.pop(0))
        if pace.wait_s(now_s) == 0:
            pace.told(now_s)
            pace.began(now_s)
            begun.append(now_s)
            ends_s = now_s + took_s
    return begun


def test_whoever_wakes_is_looked_for_within_a_moment_and_once_more() -> None:
    begun = looks(LookPace(), [1.0], 60, took_s=0.05)

    assert begun == [
        pytest.approx(1.0 + SETTLE_S, abs=2 * STEP_S),
        pytest.approx(1 + AGAIN_S, abs=2 * STEP_S),
    ]


def test_nobody_looks_unless_somebody_wakes() -> None:
    assert looks(LookPace(), [], 60, took_s=0.05) == []


@pytest.mark.parametrize("took_s", [0.01, 0.5, 3.0])
def test_flood_of_wakes_costs_a_bounded_part_of_the_time(took_s: float) -> None:
    begun = looks(LookPace(), [each * STEP_S for each in range(6_000)], 60, took_s=took_s)

    most = 60 / (took_s + max(LEAST_PAUSE_S, SHARE * took_s)) + 1
    assert most / 2 < len(begun) <= most


def test_who_wakes_while_a_look_is_under_way_is_looked_for_after_it() -> None:
    begun = looks(LookPace(), [1.0, 1.5], 20, took_s=1.0)

    assert len([at_s for at_s in begun if at_s > 1.5 + SETTLE_S]) >= 1


def test_regular_look_serves_whoever_woke_before() -> None:
    pace = LookPace()
    pace.want(10.0)
    pace.began(10.5)
    pace.ended(10.6)

    assert pace.wait_s(10.7) == pytest.approx(AGAIN_S - 0.7)
    pace.began(11.2)
    pace.ended(11.3)
    assert pace.wait_s(60.0) is None


@contextmanager
def listening(folder: Path) -> Iterator[tuple[WakeFile, list[float], io.StringIO]]:
    told: list[float] = []
    log = io.StringIO()
    made = WakeFile(str(folder / "outriderd.sock"), lambda: told.append(CLOCK.monotonic_s()), text_log(log))
    made.start()
    try:
        yield made, told, log
    finally:
        made.stop()


def test_opening_the_file_for_reading_wakes(tmp_path: Path) -> None:
    with listening(tmp_path) as (_, told, log):
        (tmp_path / "wake").read_bytes()

        eventually(lambda: len(told) == 1, "the wake-up", log)
    assert (tmp_path / "wake").stat().st_mode & 0o777 == 0o644


def test_flood_is_heard_of_a_few_times_a_second(tmp_path: Path) -> None:
    with listening(tmp_path) as (_, told, log):
        began_s = CLOCK.monotonic_s()
        while CLOCK.monotonic_s() < began_s + 20 * REST_S:
            os.close(os.open(tmp_path / "wake", os.O_RDONLY))
        eventually(lambda: len(told) > 1, "several wake-ups", log)
        took_s = CLOCK.monotonic_s() - began_s

    assert len(told) <= took_s / REST_S + 2


def test_file_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    with listening(tmp_path) as (made, told, log):
        (tmp_path / "wake").unlink()
        made.tend()
        assert (tmp_path / "wake").exists()
        (tmp_path / "wake").read_bytes()

        eventually(lambda: len(told) >= 1, "the wake-up", log)


def test_what_is_no_file_is_named_and_stops_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "wake")
    with listening(tmp_path) as (made, told, log):
        made.tend()

        assert told == []
        assert log.getvalue().count("submit filters cannot wake the service") == 1
        assert "it is not a regular file: remove it" in log.getvalue()


class Watched:
    """A loop over a small desk, and the looks that it asks for."""

    def __init__(self) -> None:
        self.desk = FakeDesk()
        self.calls: list[Callable[[Result], None]] = []
        self.loop: Loop[FakeDesk] = Loop(
            lambda: Opened(desk=self.desk, close=lambda: None),
            lambda call, done: self.calls.append(done),
            log=text_log(io.StringIO()),
            meter=Metrics(),
            clock=CLOCK,
        )


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    made.loop.start()
    yield made
    made.loop.stop(30)


def test_service_that_is_woken_looks_at_the_batch_system(watched: Watched) -> None:
    watched.loop.wake()
    watched.loop.wake()
    eventually(lambda: len(watched.calls) == 1, "a look")
    # Whatever else comes waits until that is back.
    watched.loop.wake()
    watched.calls[0](None)
    eventually(lambda: len(watched.calls) == 2, "a look for who came meanwhile")

    assert watched.desk.heard.count("woken") == 2


def test_job_that_the_service_has_handed_in_is_looked_for(watched: Watched) -> None:
    refused = watched.loop.ask(ADA, EndSubmission(key="k-1", request_hash="h"))
    refused.result(30)
    handed = watched.loop.ask(ADA, EndSubmission(key="k-2", request_hash="h", job="17"))
    eventually(lambda: len(watched.calls) == 1, "a look")

    assert handed.done()
    assert watched.desk.heard == ["ended ", "ended 17", "woken"]
