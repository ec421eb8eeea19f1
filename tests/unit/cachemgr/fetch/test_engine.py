"""The engine under a clock that jumps: faults of sources, patience, and when it does not move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, repeat
from random import Random

import pytest

from cachemgr.base.errors import Cancelled
from cachemgr.base.rate import RateLimit
from cachemgr.fetch.control import Control
from cachemgr.fetch.engine import transfer
from cachemgr.fetch.faults import DeadlinePassed, SourceFault, TransferFailed
from cachemgr.fetch.ports import Sink
from cachemgr.fetch.report import Delivered, FetchProgress, Report
from tests.unit.cachemgr.fetch.fakes import EPOCH_S, IMAGE, FakeClock, FakeQuestion, FakeSink, FakeSource

SIZE = len(IMAGE)
RATE = 25_000_000
"""Of a good source; the image takes 1.6 s."""
BOUND_S = SIZE / RATE


def fetch(
    sink: Sink,
    sources: Sequence[FakeSource],
    clock: FakeClock,
    *,
    expected: int | None = RATE,
    control: Control | None = None,
    limits: Sequence[RateLimit] = (),
    on_progress: Callable[[FetchProgress], None] | None = None,
    excluding: Sequence[str] = (),
) -> Report:
    return transfer(
        sink,
        sources,
        clock=clock,
        random=Random(3),
        limits=limits,
        control=control,
        expected_rate_bytes_per_s=expected,
        on_progress=on_progress,
        excluding=excluding,
        ask=FakeQuestion,
    )


def test_undisturbed_transfer_uses_the_first_source_alone() -> None:
    clock, sink = FakeClock(), FakeSink()
    near, origin = FakeSource("near", clock), FakeSource("origin", clock, is_relay=False)

    report = fetch(sink, [near, origin], clock)

    assert sink.data == IMAGE
    assert report.delivered == (Delivered("near", 0, SIZE),)
    assert report.said == ()
    assert clock.monotonic_s() == pytest.approx(BOUND_S, rel=0.02)
    assert origin.opened_at == []


def test_transfer_goes_on_at_the_byte_where_the_source_died() -> None:
    clock, sink = FakeClock(), FakeSink()
    near, origin = FakeSource("near", clock, ends_at=12_345_678), FakeSource("origin", clock, is_relay=False)

    report = fetch(sink, [near, origin], clock)

    assert sink.data == IMAGE
    assert report.delivered == (Delivered("near", 0, 12_345_678), Delivered("origin", 12_345_678, SIZE))
    assert report.sources() == ("near", "origin")
    assert [(each.source, each.times) for each in report.said] == [("near", 1)]
    assert clock.monotonic_s() == pytest.approx(BOUND_S, rel=0.02)
    assert (near.open_streams, origin.open_streams) == (0, 0)


def test_transfer_goes_on_with_what_an_earlier_one_left() -> None:
    clock, sink = FakeClock(), FakeSink(have_bytes=30_000_000)
    near = FakeSource("near", clock)

    fetch(sink, [near], clock)

    assert sink.data == IMAGE
    assert near.opened_at == [30_000_000]


def test_complete_image_asks_nobody() -> None:
    clock, sink = FakeClock(), FakeSink(have_bytes=SIZE)
    near = FakeSource("near", clock)

    report = fetch(sink, [near], clock)

    assert report.delivered == ()
    assert near.opened_at == []


def test_silent_relay_that_does_not_answer_is_left_within_two_seconds() -> None:
    clock, sink = FakeClock(), FakeSink()
    dead = FakeSource(
        "dead", clock, rate=lambda now_s: RATE if now_s < 0.8 else 0, answers=lambda now_s: now_s < 0.8
    )
    above = FakeSource("above", clock)

    report = fetch(sink, [dead, above], clock)

    assert sink.data == IMAGE
    assert report.sources() == ("dead", "above")
    assert clock.monotonic_s() < BOUND_S + 2


def test_silent_relay_that_has_more_than_it_sends_is_left() -> None:
    clock, sink = FakeClock(), FakeSink()
    stuck = FakeSource("stuck", clock, rate=lambda now_s: RATE if now_s < 0.8 else 0)
    above = FakeSource("above", clock)

    fetch(sink, [stuck, above], clock)

    assert sink.data == IMAGE
    assert clock.monotonic_s() < BOUND_S + 3


def test_relay_that_waits_for_its_own_upstream_is_waited_for() -> None:
    clock, sink = FakeClock(), FakeSink()
    # Both have a third at first; those above mend the trouble after two seconds.
    has = lambda now_s: 13_000_000 if now_s < 2.5 else SIZE  # noqa: E731
    near, above = FakeSource("near", clock, has=has), FakeSource("above", clock, has=has)
    origin = FakeSource("origin", clock, is_relay=False)

    report = fetch(sink, [near, above, origin], clock)

    assert sink.data == IMAGE
    assert report.sources() == ("near",)
    assert origin.opened_at == []


def test_relay_that_never_mends_its_own_trouble_is_gone_round_in_the_end() -> None:
    clock, sink = FakeClock(), FakeSink()
    near = FakeSource("near", clock, has=13_000_000)
    above = FakeSource("above", clock)

    report = fetch(sink, [near, above], clock)

    assert sink.data == IMAGE
    assert report.sources() == ("near", "above")
    assert clock.monotonic_s() < BOUND_S + 5


def test_node_behind_the_one_that_mends_waits_longer_than_that_one() -> None:
    clock = FakeClock()
    waits = []
    for hops in (1, 2, 3):
        clock = FakeClock()
        starved = [FakeSource(f"r{hop}", clock, has=13_000_000) for hop in range(hops)]
        fetch(FakeSink(), [*starved, FakeSource("above", clock)], clock)
        waits.append(clock.monotonic_s())

    assert waits[0] + 2 < waits[1] < waits[2] - 2


def test_report_names_each_attempt_and_why_it_ended() -> None:
    clock, sink = FakeClock(), FakeSink()
    near, origin = FakeSource("near", clock, ends_at=12_345_678), FakeSource("origin", clock, is_relay=False)

    report = fetch(sink, [near, origin], clock)

    first, second = report.attempts
    assert (first.source, first.start_bytes, first.end_bytes) == ("near", 0, 12_345_678)
    assert first.reason == "it ended after 12345678 of 40000000 bytes"
    assert (second.source, second.start_bytes, second.end_bytes) == ("origin", 12_345_678, SIZE)
    assert second.reason == "complete"
    assert 0 <= first.begin_s < first.end_s <= second.begin_s < second.end_s


def test_silent_origin_with_nobody_else_is_given_a_minute_before_it_is_asked_anew() -> None:
    clock, sink = FakeClock(), FakeSink()
    origin = FakeSource("origin", clock, is_relay=False, rate=lambda now_s: 0 if 0.5 < now_s < 9.0 else RATE)

    report = fetch(sink, [origin], clock)

    assert sink.data == IMAGE
    assert origin.opened_at == [0]
    assert report.said == ()


def test_slow_source_is_left_for_a_faster_one() -> None:
    clock, sink = FakeClock(), FakeSink()
    slow, above = FakeSource("slow", clock, rate=RATE / 10), FakeSource("above", clock)

    report = fetch(sink, [slow, above], clock)

    assert sink.data == IMAGE
    assert report.sources() == ("slow", "above")
    assert clock.monotonic_s() < BOUND_S + 0.7


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


def test_relay_that_has_not_begun_is_waited_for_instead_of_going_to_the_origin() -> None:
    clock, sink = FakeClock(), FakeSink()
    early = iter([SourceFault("404", is_early=True)] * 5)
    near, origin = FakeSource("near", clock, refuses=early), FakeSource("origin", clock, is_relay=False)

    report = fetch(sink, [near, origin], clock)

    assert report.sources() == ("near",)
    assert origin.opened_at == []
    assert clock.monotonic_s() < BOUND_S + 1.5


def test_relay_that_never_begins_is_given_up_after_five_seconds() -> None:
    clock, sink = FakeClock(), FakeSink()
    near = FakeSource("near", clock, refuses=repeat(SourceFault("404", is_early=True)))
    origin = FakeSource("origin", clock, is_relay=False)

    report = fetch(sink, [near, origin], clock)

    assert report.sources() == ("origin",)
    assert clock.monotonic_s() == pytest.approx(5 + BOUND_S, abs=0.6)


def test_source_without_ranges_is_read_again_from_the_beginning_and_that_is_said() -> None:
    clock, sink = FakeClock(), FakeSink(have_bytes=10_000_000)
    origin = FakeSource("origin", clock, is_relay=False, starts_at_zero=True)

    report = fetch(sink, [origin], clock)

    assert sink.data == IMAGE
    assert report.skipped_bytes == 10_000_000
    assert report.delivered == (Delivered("origin", 10_000_000, SIZE),)


def test_final_fault_is_not_asked_for_twice() -> None:
    clock, sink = FakeClock(), FakeSink()
    gone = FakeSource("gone", clock, refuses=repeat(SourceFault("404 Not Found", is_final=True)))

    with pytest.raises(TransferFailed, match=r"0 of 40000000 bytes are here; gone: 404 Not Found$"):
        fetch(sink, [gone], clock)

    assert gone.opened_at == [0]
    assert clock.monotonic_s() < 0.1


def test_failing_sources_are_asked_at_growing_intervals_and_a_bounded_number_of_times() -> None:
    clock, sink = FakeClock(), FakeSink()
    bad = FakeSource("bad", clock, refuses=repeat(SourceFault("500")))
    worse = FakeSource("worse", clock, refuses=repeat(SourceFault("no route")))

    with pytest.raises(TransferFailed, match=r"bad: 500 \(8 times\); worse: no route \(8 times\)") as caught:
        fetch(sink, [bad, worse], clock)

    pauses = [after - before for before, after in pairwise(bad.opened_s)]
    assert all(0.5 * 2**number <= pause <= 0.8 * 2**number for number, pause in enumerate(pauses))
    assert [(each.source, each.times) for each in caught.value.report.said] == [("bad", 8), ("worse", 8)]


def test_server_that_says_when_to_come_back_is_obeyed() -> None:
    clock, sink = FakeClock(), FakeSink()
    busy = FakeSource("busy", clock, refuses=iter([SourceFault("503", retry_after_s=30)]))

    fetch(sink, [busy], clock)

    assert busy.opened_s == [0.0, pytest.approx(30.0, abs=0.1)]


def test_source_that_dies_again_and_again_with_little_progress_is_given_up() -> None:
    clock, sink = FakeClock(), FakeSink()
    drips = FakeSource("drips", clock)
    drips.ends_at = 0

    def open_a_little(offset: int, size_bytes: int, timeout_s: float) -> object:
        drips.ends_at = offset + 1000
        return FakeSource.open(drips, offset, size_bytes, timeout_s)

    drips.open = open_a_little  # type: ignore[method-assign, assignment]

    with pytest.raises(TransferFailed, match="8000 of 40000000 bytes are here"):
        fetch(sink, [drips], clock)


def test_no_source_at_all_is_an_error_that_says_so() -> None:
    with pytest.raises(TransferFailed, match="there is none to be asked"):
        fetch(FakeSink(), [], FakeClock())


def test_excluded_source_is_not_asked() -> None:
    clock, sink = FakeClock(), FakeSink()
    liar, origin = FakeSource("liar", clock), FakeSource("origin", clock, is_relay=False)

    report = fetch(sink, [liar, origin], clock, excluding=["liar"])

    assert report.sources() == ("origin",)
    assert liar.opened_at == []


def test_two_sources_of_one_name_are_refused() -> None:
    clock = FakeClock()

    with pytest.raises(ValueError, match="one name"):
        fetch(FakeSink(), [FakeSource("a", clock), FakeSource("a", clock)], clock)


@pytest.mark.parametrize("rate", [RATE, 0], ids=["moving", "waiting for a silent source"])
def test_cancelled_transfer_stops_within_half_a_second_and_keeps_what_is_here(rate: int) -> None:
    clock, sink, control = FakeClock(), FakeSink(), Control()
    near = FakeSource("near", clock, rate=lambda now_s: RATE if now_s < 0.4 else rate)
    clock.at(0.5, lambda: control.cancel("the reservation was given back"))

    with pytest.raises(Cancelled, match="the reservation was given back"):
        fetch(sink, [near], clock, control=control)

    assert clock.monotonic_s() < 1.0
    assert sink.data == IMAGE[: len(sink.data)]
    assert len(sink.data) >= 0.4 * RATE * 0.98
    assert near.open_streams == 0


def test_transfer_cancelled_while_it_waits_in_a_limit_stops_within_half_a_second() -> None:
    clock, control = FakeClock(), Control()
    clock.at(2.0, lambda: control.cancel("no more"))

    with pytest.raises(Cancelled):
        fetch(FakeSink(), [FakeSource("near", clock)], clock, control=control, limits=[RateLimit(10, clock)])

    assert 2.0 <= clock.monotonic_s() < 2.5


def test_transfer_cancelled_while_it_waits_for_a_bad_source_stops_within_half_a_second() -> None:
    clock, control = FakeClock(), Control()
    bad = FakeSource("bad", clock, refuses=iter([SourceFault("503", retry_after_s=100)]))
    clock.at(50.0, lambda: control.cancel("no more"))

    with pytest.raises(Cancelled):
        fetch(FakeSink(), [bad], clock, control=control)

    assert 50.0 <= clock.monotonic_s() < 50.5


def test_paused_transfer_moves_nothing_and_goes_on_where_it_was() -> None:
    clock, sink, control = FakeClock(), FakeSink(), Control()
    near = FakeSource("near", clock)
    seen: list[int] = []
    clock.at(0.4, control.pause)
    clock.at(1.4, lambda: seen.append(sink.offset))
    clock.at(60.4, lambda: seen.append(sink.offset))
    clock.at(60.4, control.resume)

    report = fetch(sink, [near, FakeSource("above", clock)], clock, control=control)

    assert sink.data == IMAGE
    assert seen[0] == seen[1] < SIZE
    assert near.opened_at == [0, seen[0]]
    assert report.said == ()
    assert clock.monotonic_s() == pytest.approx(BOUND_S + 60, abs=0.5)


def test_deadline_ends_a_transfer_and_says_how_far_it_came() -> None:
    clock, sink = FakeClock(), FakeSink()
    slow = FakeSource("slow", clock, rate=1e6)

    with pytest.raises(DeadlinePassed, match=r"by its deadline: \d+ of 40000000 bytes are here") as caught:
        fetch(sink, [slow], clock, control=Control(deadline_s=EPOCH_S + 10))

    assert 10 <= clock.monotonic_s() < 10.5
    assert caught.value.report.delivered == (Delivered("slow", 0, len(sink.data)),)


def test_source_is_given_no_longer_to_answer_than_the_deadline_allows() -> None:
    clock = FakeClock()
    origin = FakeSource("origin", clock, is_relay=False)
    relay = FakeSource("relay", clock, refuses=iter([SourceFault("no route")]))

    fetch(FakeSink(), [relay, origin], clock, control=Control(deadline_s=EPOCH_S + 2))

    assert relay.patience_s == [2]
    assert origin.patience_s == [2]


def test_pause_during_a_trial_ends_the_trial() -> None:
    clock, control = FakeClock(), Control()
    slow, above = FakeSource("slow", clock, rate=RATE / 10), FakeSource("above", clock, rate=RATE / 10)
    clock.at(0.7, control.pause)
    clock.at(5.0, control.resume)

    report = fetch(FakeSink(), [slow, above], clock, control=control)

    assert [each.source for each in report.delivered] == ["slow", "above", "slow", "above", "slow"]


def test_sink_that_fails_ends_the_transfer_with_its_own_error() -> None:
    clock = FakeClock()
    near = FakeSource("near", clock)

    class FullSink(FakeSink):
        def write(self, data: bytes | memoryview) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fetch(FullSink(), [near, FakeSource("above", clock)], clock)

    assert near.open_streams == 0
    assert near.opened_at == [0]


def test_progress_tells_rate_and_finish() -> None:
    clock, sink = FakeClock(), FakeSink()
    told: list[FetchProgress] = []

    fetch(sink, [FakeSource("near", clock, rate=4e6)], clock, expected=None, on_progress=told.append)

    middle = next(each for each in told if each.offset_bytes >= SIZE / 2)
    assert middle.rate_bytes_per_s == pytest.approx(4e6, rel=0.02)
    assert middle.finish_s is not None
    assert middle.finish_s == pytest.approx(EPOCH_S + 10, abs=1)
    assert told[-1].offset_bytes == SIZE
    assert len(told) <= 10 / 0.5 + 2


def test_transfer_is_the_same_whenever_it_is_run() -> None:
    def once() -> tuple[Report, list[float]]:
        clock = FakeClock()
        bad = FakeSource("bad", clock, ends_at=5_000_000)
        slow = FakeSource("slow", clock, rate=lambda now_s: 3e6)
        report = fetch(FakeSink(), [bad, slow, FakeSource("origin", clock, is_relay=False)], clock)
        return report, bad.opened_s

    assert once() == once()
