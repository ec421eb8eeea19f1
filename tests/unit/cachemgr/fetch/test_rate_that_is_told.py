"""While nothing comes the rate that is told falls to nothing, whatever the reason."""

from __future__ import annotations

import pytest

from cachemgr.fetch.control import Control
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.report import FetchProgress
from tests.unit.cachemgr.fetch.fakes import SIZE, FakeClock, FakeSink, FakeSource
from tests.unit.cachemgr.fetch.test_engine import RATE, fetch


def rates_between(told: list[tuple[float, FetchProgress]], from_s: float, until_s: float) -> set[int]:
    return {each.rate_bytes_per_s for at_s, each in told if from_s <= at_s < until_s}


def test_rate_of_a_silent_source_falls_to_nothing() -> None:
    clock, sink = FakeClock(), FakeSink()
    told: list[tuple[float, FetchProgress]] = []
    origin = FakeSource("origin", clock, is_relay=False, rate=lambda now_s: 0 if 1 < now_s < 20 else RATE)

    fetch(sink, [origin], clock, on_progress=lambda each: told.append((clock.monotonic_s(), each)))

    assert rates_between(told, 10, 19) == {0}
    assert {each.source for _, each in told} == {"origin"}
    assert next(each.finish_s for at_s, each in told if 10 <= at_s < 19) is None


@pytest.mark.parametrize("how", ["paused", "refused"])
def test_rate_is_nothing_while_nobody_is_asked(how: str) -> None:
    clock, sink, control = FakeClock(), FakeSink(), Control()
    told: list[tuple[float, FetchProgress]] = []
    origin = FakeSource("origin", clock, is_relay=False)
    if how == "paused":
        clock.at(0.8, control.pause)
        clock.at(15.0, control.resume)
    else:
        origin.ends_at = SIZE // 2
        faults = [None, *[SourceFault("not now")] * 4]
        origin.refuses = iter(faults)
        clock.at(14.0, lambda: setattr(origin, "ends_at", None))

    fetch(
        sink, [origin], clock, control=control,
        on_progress=lambda each: told.append((clock.monotonic_s(), each)),
    )  # fmt: skip

    assert rates_between(told, 8, 9) == {0}
    assert told[-1][1].offset_bytes == SIZE
