"""Rate limits: exact over seconds, shared fairly, and changed while somebody waits."""

from __future__ import annotations

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.rate import RateLimit
from tests.unit.cachemgr.fetch.fakes import FakeClock

MIB = 1 << 20


def move(limit: RateLimit, size_bytes: int, step_bytes: int = 16_384) -> None:
    for _ in range(size_bytes // step_bytes):
        limit.take(step_bytes)


@pytest.mark.parametrize("rate", [100_000, 1_000_000, 250_000_000])
def test_rate_is_kept_within_five_percent_over_three_seconds(rate: int) -> None:
    clock = FakeClock()
    limit = RateLimit(rate, clock)
    step = limit.step_bytes(MIB)

    move(limit, 3 * rate // step * step, step)

    assert clock.monotonic_s() == pytest.approx(3 * (3 * rate // step * step) / (3 * rate), rel=0.05)


def test_rate_is_kept_within_five_percent_by_the_real_clock() -> None:
    clock = SystemClock()
    limit = RateLimit(20_000_000, clock)
    begin_s = clock.monotonic_s()

    move(limit, 20_000_000)

    assert clock.monotonic_s() - begin_s == pytest.approx(1.0, rel=0.05)


def test_idle_limit_saves_up_no_more_than_a_moment() -> None:
    clock = FakeClock()
    limit = RateLimit(1_000_000, clock)
    clock.sleep(3600)

    move(limit, 1_000_000, 10_000)

    assert 3600.94 <= clock.monotonic_s() <= 3601.0


def test_higher_rate_takes_effect_within_a_tenth_of_a_second_while_somebody_waits() -> None:
    clock = FakeClock()
    limit = RateLimit(1_000, clock)
    clock.at(5.0, lambda: limit.set(100_000_000))

    limit.take(1_000_000)  # would take 1000 s at the first rate

    assert 5.0 <= clock.monotonic_s() <= 5.1


def test_lower_rate_applies_to_what_is_still_waited_for() -> None:
    clock = FakeClock()
    limit = RateLimit(1_000_000, clock)
    clock.at(1.0, lambda: limit.set(100_000))

    limit.take(2_000_000)  # a million in the first second, the other at a tenth of the rate

    assert clock.monotonic_s() == pytest.approx(11.0, abs=0.1)


def test_removed_limit_lets_go_whoever_waits() -> None:
    clock = FakeClock()
    limit = RateLimit(1_000, clock)
    clock.at(2.0, lambda: limit.set(None))

    limit.take(1_000_000)

    assert 2.0 <= clock.monotonic_s() <= 2.1


def test_pause_holds_everything_and_the_time_of_the_pause_does_not_count() -> None:
    clock = FakeClock()
    limit = RateLimit(1_000_000, clock)
    clock.at(0.5, limit.pause)
    clock.at(60.5, limit.resume)

    limit.take(1_000_000)

    assert clock.monotonic_s() == pytest.approx(61.0, abs=0.1)


def test_pause_holds_a_stream_without_a_rate() -> None:
    clock = FakeClock()
    limit = RateLimit(None, clock)
    limit.pause()
    clock.at(9.0, limit.resume)

    limit.take(1)

    assert clock.monotonic_s() == pytest.approx(9.0, abs=0.06)


def test_cancelled_waiter_leaves_within_a_tenth_of_a_second() -> None:
    clock = FakeClock()
    limit = RateLimit(1_000, clock)

    limit.take(1_000_000, lambda: clock.monotonic_s() >= 3.0)

    assert 3.0 <= clock.monotonic_s() <= 3.1


def test_own_and_shared_limit_together_give_the_smaller_rate() -> None:
    clock = FakeClock()
    own, shared = RateLimit(1_000_000, clock), RateLimit(4_000_000, clock)

    for _ in range(200):
        for limit in (own, shared):
            limit.take(10_000)

    assert clock.monotonic_s() == pytest.approx(2.0, rel=0.05)


def test_step_is_small_where_the_rate_is_small() -> None:
    clock = FakeClock()

    assert RateLimit(1_000_000, clock).step_bytes(MIB) == 50_000
    assert RateLimit(100, clock).step_bytes(MIB) == 4096
    assert RateLimit(None, clock).step_bytes(MIB) == MIB


@pytest.mark.parametrize("rate", [0, -1])
def test_rate_of_nothing_is_refused_and_the_pause_is_named(rate: int) -> None:
    with pytest.raises(ValueError, match="pause the limit instead"):
        RateLimit(rate, FakeClock())
