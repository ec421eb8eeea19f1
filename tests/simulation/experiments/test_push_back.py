"""How far transfers are pushed back decides which later reservations still find time on the link."""

from __future__ import annotations

from dataclasses import replace

from outrider.core.reservations.book import Shipping
from outrider.sim.setup import HONEST, thesis_nodes
from outrider.sim.workload.formats.thesis import published_trace
from outrider.sim.world import Simulation, SimulationResult

UNICAST = replace(HONEST, shipping=Shipping.PER_NODE, is_reusing=False, slowdown_percent=0)


def trace_ii(push_back_s: int | None) -> SimulationResult:
    """The thesis' trace II, whose starts come in clusters, each reservation asked for when submitted."""
    return Simulation(replace(UNICAST, push_back_s=push_back_s), thesis_nodes(), published_trace("II")).run()


def test_pure_just_in_time_refuses_what_edf_accepts() -> None:
    edf, just_in_time = trace_ii(None), trace_ii(0)

    assert len(edf.kept) == 35
    assert len(just_in_time.kept) < 35
    assert {rejected.refusal.cause.value for _, rejected in just_in_time.refused} == {"link"}


def test_a_reserve_of_five_minutes_accepts_all_that_edf_does() -> None:
    bounded = trace_ii(300)

    assert len(bounded.kept) == 35
    assert not bounded.late
