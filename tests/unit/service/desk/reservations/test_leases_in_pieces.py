"""Leases in pieces: a job goes from one to the next, in time, with a limit that lets it start in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from outrider.metadata.notation.hostlists import expand
from outrider.rms.base import JobState
from outrider.service.answers.decision import Decision
from outrider.service.answers.leases import LeaseDetails, Occurrence
from outrider.service.answers.reply import Trouble
from outrider.service.answers.reservations import ReservationList
from outrider.service.requests import Cancel, ListReservations, Modify, Reserve, ShowLease
from outrider.service.settings import Settings
from tests.amount import few
from tests.unit.service.desk.jobs.yielding_site import (
    MARGIN_S,
    NOTICE_S,
    SETTINGS,
    YIELDING,
    happened,
    site_of,
    state,
)
from tests.unit.service.desk.sandbox import ALICE, BOB, Sandbox, reserve, show, wanted

OVERHEAD_S = 60 + MARGIN_S + 60
HOUR_S, MINUTE_S = 3_600, 60


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    """Two nodes with the image of all."""
    yield from site_of(tmp_path, SETTINGS)


def request(
    site: Sandbox,
    finish_by: str = "now+3h",
    least_piece: str = "10m",
    name: str = "solve",
    nodes: int = 2,
    duration: str = "1h",
) -> Reserve:
    """An hour on both nodes, in pieces of ten minutes at least."""
    when = f"finish_by: {finish_by}, least_piece: {least_piece}"
    return wanted(site, name=name, nodes=nodes, duration=duration, when=when)


def solve(site: Sandbox, **more: object) -> Decision:
    answer = site.ask(request(site, **more), ALICE)  # type: ignore[arg-type]
    assert isinstance(answer, Decision), answer
    return answer


def in_two(site: Sandbox) -> tuple[Decision, Occurrence, Occurrence, Decision]:
    """A lease of an hour, and the reservation of 20 minutes half an hour from now on that it goes round."""
    between = reserve(site, BOB, name="between", nodes=2, start="now+30m", duration="20m")
    decision = solve(site, finish_by="now+105m")
    first, second = decision.occurrences
    return decision, first, second, between


def test_what_has_no_place_as_a_whole_is_had_round_what_is_promised(site: Sandbox) -> None:
    now_s = site.now_s
    decision, first, second, between = in_two(site)

    assert (decision.result, decision.name) == ("accepted", "solve-2")
    assert [each.name for each in decision.occurrences] == ["solve-2.p1", "solve-2.p2"]
    assert between.start_s is not None
    assert first.start_s >= now_s
    assert first.end_s == between.start_s
    assert second.start_s == between.start_s + 20 * MINUTE_S
    done_s = first.end_s - first.start_s - OVERHEAD_S
    assert second.end_s == second.start_s + OVERHEAD_S + HOUR_S - done_s
    details = site.ask(ShowLease(name="solve-2"))
    assert isinstance(details, LeaseDetails)
    assert (details.lease.kind, details.lease.left, details.lease.last_end_s) == ("deadline", 2, second.end_s)


def test_what_has_a_place_as_a_whole_is_one_reservation(site: Sandbox) -> None:
    decision = solve(site)

    assert (decision.result, decision.occurrences) == ("accepted", ())
    assert show(site, decision.name).reservation.end_s - site.now_s >= HOUR_S


def test_no_piece_is_shorter_than_was_asked_for_and_none_are_had_without_time_enough(site: Sandbox) -> None:
    for minute in (30, 60):
        reserve(site, BOB, name="between", nodes=2, start=f"now+{minute}m", duration="20m")

    coarse = solve(site, finish_by="now+2h", least_piece="31m")
    late = solve(site, finish_by="now+75m")
    fine = solve(site, finish_by="now+160m")

    assert (coarse.result, late.result, fine.result) == ("refused", "refused", "accepted")
    useful_s = [each.end_s - each.start_s - OVERHEAD_S for each in fine.occurrences[:-1]]
    assert all(each >= 10 * MINUTE_S for each in useful_s)


def test_plan_changes_nothing_and_tells_the_same(site: Sandbox) -> None:
    reserve(site, BOB, name="between", nodes=2, start="now+30m", duration="20m")
    asked = request(site, "now+105m")

    planned = site.ask(replace(asked, is_plan=True), ALICE)
    known = site.ask(ListReservations())
    accepted = site.ask(asked, ALICE)

    assert isinstance(planned, Decision)
    assert isinstance(accepted, Decision)
    assert isinstance(known, ReservationList)
    assert [each.name for each in known.reservations] == ["between-1"]
    assert planned.occurrences == accepted.occurrences


@pytest.mark.parametrize("job_waits", [True, False])
def test_a_piece_moves_for_others_until_it_begins_and_stays_behind_those_before_it(
    site: Sandbox, job_waits: bool
) -> None:
    _, first, second, _ = in_two(site)
    key = ""
    if job_waits:
        key = site.submit(
            more=YIELDING, argv=("sleep", "3000"), limit_s=3 * HOUR_S, reservation=first.name, nodes=2
        )

    early = reserve(site, BOB, name="early", nodes=2, start="now+5m", duration="10m")
    late = reserve(site, BOB, name="late", nodes=2, start=f"uts{second.start_s}", duration="10m")
    vain = reserve(site, BOB, name="vain", nodes=2, start=f"uts{second.start_s + 600}", duration="10m")

    moved = show(site, second.name).reservation
    assert (early.result, late.result, vain.result) == ("refused", "accepted", "refused")
    assert (moved.start_s, moved.end_s) == (second.start_s + 600, second.end_s + 600)
    assert moved.end_s <= site.now_s + 105 * MINUTE_S
    assert show(site, first.name).reservation.start_s == first.start_s
    if job_waits:
        site.sleep(moved.start_s + 60 - site.now_s)
        job = site.job(key)
        assert job is not None
        assert (job.state, job.reservation) == (JobState.RUNNING, second.name)
        assert happened(site, key, "running")[1] >= moved.start_s


def test_a_job_goes_on_in_the_next_piece_and_has_been_told(site: Sandbox) -> None:
    decision, first, second, _ = in_two(site)
    key = site.submit(
        more=YIELDING, argv=("sleep", "3000"), limit_s=3 * HOUR_S, reservation=first.name, nodes=2
    )

    site.sleep(second.end_s - site.now_s - 10 * MINUTE_S)

    begun = happened(site, key, "running")
    assert [
        first.start_s <= begun[0] < first.start_s + 30,
        second.start_s <= begun[1] < second.start_s + 30,
    ] == [
        True,
        True,
    ]
    # Its limit is in whole minutes, and lets it be gone before its piece is over.
    end_s = min(first.end_s, begun[0] + (first.end_s - begun[0]) // MINUTE_S * MINUTE_S)
    assert happened(site, key, "signalled") == [end_s - NOTICE_S]
    assert happened(site, key, "leaving")[0] == end_s - MARGIN_S
    job = site.job(key)
    assert job is not None
    assert (job.state, job.reservation) == (JobState.RUNNING, second.name)
    assert job.limit_s is not None
    assert job.limit_s <= second.end_s - second.start_s
    assert decision.notes


@pytest.mark.parametrize("ahead_s", [NOTICE_S - 5, MARGIN_S + 5, MARGIN_S - 5])
def test_a_service_that_was_killed_meanwhile_goes_on(site: Sandbox, ahead_s: int) -> None:
    _, first, second, _ = in_two(site)
    key = site.submit(
        more=YIELDING, argv=("sleep", "3000"), limit_s=3 * HOUR_S, reservation=first.name, nodes=2
    )

    site.sleep(first.end_s - MINUTE_S - ahead_s - site.now_s)
    site.restart()
    site.sleep(second.start_s + 60 - site.now_s)

    job = site.job(key)
    assert job is not None
    assert (job.state, job.reservation) == (JobState.RUNNING, second.name)
    assert len(happened(site, key, "running")) == 2


def test_a_job_whose_piece_ends_while_the_service_is_away_ends_with_it(site: Sandbox) -> None:
    _, first, second, _ = in_two(site)
    key = site.submit(
        more=YIELDING, argv=("sleep", "3000"), limit_s=3 * HOUR_S, reservation=first.name, nodes=2
    )
    site.sleep(first.start_s + 5 * MINUTE_S - site.now_s)

    site.clock.at_s = second.start_s - 5
    site.restart()
    site.sleep(2 * MINUTE_S)

    assert (state(site, key), len(happened(site, key, "running"))) == (None, 1)
    (left_s,) = happened(site, key, "leaving")
    assert left_s <= first.end_s


def test_a_job_without_the_right_to_be_requeued_is_left_alone(site: Sandbox) -> None:
    _, first, _, _ = in_two(site)
    key = site.submit(argv=("sleep", "1200"), limit_s=25 * MINUTE_S, reservation=first.name, nodes=2)

    site.sleep(first.end_s - site.now_s - 5)

    assert happened(site, key, "signalled") + happened(site, key, "leaving") == []
    assert len(happened(site, key, "running")) == 1


def test_a_job_ends_by_the_limit_of_its_user_if_that_comes_first(site: Sandbox) -> None:
    _, first, _, _ = in_two(site)
    key = site.submit(
        more=YIELDING, argv=("sleep", "3000"), limit_s=10 * MINUTE_S, reservation=first.name, nodes=2
    )

    site.sleep(first.end_s - site.now_s - 10)

    (begun_s,) = happened(site, key, "running")
    assert happened(site, key, "signalled") == []
    assert happened(site, key, "leaving") == [begun_s + 10 * MINUTE_S]
    assert state(site, key) is None


def test_a_job_that_came_too_late_for_its_piece_runs_in_the_next_one(site: Sandbox) -> None:
    _, first, second, _ = in_two(site)

    site.sleep(first.end_s - site.now_s - 50)
    key = site.submit(
        more=YIELDING, argv=("sleep", "3000"), limit_s=3 * HOUR_S, reservation=first.name, nodes=2
    )
    site.sleep(second.start_s + 60 - site.now_s)

    job = site.job(key)
    assert job is not None
    assert (job.state, job.reservation) == (JobState.RUNNING, second.name)


def test_all_pieces_are_cancelled_by_the_name_of_the_lease_and_none_changes_alone(site: Sandbox) -> None:
    decision, first, _, _ = in_two(site)

    changed = site.ask(Modify(name=first.name, duration_s=HOUR_S))
    gone = site.ask(Cancel(name=decision.name))

    assert isinstance(changed, Trouble)
    assert "is a piece of solve-2" in changed.message
    assert isinstance(gone, ReservationList)
    assert [each.state for each in gone.reservations] == ["cancelled", "cancelled"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (replace(SETTINGS, moves_starts=False), "binds a job to one reservation for good"),
        (replace(SETTINGS, allows_preemptible=False), "this site requeues no jobs"),
    ],
)
def test_where_no_job_could_go_on_it_is_refused_by_name(
    tmp_path: Path, settings: Settings, words: str
) -> None:
    for site in site_of(tmp_path, settings):
        answer = site.ask(request(site), ALICE)

        assert isinstance(answer, Trouble)
        assert words in answer.message


def filled(folder: Path, seed: int) -> int:
    """A random site with leases, looked at by pairs; how many of them are in pieces."""
    random, accepted = Random(seed), 0
    for site in site_of(folder, SETTINGS):
        for number in range(10):
            start, lasts = random.randint(1, 200), random.randint(10, 40)
            reserve(site, BOB, name=f"r{number}", nodes=random.choice((1, 2)), start=f"now+{start}m",
                    duration=f"{lasts}m")  # fmt: skip
        for number in range(4):
            least, lasts = random.choice((5, 10, 15)), random.randint(30, 90)
            by = random.randint(lasts + 5, 300)
            nodes = random.choice((1, 2))
            decision = solve(site, name=f"s{number}", nodes=nodes, duration=f"{lasts}m",
                             least_piece=f"{least}m", finish_by=f"now+{by}m")  # fmt: skip
            pieces = decision.occurrences
            if decision.result != "accepted" or not pieces:
                continue
            accepted += 1
            useful_s = sum(each.end_s - each.start_s for each in pieces) - 2 * OVERHEAD_S * (len(pieces) - 1)
            assert useful_s == lasts * 60
            assert pieces[-1].end_s <= site.now_s + by * 60
            assert all(len(expand(each.nodes)) == nodes for each in pieces)
        known = site.ask(ListReservations())
        assert isinstance(known, ReservationList)
        for place, one in enumerate(known.reservations):
            for other in known.reservations[:place]:
                if one.start_s < other.end_s and other.start_s < one.end_s:
                    assert set(expand(one.nodes)).isdisjoint(expand(other.nodes)), (one, other)
    return accepted


@pytest.mark.parametrize("first", range(0, few(60), 10))
def test_pieces_have_all_the_time_and_nobody_else_has_their_nodes(tmp_path: Path, first: int) -> None:
    """By a naive look at every pair of reservations."""
    accepted = 0
    for seed in range(first, first + 10):
        (tmp_path / str(seed)).mkdir()
        accepted += filled(tmp_path / str(seed), seed)

    assert accepted > 0
