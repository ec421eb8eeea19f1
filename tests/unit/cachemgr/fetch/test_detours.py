"""Away from the planned source and back to it: a chain of nodes is not to send everything twice."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from cachemgr.fetch.engine import transfer
from cachemgr.fetch.report import Report
from tests.unit.cachemgr.fetch.fakes import (
    IMAGE,
    SIZE,
    FakeClock,
    FakeQuestion,
    FakeSink,
    FakeSource,
    FakeStream,
)

RATE = 25_000_000
"""Of a good source; the image takes 1.6 s."""
BOUND_S = SIZE / RATE


def fetch(sink: FakeSink, sources: Sequence[FakeSource], clock: FakeClock) -> Report:
    return transfer(
        sink, sources, clock=clock, random=Random(3), expected_rate_bytes_per_s=RATE, ask=FakeQuestion
    )


def test_relay_that_was_only_busy_is_gone_back_to() -> None:
    clock, sink = FakeClock(), FakeSink()

    def is_busy(now_s: float) -> bool:
        return 0.3 < now_s < 1.8

    # Busy, it takes nothing in either; once both ask the one above, that one sends everything twice.
    near = FakeSource(
        "near",
        clock,
        rate=lambda now_s: 0 if is_busy(now_s) else RATE,
        has=lambda now_s: int(RATE * (0.3 + 0.2) if now_s < 1.8 else RATE * (now_s - 1.0)),
        answers=lambda now_s: not is_busy(now_s),
    )
    above = FakeSource("above", clock, rate=lambda now_s: RATE if now_s < 1.8 else RATE / 2)

    report = fetch(sink, [near, above], clock)

    assert sink.data == IMAGE
    assert [each.source for each in report.delivered] == ["near", "above", "near"]
    assert "near is there again" in report.attempts[1].reason


def test_planned_relay_that_is_behind_for_good_is_not_gone_back_to() -> None:
    clock, sink = FakeClock(), FakeSink()
    near = FakeSource("near", clock, has=lambda now_s: int(now_s * RATE / 20) + 1)
    above = FakeSource("above", clock, rate=RATE * 0.7)

    report = fetch(sink, [near, above], clock)

    assert [each.source for each in report.delivered] == ["near", "above"]
    assert len(near.opened_at) <= 2


def test_way_back_that_brings_nothing_is_tried_at_growing_intervals() -> None:
    clock, sink = FakeClock(), FakeSink()
    # It has everything, and its own link is slow.
    near = FakeSource("near", clock, rate=RATE / 40)
    above = FakeSource("above", clock, rate=RATE / 5)

    report = fetch(sink, [near, above], clock)

    assert report.sources() == ("near", "above")
    assert len(near.opened_at) <= 4
    assert clock.monotonic_s() < 5 * BOUND_S + 3


def test_bytes_are_read_while_a_node_further_up_is_asked_in_vain() -> None:
    clock, sink = FakeClock(), FakeSink()
    # Those above mend their trouble at 1.5 s, when the dead one has been asked for a tenth of a second.
    has = lambda now_s: 13_000_000 if now_s < 1.5 else SIZE  # noqa: E731
    near = FakeSource("near", clock, has=has)
    dead = FakeSource("dead", clock, rate=0, answers=lambda now_s: False)

    fetch(sink, [near, dead, FakeSource("above", clock)], clock)

    assert sink.data == IMAGE
    assert dead.asked
    assert clock.monotonic_s() == pytest.approx(1.5 + (SIZE - 13_000_000) / RATE, abs=0.1)


def test_own_standstill_is_no_reason_to_leave_a_source() -> None:
    clock, sink = FakeClock(), FakeSink()
    near, above = FakeSource("near", clock), FakeSource("above", clock)
    read = FakeStream.read_into
    stop_s = 0.5

    def read_after_a_stop(stream: FakeStream, buffer: memoryview, timeout_s: float) -> int | None:
        nonlocal stop_s
        if clock.monotonic_s() >= stop_s:
            stop_s += 3.0
            # This process has no processor for a while; the bytes have come meanwhile.
            clock.sleep(2.5)
        return read(stream, buffer, timeout_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeStream, "read_into", read_after_a_stop)
        report = fetch(sink, [near, above], clock)

    assert report.sources() == ("near",)
    assert above.opened_at == []
