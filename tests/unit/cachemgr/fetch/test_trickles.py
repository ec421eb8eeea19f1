"""Sources that are never silent and never done: who is given up, and who is not to blame."""

from __future__ import annotations

import socket
from random import Random

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.rate import RateLimit
from cachemgr.fetch.engine import transfer
from cachemgr.fetch.faults import TransferFailed
from cachemgr.fetch.sources.sources import SourceSettings, source_of
from tests.unit.cachemgr.fetch.fakes import IMAGE, FakeClock, FakeQuestion, FakeSink, FakeSource
from tests.unit.cachemgr.fetch.servers import Asked, file_server, head, serving

SIZE = len(IMAGE)


def trickled(clock: FakeClock, rate: float, **options: int) -> tuple[FakeSink, str]:
    """What an origin that is alone gets done, and what is said of it."""
    sink, origin = FakeSink(), FakeSource("origin", clock, is_relay=False, rate=rate)
    with pytest.raises(TransferFailed) as caught:
        transfer(sink, [origin], clock=clock, random=Random(3), **options)  # type: ignore[arg-type]
    return sink, str(caught.value)


def test_source_that_sends_a_trickle_is_given_up_within_a_minute_and_a_bit() -> None:
    clock = FakeClock()
    sink, said = trickled(clock, 20, least_rate_bytes_per_s=10_000)

    assert clock.monotonic_s() < 65
    assert 0 < sink.offset < 2_000
    assert "less than 10000 bytes a second (least_rate)" in said


def test_source_at_the_least_rate_is_kept() -> None:
    clock, sink = FakeClock(), FakeSink(have_bytes=SIZE - 3_000_000)
    origin = FakeSource("origin", clock, is_relay=False, rate=11_000)
    transfer(sink, [origin], clock=clock, random=Random(3), least_rate_bytes_per_s=10_000)

    assert clock.monotonic_s() > 4 * 60
    assert sink.data == IMAGE


def test_source_that_we_hold_back_ourselves_is_not_given_up() -> None:
    clock, sink = FakeClock(), FakeSink(have_bytes=SIZE - 200_000)
    origin = FakeSource("origin", clock, is_relay=False)
    limit = RateLimit(1_000, clock)
    transfer(sink, [origin], clock=clock, random=Random(3), limits=[limit], least_rate_bytes_per_s=10_000)

    assert clock.monotonic_s() > 190
    assert sink.data == IMAGE


def test_relay_is_not_blamed_for_what_its_source_does_not_send() -> None:
    clock, sink = FakeClock(), FakeSink()
    relay = FakeSource("r1", clock, has=lambda now_s: int(20 * now_s) if now_s < 300 else SIZE)
    transfer(sink, [relay], clock=clock, random=Random(3), least_rate_bytes_per_s=10_000, ask=FakeQuestion)

    assert sink.data == IMAGE


def test_server_that_sends_a_byte_now_and_then_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        sock.sendall(head("200 OK", Content_Length=str(SIZE)) + b"x")
        while not server.is_closing.wait(0.02):
            sock.sendall(b"x")

    for name in ("pump", "pace"):
        monkeypatch.setattr(f"cachemgr.fetch.{name}.MINUTE_S", 0.3)
    clock, sink = SystemClock(), FakeSink(have_bytes=SIZE - 1_000_000)
    with serving(answer) as server, serving(file_server(IMAGE)) as good:
        sources = [source_of(each.uri(), SourceSettings(), clock) for each in (server, good)]
        report = transfer(sink, sources, clock=clock, random=Random(3), least_rate_bytes_per_s=10_000)

    assert sink.offset == SIZE
    assert "(least_rate)" in report.said[0].message
