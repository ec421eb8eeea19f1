"""Somebody sets the clock of the service's machine: it is said, nothing is promised or over meanwhile,
and it goes on without a restart."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from cachemgr.base.clock import SystemClock
from outrider.service.answers.site import Status
from outrider.service.daemon.measures.health import judge
from outrider.service.daemon.measures.metrics import Metrics
from outrider.service.daemon.threads.loop import Loop, Opened
from outrider.service.desk.desk import Event, Outcome
from outrider.service.requests import Asked, Show, ShowStatus
from tests.unit.service.daemon.fakes import ADA, PATIENCE_S, FakeDesk, eventually, reply, status, text_log

DAY_S, YEAR_S = 86_400, 31_557_600
JUMPS_S = (60, 3_600, DAY_S, YEAR_S, 10 * YEAR_S)
BOTH_WAYS_S = tuple(sign * each for each in JUMPS_S for sign in (1, -1))


class Clocks(SystemClock):
    """Two clocks in a test's hands: time passes for both, and one can be set."""

    def __init__(self) -> None:
        self.passed_s = 0
        self.set_s = 0

    def now_s(self) -> int:
        return super().now_s() + self.passed_s + self.set_s

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.passed_s


@dataclass
class HonestDesk(FakeDesk):
    """Promises nothing while the time is in doubt, and notes what time it is told."""

    told_s: list[int] = field(default_factory=list)

    def handle(self, event: Event, now_s: int) -> Outcome:
        self.told_s.append(now_s)
        if isinstance(event, Asked) and isinstance(event.request, ShowStatus):
            return Outcome(replies=(reply(event.ticket, self._status(now_s)),))
        return super().handle(event, now_s)

    def _status(self, now_s: int) -> Status:
        found = status(is_promising=not self.doubt, now_s=now_s)
        return found if not self.doubt else status_with(found, self.doubt)


def status_with(found: Status, words: str) -> Status:
    return replace(found, troubles=(words,))


class Driven:
    """A loop whose clocks are in the test's hands."""

    def __init__(self) -> None:
        self.clocks = Clocks()
        self.desks: list[HonestDesk] = []
        self.log = io.StringIO()
        self.metrics = Metrics()
        self.loop: Loop[HonestDesk] = Loop(
            self._open,
            lambda call, done: None,
            log=text_log(self.log),
            meter=self.metrics,
            clock=self.clocks,
            step_s=10,
            doubt_s=120,
        )

    def _open(self) -> Opened[HonestDesk]:
        self.desks.append(HonestDesk())
        return Opened(desk=self.desks[-1], close=lambda: None)

    def ask(self) -> int:
        """What time the desk takes it for."""
        self.loop.ask(ADA, Show(name="a-1")).result(PATIENCE_S)
        return next(desk.told_s[-1] for desk in reversed(self.desks) if desk.told_s)

    @property
    def is_ready(self) -> bool:
        return judge(beat_age_s=0, is_running=True, status=self.loop.status).is_ready

    def eventually(self, is_ready: bool) -> None:
        eventually(lambda: self.is_ready is is_ready, f"ready is {is_ready}", self.log)


@pytest.fixture
def driven() -> Iterator[Driven]:
    made = Driven()
    made.loop.start()
    made.eventually(is_ready=True)
    yield made
    made.loop.stop(PATIENCE_S)


@pytest.mark.parametrize("by_s", BOTH_WAYS_S)
def test_clock_that_is_back_soon_freezes_nothing_and_is_said(driven: Driven, by_s: int) -> None:
    before_s = driven.ask()
    driven.clocks.set_s = by_s
    during_s = driven.ask()
    driven.eventually(is_ready=False)
    words = driven.loop.status.troubles if driven.loop.status else ()
    doubted = driven.metrics.value("outrider_clock_doubtful")
    driven.clocks.passed_s += 6
    driven.clocks.set_s = 0
    after_s = driven.ask()
    driven.eventually(is_ready=True)

    assert 0 <= during_s - before_s <= PATIENCE_S
    assert 6 <= after_s - before_s <= 6 + 2 * PATIENCE_S
    assert abs(after_s - driven.clocks.now_s()) <= PATIENCE_S
    assert words[0].startswith("the clock was set ")
    assert (doubted, driven.metrics.value("outrider_clock_doubtful")) == (1, 0)
    assert len(driven.desks) == 1
    assert "clock is doubtful" in driven.log.getvalue()
    assert "clock is back" in driven.log.getvalue()


@pytest.mark.parametrize("by_s", BOTH_WAYS_S)
def test_clock_that_stays_is_believed_and_has_a_desk_of_its_own(driven: Driven, by_s: int) -> None:
    before_s = driven.ask()
    driven.clocks.set_s = by_s
    driven.ask()
    driven.clocks.passed_s += 119
    late_s = driven.ask()
    driven.clocks.passed_s += 2
    eventually(lambda: len(driven.desks) == 2, "another desk", driven.log)
    driven.eventually(is_ready=True)
    believed_s = driven.ask()

    assert 119 <= late_s - before_s <= 119 + PATIENCE_S
    assert abs(believed_s - driven.clocks.now_s()) <= PATIENCE_S
    assert abs(driven.desks[1].told_s[0] - believed_s) <= PATIENCE_S
    assert driven.desks[0].told_s == sorted(driven.desks[0].told_s)
    assert "clock is believed" in driven.log.getvalue()


@pytest.mark.parametrize("by_s", [1, -1, 9, -9])
def test_small_correction_is_nothing_to_speak_of(driven: Driven, by_s: int) -> None:
    driven.clocks.set_s = by_s
    driven.ask()
    driven.ask()

    assert driven.is_ready
    assert "clock is" not in driven.log.getvalue()
    assert driven.desks[0].told_s == sorted(driven.desks[0].told_s)


def test_desk_that_is_made_anew_in_doubt_knows_of_it(driven: Driven) -> None:
    driven.clocks.set_s = DAY_S
    driven.ask()
    driven.loop.ask(ADA, Show(name="boom")).result(PATIENCE_S)
    driven.ask()

    assert [bool(desk.doubt) for desk in driven.desks] == [True, True]
