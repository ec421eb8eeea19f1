"""The thread that owns the desk: order, limits, recovery, and the end."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator

import pytest

from cachemgr.base.clock import SystemClock
from outrider.service.answers.reply import Trouble
from outrider.service.daemon.measures.metrics import Metrics
from outrider.service.daemon.threads.loop import Loop, Opened
from outrider.service.desk.desk import Event, Outcome
from outrider.service.front import Busy
from outrider.service.ports import Call, Look, Result
from outrider.service.requests import Show
from outrider.store.errors import Damaged, Full
from tests.unit.service.daemon.fakes import ADA, PATIENCE_S, FakeDesk, eventually, text_log


class Driven:
    """A loop with small desks, and what became of them."""

    def __init__(self, most_requests: int = 10) -> None:
        self.desks: list[FakeDesk] = []
        self.closed = 0
        self.is_broken = False
        self.calls: list[tuple[Call, Callable[[Result], None]]] = []
        self.cannot_open: Exception | None = None
        self.next_desk: Callable[[], FakeDesk] = FakeDesk
        self.log = io.StringIO()
        self.metrics = Metrics()
        self.loop: Loop[FakeDesk] = Loop(
            self._open,
            lambda call, done: self.calls.append((call, done)),
            log=text_log(self.log),
            meter=self.metrics,
            clock=SystemClock(),
            most_requests=most_requests,
        )

    def _open(self) -> Opened[FakeDesk]:
        if self.cannot_open is not None:
            raise self.cannot_open
        self.desks.append(self.next_desk())
        return Opened(desk=self.desks[-1], close=self._close, is_broken=lambda: self.is_broken)

    def _close(self) -> None:
        self.closed += 1

    def show(self, name: str) -> Trouble:
        answer = self.loop.ask(ADA, Show(name=name)).result(PATIENCE_S)
        assert isinstance(answer, Trouble)
        return answer


@pytest.fixture
def driven() -> Iterator[Driven]:
    made = Driven()
    made.loop.start()
    yield made
    for desk in made.desks:
        desk.go.set()
    made.loop.stop(PATIENCE_S)


def test_who_takes_what_is_told_before_the_requests_that_fill_the_queue(driven: Driven) -> None:
    desk = driven.desks[0]
    driven.loop.ask(ADA, Show(name="stuck"))
    eventually(lambda: desk.heard == ["stuck"], "being stuck", driven.log)
    # Of ten places two are kept for administrators.
    asked = [driven.loop.ask(ADA, Show(name=f"a-{number}")) for number in range(8)]
    with pytest.raises(Busy):
        driven.loop.ask(ADA, Show(name="a-8"))
    shares = driven.loop.desk_shares()
    desk.go.set()
    asked[-1].result(PATIENCE_S)

    assert shares.result(0) == []
    assert desk.heard[:3] == ["stuck", "shares", "a-0"]


def test_shares_that_cannot_be_counted_cost_no_promise(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeDesk, "shares", lambda desk: 1 / 0)

    assert driven.loop.desk_shares().result(PATIENCE_S) == []
    assert driven.show("a-1").code == "not-found"
    assert len(driven.desks) == 1
    assert "shares not counted" in driven.log.getvalue()


def test_answer_reaches_whoever_asked(driven: Driven) -> None:
    asked = [driven.loop.ask(ADA, Show(name=name)) for name in ("a-1", "b-2", "c-3")]

    assert [each.result(PATIENCE_S) for each in asked] == [
        Trouble(code="not-found", message=f"no {name}") for name in ("a-1", "b-2", "c-3")
    ]
    assert driven.desks[0].heard == ["a-1", "b-2", "c-3"]


def test_opening_error_reaches_who_starts_the_loop() -> None:
    driven = Driven()
    driven.cannot_open = Damaged("store x: it is damaged")

    with pytest.raises(Damaged, match="it is damaged"):
        driven.loop.start()


def test_late_answer_comes_after_the_call(driven: Driven) -> None:
    asked = driven.loop.ask(ADA, Show(name="look"))
    eventually(lambda: len(driven.calls) == 1, "the call")
    assert not asked.done()
    call, done = driven.calls[0]
    done(None)

    assert call == Look()
    assert asked.result(PATIENCE_S) == Trouble(code="seen", message="None")


def test_tick_comes_when_it_is_due(driven: Driven) -> None:
    driven.desks[0].due_s = SystemClock().now_s()
    driven.show("anything")

    eventually(lambda: "tick" in driven.desks[0].heard, "the tick")
    assert len(driven.desks) == 1


def test_unexpected_error_costs_the_desk_and_nobody_waits_for_ever(driven: Driven) -> None:
    owed = driven.loop.ask(ADA, Show(name="look"))
    answer = driven.show("boom")
    after = driven.show("a-1")

    assert answer.code == "unavailable"
    assert "Idempotency-Key" in answer.message
    lost = owed.result(PATIENCE_S)
    assert isinstance(lost, Trouble)
    assert lost.code == "unavailable"
    assert after.message == "no a-1"
    assert (len(driven.desks), driven.closed) == (2, 1)
    assert driven.desks[1].heard == ["a-1"]
    assert "RuntimeError: planted" in driven.log.getvalue()
    assert driven.metrics.value("outrider_desk_restarts_total") == 1


def test_result_of_a_call_of_the_lost_desk_is_not_heard_by_its_successor(driven: Driven) -> None:
    driven.loop.ask(ADA, Show(name="look"))
    eventually(lambda: len(driven.calls) == 1, "the call")
    driven.show("boom")
    driven.calls[0][1](None)
    driven.show("a-1")

    assert driven.desks[1].heard == ["a-1"]


def test_error_that_comes_at_every_tick_does_not_spin(driven: Driven) -> None:
    def failing() -> FakeDesk:
        return FakeDesk(due_s=SystemClock().now_s(), fails_at_ticks=True)

    driven.next_desk = failing
    driven.show("boom")
    eventually(lambda: len(driven.desks) >= 3, "the first tick's failure")
    for number in range(50):
        driven.show(f"a-{number}")

    # Between two failures lie at least two seconds, in which requests are answered.
    assert len(driven.desks) <= 5


def test_store_that_cannot_be_opened_again_ends_the_loop(driven: Driven) -> None:
    driven.cannot_open = Full("store x: no room")
    answer = driven.show("boom")
    eventually(lambda: not driven.loop.is_running, "the end", driven.log)

    assert answer.code == "unavailable"
    assert isinstance(driven.loop.failure, Full)
    with pytest.raises(Busy):
        driven.loop.ask(ADA, Show(name="a-1"))


def test_one_request_too_many_is_refused_and_the_others_are_not() -> None:
    driven = Driven(most_requests=2)
    driven.loop.start()
    stuck = driven.loop.ask(ADA, Show(name="stuck"))
    eventually(lambda: driven.desks[0].heard == ["stuck"], "being stuck")
    waiting = [driven.loop.ask(ADA, Show(name=name)) for name in ("a-1", "b-2")]
    with pytest.raises(Busy, match="2 requests wait already"):
        driven.loop.ask(ADA, Show(name="c-3"))
    driven.desks[0].go.set()

    assert [each.result(PATIENCE_S) for each in (stuck, *waiting)] == [
        Trouble(code="not-found", message=f"no {name}") for name in ("stuck", "a-1", "b-2")
    ]
    assert driven.loop.stop(PATIENCE_S)


def test_store_whose_disk_fails_is_opened_again_but_not_without_end(driven: Driven) -> None:
    driven.is_broken = True
    for number in range(20):
        driven.show(f"a-{number}")

    assert (len(driven.desks), driven.closed) == (2, 1)
    assert "the store's disk failed" in driven.log.getvalue()


def test_request_of_who_hung_up_while_waiting_is_not_carried_out(driven: Driven) -> None:
    driven.loop.ask(ADA, Show(name="stuck"))
    eventually(lambda: driven.desks[0].heard == ["stuck"], "being stuck")
    given_up = driven.loop.ask(ADA, Show(name="a-1"))
    assert given_up.cancel()
    driven.desks[0].go.set()
    driven.show("b-2")

    assert driven.desks[0].heard == ["stuck", "b-2"]


def test_stop_lets_the_event_in_hand_end_and_refuses_the_rest(driven: Driven) -> None:
    in_hand = driven.loop.ask(ADA, Show(name="stuck"))
    eventually(lambda: driven.desks[0].heard == ["stuck"], "being stuck")
    waiting = driven.loop.ask(ADA, Show(name="a-1"))
    stopper = threading.Thread(target=driven.loop.stop, args=(PATIENCE_S,))
    stopper.start()
    answer = waiting.result(PATIENCE_S)
    driven.desks[0].go.set()
    stopper.join(PATIENCE_S)

    assert isinstance(answer, Trouble)
    assert (answer.code, "stopping" in answer.message) == ("busy", True)
    assert in_hand.result(0) == Trouble(code="not-found", message="no stuck")
    assert driven.closed == 1
    assert driven.loop.failure is None


def test_stop_says_that_the_desk_hangs(driven: Driven) -> None:
    driven.loop.ask(ADA, Show(name="stuck"))
    eventually(lambda: driven.desks[0].heard == ["stuck"], "being stuck")

    assert not driven.loop.stop(0.05)


def test_beat_grows_old_while_the_desk_hangs(driven: Driven) -> None:
    driven.loop.ask(ADA, Show(name="stuck"))
    eventually(lambda: driven.desks[0].heard == ["stuck"], "being stuck")
    before_s = driven.loop.beat_age_s
    eventually(lambda: driven.loop.beat_age_s > before_s + 0.1, "the ageing")
    assert not driven.desks[0].go.is_set()
    driven.desks[0].go.set()

    eventually(lambda: driven.loop.beat_age_s < 0.1, "another beat")


def test_status_is_known_without_being_asked_for(driven: Driven) -> None:
    eventually(lambda: driven.loop.status is not None, "the status")
    found = driven.loop.status

    assert found is not None
    assert found.is_promising
    assert driven.metrics.value("outrider_ready") == 1


def test_time_never_goes_back_for_the_desk() -> None:
    class Jumping(SystemClock):
        times = iter([1000, 1001, 400])

        def now_s(self) -> int:
            return next(self.times, 401)

    seen: list[int] = []

    class Noting(FakeDesk):
        def handle(self, event: Event, now_s: int) -> Outcome:
            seen.append(now_s)
            return super().handle(event, now_s)

    log = io.StringIO()
    loop: Loop[FakeDesk] = Loop(
        lambda: Opened(desk=Noting(), close=lambda: None),
        lambda call, done: None,
        log=text_log(log),
        meter=Metrics(),
        clock=Jumping(),
    )
    loop.start()
    for name in ("a-1", "b-2", "c-3"):
        loop.ask(ADA, Show(name=name)).result(PATIENCE_S)
    loop.stop(PATIENCE_S)

    assert seen == sorted(seen)
    assert seen[-1] == 1001
