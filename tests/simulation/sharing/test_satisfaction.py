"""Client satisfaction under naive and scheduled staging (thesis, Figures 8.2 and 8.3)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest

from outrider.sim.experiments.satisfaction import NOMINAL_BYTES_PER_S, client_satisfaction
from outrider.sim.experiments.stager import StagedRequest, Stager, Strategy

MIB = 1 << 20
# A full Ethernet frame takes 1538 bytes on the wire, 1448 of which TCP's user gets.
TCP_BYTES_PER_S = NOMINAL_BYTES_PER_S * 1448 // 1538
DURATION_S = 1800
ReadRows = Callable[[str], list[list[str]]]


def requests_of(rows: list[list[str]], megabyte: int = 10**6) -> list[StagedRequest]:
    return [
        StagedRequest(
            submit_s=int(row[0]),
            start_s=int(row[0]) + int(row[7]),
            nodes=int(row[3]),
            size_bytes=int(row[2]) * megabyte,
            duration_s=DURATION_S,
        )
        for row in rows
    ]


def request(submit_s: int, start_s: int, nodes: int = 1) -> StagedRequest:
    """At 10 bytes a second, one image of it takes 40 s."""
    return StagedRequest(submit_s=submit_s, start_s=start_s, nodes=nodes, size_bytes=400, duration_s=1000)


def got_s(strategy: Strategy, *requests: StagedRequest) -> list[int]:
    return list(client_satisfaction(requests, strategy, 10).got_s)


def test_alone_only_job_style_costs_the_client_time() -> None:
    alone = request(0, 500, nodes=3)

    got = {strategy: got_s(strategy, alone) for strategy in Strategy}

    assert got == {
        Strategy.JOB_STYLE: [1000 - 3 * 40],
        Strategy.JUST_IN_TIME: [1000],
        Strategy.AGGRESSIVE: [1000],
        Strategy.SCHEDULED: [1000],
    }


def test_just_in_time_starts_clash_before_a_common_start() -> None:
    # Both set out at 460 and share the link: 80 s instead of 40 each.
    assert got_s(Strategy.JUST_IN_TIME, request(0, 500), request(0, 500)) == [960, 960]
    assert got_s(Strategy.SCHEDULED, request(0, 500), request(0, 500)) == [1000, 1000]


def test_aggressive_staging_lets_the_patient_slow_down_the_urgent() -> None:
    patient, urgent = request(0, 900, nodes=3), request(0, 40)

    # Four images share the link until 160 s; the urgent one was needed at 40 s.
    assert got_s(Strategy.AGGRESSIVE, patient, urgent) == [1000, 1000 - 120]
    assert got_s(Strategy.SCHEDULED, patient, urgent) == [1000, 1000]


def test_who_waits_longer_than_the_duration_gets_nothing() -> None:
    assert got_s(Strategy.JOB_STYLE, request(0, 0, nodes=50)) == [0]


def test_earliest_deadline_is_sent_first_among_those_released() -> None:
    stager = Stager(
        [request(0, 99), request(5, 60), request(5, 50), request(100, 200)], Strategy.SCHEDULED, 10
    )

    order = []
    for now_s in (0, 40, 80, 100):
        order += [sending.request for sending in stager.due(now_s)]
        stager.arrived()

    assert order == [0, 2, 1, 3]


def test_relayed_image_reaches_all_instances_in_the_time_of_one() -> None:
    wide = request(0, 40, nodes=3)

    got = {
        is_relayed: client_satisfaction([wide], Strategy.JOB_STYLE, 10, is_relayed=is_relayed).got_s
        for is_relayed in (True, False)
    }

    assert got == {True: (1000 - 40,), False: (1000 - 3 * 40,)}


def test_everybody_in_trace_1_is_satisfied_by_schedule_and_nobody_by_job_style(
    read_rows: ReadRows,
) -> None:
    requests = requests_of(read_rows("trace_I_excerpt.trace"))

    scheduled = client_satisfaction(requests, Strategy.SCHEDULED, NOMINAL_BYTES_PER_S)
    job_style = client_satisfaction(requests, Strategy.JOB_STYLE, NOMINAL_BYTES_PER_S)

    assert scheduled.worst == scheduled.mean == scheduled.fully_satisfied == Fraction(1)
    assert job_style.fully_satisfied == 0


def test_schedule_of_trace_2_is_late_only_by_what_no_schedule_can_avoid(
    read_rows: ReadRows,
) -> None:
    requests = requests_of(read_rows("trace_II_excerpt.trace"))
    image_s = 48
    unavoidable_s = max(
        image_s * sum(each.nodes for each in requests if is_within(each, submit_s, start_s))
        - (start_s - submit_s)
        for submit_s, start_s in product(
            {each.submit_s for each in requests}, {each.start_s for each in requests}
        )
        if submit_s < start_s
    )

    scheduled = client_satisfaction(requests, Strategy.SCHEDULED, NOMINAL_BYTES_PER_S)

    assert unavoidable_s == 124
    assert scheduled.worst == Fraction(DURATION_S - unavoidable_s, DURATION_S)
    assert scheduled.fully_satisfied == Fraction(len(requests) - 4, len(requests))


def is_within(request: StagedRequest, submit_s: int, start_s: int) -> bool:
    return request.submit_s >= submit_s and request.start_s <= start_s


def test_naive_staging_of_trace_2_falls_to_about_55_percent(read_rows: ReadRows) -> None:
    requests = requests_of(read_rows("trace_II_excerpt.trace"), megabyte=MIB)

    worst = {
        strategy: client_satisfaction(requests, strategy, TCP_BYTES_PER_S).worst for strategy in Strategy
    }

    assert float(worst[Strategy.JOB_STYLE]) == pytest.approx(0.55, abs=0.02)
    in_order = [
        Strategy.JOB_STYLE,
        Strategy.JUST_IN_TIME,
        Strategy.AGGRESSIVE,
        Strategy.SCHEDULED,
    ]
    assert sorted(worst, key=lambda strategy: worst[strategy]) == in_order


def test_request_that_starts_before_it_is_handed_in_is_refused() -> None:
    with pytest.raises(ValueError, match="handed in at 5 cannot start at 4"):
        request(5, 4)


def test_no_requests_have_no_satisfaction() -> None:
    with pytest.raises(ValueError, match="no request"):
        client_satisfaction([], Strategy.SCHEDULED, 1)
