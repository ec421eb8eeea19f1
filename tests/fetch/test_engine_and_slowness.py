"""The engine and slow sources, under a clock that jumps: who is left, for whom, and who is not."""

from __future__ import annotations

import pytest

from cachemgr.fetch.control import Control
from cachemgr.fetch.rate import RateLimit
from tests.fetch.fakes import BOUND_S, IMAGE, RATE, SIZE, FakeClock, FakeSink, FakeSource, fetch


def test_slow_source_is_left_for_a_faster_one() -> None:
    clock, sink = FakeClock(), FakeSink()
    slow, above = FakeSource("slow", clock, rate=RATE / 10), FakeSource("above", clock)

    report = fetch(sink, [slow, above], clock)

    assert sink.data == IMAGE
    assert report.sources() == ("slow", "above")
    assert clock.monotonic_s() < BOUND_S + 1.2


def test_slow_relay_that_is_slow_because_of_those_above_is_not_left() -> None:
    clock, sink = FakeClock(), FakeSink()
    trickle = lambda now_s: int(now_s * RATE / 5) + 1  # noqa: E731
    chain = [FakeSource(f"r{number}", clock, has=trickle) for number in range(3)]

    report = fetch(sink, chain, clock)

    assert sink.data == IMAGE
    assert report.sources() == ("r0",)


def test_trial_that_is_no_faster_goes_back_and_is_not_repeated() -> None:
    clock, sink = FakeClock(), FakeSink()
    # Our own link is the narrow place: whoever sends, no more comes.
    chain = [FakeSource(f"r{number}", clock, rate=RATE / 10) for number in range(4)]

    report = fetch(sink, chain, clock)

    assert sink.data == IMAGE
    assert [each.source for each in report.delivered] == ["r0", "r1", "r0"]
    assert chain[2].opened_at == chain[3].opened_at == []


def test_source_that_becomes_slow_in_the_middle_is_left_once() -> None:
    clock, sink = FakeClock(), FakeSink()
    tiring = FakeSource("tiring", clock, rate=lambda now_s: RATE if now_s < 0.8 else RATE / 8)
    above = FakeSource("above", clock)

    report = fetch(sink, [tiring, above], clock)

    assert [each.source for each in report.delivered] == ["tiring", "above"]
    assert clock.monotonic_s() < BOUND_S + 1.5


def test_only_who_has_more_than_we_have_is_tried() -> None:
    clock, sink = FakeClock(), FakeSink()
    slow = FakeSource("slow", clock, rate=RATE / 10)
    behind = FakeSource("behind", clock, has=1000)
    gone = FakeSource("gone", clock, answers=lambda now_s: False)
    above = FakeSource("above", clock)

    report = fetch(sink, [slow, behind, gone, above], clock)

    assert report.sources() == ("slow", "above")
    assert behind.opened_at == gone.opened_at == []


def test_source_on_trial_that_falls_silent_is_left_for_the_one_before() -> None:
    clock, sink = FakeClock(), FakeSink()
    slow = FakeSource("slow", clock, rate=RATE / 10)
    mute = FakeSource("mute", clock, rate=0)

    report = fetch(sink, [slow, mute], clock)

    assert report.sources() == ("slow",)
    assert clock.monotonic_s() == pytest.approx(10 * BOUND_S, rel=0.2)


def test_upstream_that_has_just_mended_its_trouble_is_not_left_for_having_more() -> None:
    clock, sink = FakeClock(), FakeSink()

    # Both trickle, because of the farther one; then the nearer one goes round that, and has more at once.
    def trickle(now_s: float) -> int:
        return int(now_s * RATE / 10) + 1

    def mended(now_s: float) -> int:
        return trickle(now_s) + (15_000_000 if now_s > 1.5 else 0)

    def ramp(now_s: float) -> float:
        # What it has at once, it sends ever faster, but not at once.
        return float(RATE if now_s < 1.5 else min(RATE, RATE * 0.1 * 1.25 ** ((now_s - 1.5) / 0.2)))

    near = FakeSource("near", clock, has=mended, rate=ramp)
    far, above = FakeSource("far", clock, has=trickle), FakeSource("above", clock)

    report = fetch(sink, [near, far, above], clock)

    assert report.delivered[0].end_bytes > 15_000_000
    assert far.opened_at == []


def test_stream_that_recovers_slowly_is_not_left_while_it_does() -> None:
    clock, sink = FakeClock(), FakeSink()

    def ramp(now_s: float) -> float:
        # By a quarter every 0.3 s, as a sender does that estimates the bandwidth.
        return float(min(RATE, RATE * 0.1 * 1.25 ** (now_s / 0.3)))

    report = fetch(sink, [FakeSource("recovering", clock, rate=ramp), FakeSource("above", clock)], clock)

    assert report.sources() == ("recovering",)


def test_moment_of_slowness_is_no_reason_to_leave() -> None:
    clock, sink = FakeClock(), FakeSink()
    busy = FakeSource("busy", clock, rate=lambda now_s: RATE * 0.4 if 0.5 < now_s < 2.0 else RATE)
    above = FakeSource("above", clock)

    report = fetch(sink, [busy, above], clock)

    assert report.sources() == ("busy",)
    assert above.opened_at == []


def test_slowness_that_lasts_is_a_reason_to_leave() -> None:
    clock, sink = FakeClock(), FakeSink()
    slow, above = FakeSource("slow", clock, rate=RATE * 0.3), FakeSource("above", clock)

    report = fetch(sink, [slow, above], clock)

    assert report.sources() == ("slow", "above")
    assert 2 < clock.monotonic_s() < 4.5


def test_without_a_plan_the_rate_is_learned_from_those_above() -> None:
    clock, sink = FakeClock(), FakeSink()
    # The relay receives a megabyte a second, the one above it ten times as much.
    slow = FakeSource("slow", clock, has=lambda now_s: int(now_s * 1e6) + 1)
    above = FakeSource("above", clock, has=lambda now_s: int(now_s * 1e7) + 1)

    report = fetch(sink, [slow, above], clock, expected=None)

    assert report.sources() == ("slow", "above")
    assert clock.monotonic_s() < 12  # forty seconds at the slow one


def test_limit_below_the_expected_rate_blames_nobody() -> None:
    clock, sink = FakeClock(), FakeSink(SIZE, have_bytes=SIZE - 6_000_000)
    chain = [FakeSource("r0", clock), FakeSource("r1", clock)]

    report = fetch(sink, chain, clock, limits=[RateLimit(1_000_000, clock)])

    assert report.sources() == ("r0",)
    assert clock.monotonic_s() == pytest.approx(6, rel=0.05)


def test_source_that_gives_all_that_a_limit_allows_is_not_slow() -> None:
    clock, sink = FakeClock(), FakeSink()
    chain = [FakeSource("r0", clock, rate=3_000_000), FakeSource("r1", clock)]

    report = fetch(sink, chain, clock, limits=[RateLimit(2_500_000, clock)])

    assert report.sources() == ("r0",)


def test_pause_during_a_trial_ends_the_trial() -> None:
    clock, control = FakeClock(), Control()
    slow, above = FakeSource("slow", clock, rate=RATE / 10), FakeSource("above", clock, rate=RATE / 10)
    clock.at(1.1, control.pause)
    clock.at(5.0, control.resume)

    report = fetch(FakeSink(), [slow, above], clock, control=control)

    assert [each.source for each in report.delivered] == ["slow", "above", "slow", "above", "slow"]
