"""Reservations that recur: all or none, or those that can be kept; shown, counted and cancelled."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.metadata.notation.hostlists import expand
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.answers.reservations import ReservationDetails, ReservationList
from outrider.service.requests import Cancel, ListReservations, Reserve, Show
from outrider.service.settings import Settings
from tests.amount import examples
from tests.unit.service.desk.sandbox import ALICE, BOB, RATE, Sandbox, reserve, show, wanted

DAY_S = 86_400
HOUR_S = 3_600


def daily(
    sandbox: Sandbox, times: int, *, every_s: int = DAY_S, best_fit: bool = False, **more: object
) -> Reserve:
    """One hour from an hour from now on, again and again."""
    request = wanted(sandbox, **{"start": "now+1h", "duration": "1h", **more})  # type: ignore[arg-type]
    first_s = sandbox.now_s + HOUR_S
    starts = tuple(first_s + number * every_s for number in range(times))
    return replace(request, starts=starts, is_best_fit=best_fit)


def decided(sandbox: Sandbox, request: Reserve, caller: object = ALICE) -> Decision:
    answer = sandbox.ask(request, caller)  # type: ignore[arg-type]
    assert isinstance(answer, Decision), answer
    return answer


def names(sandbox: Sandbox) -> list[str]:
    found = sandbox.ask(ListReservations())
    assert isinstance(found, ReservationList)
    return [each.name for each in found.reservations]


def test_each_occurrence_is_a_reservation_of_its_own(sandbox: Sandbox) -> None:
    decision = decided(sandbox, daily(sandbox, 3, nodes=2))

    assert (decision.result, decision.name) == ("accepted", "render-1")
    assert names(sandbox) == ["render-1.1", "render-1.2", "render-1.3"]
    first_s = show(sandbox, "render-1.1").reservation.start_s
    assert [show(sandbox, name).reservation.start_s - first_s for name in names(sandbox)] == [
        0,
        DAY_S,
        2 * DAY_S,
    ]
    sandbox.sleep(5)
    assert {each.name for each in sandbox.rms.look().reservations} == set(names(sandbox))


def test_images_are_there_at_each_start(sandbox: Sandbox) -> None:
    decided(sandbox, daily(sandbox, 3, every_s=2 * HOUR_S))

    sandbox.sleep(6 * HOUR_S + 60)

    for name in ("render-1.1", "render-1.2", "render-1.3"):
        details = sandbox.ask(Show(name=name))
        assert isinstance(details, ReservationDetails)
        assert details.receipt is not None
        assert details.receipt.is_met


def test_all_or_nothing_names_the_occurrence_that_stands_in_the_way(sandbox: Sandbox) -> None:
    reserve(sandbox, BOB, name="crowd", nodes=4, start="now+25h", duration="1h")

    decision = decided(sandbox, daily(sandbox, 3))

    assert decision.result == "refused"
    assert decision.reason.startswith("occurrence 2 of 3, ")
    assert any("--best-fit" in each for each in decision.remedies)
    assert names(sandbox) == ["crowd-1"]


def test_best_fit_takes_what_can_be_kept_under_its_own_number(sandbox: Sandbox) -> None:
    reserve(sandbox, BOB, name="crowd", nodes=4, start="now+25h", duration="1h")

    decision = decided(sandbox, daily(sandbox, 3, best_fit=True))

    assert decision.result == "accepted"
    assert [each.result for each in decision.occurrences] == ["accepted", "refused", "accepted"]
    assert names(sandbox) == ["crowd-1", "render-2.1", "render-2.3"]


def test_best_fit_of_nothing_is_a_refusal(sandbox: Sandbox) -> None:
    decision = decided(sandbox, daily(sandbox, 2, best_fit=True, nodes=5))

    assert decision.result == "refused"
    assert names(sandbox) == []


def test_plan_of_what_recurs_changes_nothing(sandbox: Sandbox) -> None:
    request = daily(sandbox, 3)

    planned = decided(sandbox, replace(request, is_plan=True))
    before = names(sandbox)
    accepted = decided(sandbox, request)

    assert before == []
    assert planned == replace(accepted, name="")


def test_all_are_cancelled_by_their_name_and_one_by_its_number(sandbox: Sandbox) -> None:
    decided(sandbox, daily(sandbox, 4))

    one = sandbox.ask(Cancel(name="render-1.2"))
    of_bob = sandbox.ask(Cancel(name="render-1"), BOB)
    left = names(sandbox)
    rest = sandbox.ask(Cancel(name="render-1"))

    assert isinstance(one, ReservationDetails)
    assert isinstance(of_bob, Trouble)
    assert of_bob.code == "not-allowed"
    assert left == ["render-1.1", "render-1.3", "render-1.4"]
    assert isinstance(rest, ReservationList)
    assert [(each.name, each.state) for each in rest.reservations] == [(name, "cancelled") for name in left]
    assert names(sandbox) == []


def test_name_of_all_is_ambiguous_where_one_is_meant(sandbox: Sandbox) -> None:
    decided(sandbox, daily(sandbox, 2))

    answer = sandbox.ask(Show(name="render-1"))

    assert isinstance(answer, Trouble)
    assert (answer.code, "render-1.1, render-1.2" in answer.message) == ("ambiguous", True)


def test_occurrences_outlive_a_restart(sandbox: Sandbox) -> None:
    decided(sandbox, daily(sandbox, 3))
    sandbox.restart()

    rest = sandbox.ask(Cancel(name="render-1"))

    assert isinstance(rest, ReservationList)
    assert len(rest.reservations) == 3


@pytest.mark.parametrize(("limit", "most"), [("reservations: 2", 2), ("node_hours: 3", 3)])
def test_quotas_count_all_occurrences(tmp_path: Path, limit: str, most: int) -> None:
    sandbox = Sandbox(tmp_path, policies=f"version: 1\nrules: [{{name: all, {limit}}}]\n".encode())

    too_many = decided(sandbox, daily(sandbox, most + 1))
    allowed = decided(sandbox, daily(sandbox, most))

    assert (too_many.result, too_many.cause, allowed.result) == ("refused", "policy", "accepted")
    assert too_many.reason.startswith(f"occurrence {most + 1} of {most + 1}")


def test_share_of_the_machine_counts_occurrences_that_overlap_in_time_alone(tmp_path: Path) -> None:
    policies = b"version: 1\nmachine_share: 50%\nrules: [{name: all}]\n"
    sandbox = Sandbox(tmp_path, policies=policies)

    decision = decided(sandbox, daily(sandbox, 5, nodes=2))

    assert decision.result == "accepted"


def test_number_of_occurrences_is_bounded(tmp_path: Path) -> None:
    settings = Settings(link_rate_bytes_per_s=RATE, reserve_s=60, most_occurrences=3)
    sandbox = Sandbox(tmp_path, settings=settings)

    answer = sandbox.ask(daily(sandbox, 4))

    assert isinstance(answer, Trouble)
    assert (answer.code, "more than the 3" in answer.message) == ("invalid", True)


class Naive:
    """A book of four nodes as lists; images are small, and starts are far away."""

    def __init__(self) -> None:
        self.booked: list[tuple[str, set[str], int, int]] = []

    def free(self, start_s: int, end_s: int) -> int:
        taken = {node for _, nodes, from_s, until_s in self.booked if from_s < end_s and start_s < until_s
                 for node in nodes}  # fmt: skip
        return 4 - len(taken)


@pytest.mark.parametrize("seed", range(examples(60)))
def test_random_series_are_accepted_as_a_list_of_bookings_says(tmp_path: Path, seed: int) -> None:
    chance, naive = random.Random(seed), Naive()
    sandbox = Sandbox(tmp_path)
    for _ in range(12):
        nodes, length_s = chance.randint(1, 4), chance.randint(1, 6) * HOUR_S
        first_s = sandbox.now_s + chance.randint(1, 48) * HOUR_S
        step_s, times = chance.randint(6, 30) * HOUR_S, chance.randint(1, 5)
        request = replace(
            wanted(sandbox, nodes=nodes, start=f"uts{first_s}", duration=f"{length_s}s"),
            starts=tuple(first_s + number * step_s for number in range(times)),
            is_best_fit=chance.random() < 0.5,
        )
        fit = [naive.free(start_s, start_s + length_s) >= nodes for start_s in request.starts]
        decision = decided(sandbox, request, chance.choice((ALICE, BOB)))
        is_wanted = any(fit) if request.is_best_fit else all(fit)
        assert decision.result == ("accepted" if is_wanted else "refused")
        if is_wanted:
            assert [each.result == "accepted" for each in decision.occurrences] == fit
        for each in decision.occurrences:
            if is_wanted and each.nodes:
                taken = set(expand(each.nodes))
                assert not any(taken & others and from_s < each.end_s and each.start_s < until_s
                               for _, others, from_s, until_s in naive.booked)  # fmt: skip
                naive.booked.append((each.name, taken, each.start_s, each.end_s))
        if naive.booked and chance.random() < 0.3:
            name = chance.choice(naive.booked)[0]
            owner = ALICE if isinstance(sandbox.ask(Cancel(name=name)), ReservationDetails) else BOB
            sandbox.ask(Cancel(name=name), owner)
            naive.booked = [each for each in naive.booked if each[0] != name]
    kept = sorted(each[0] for each in naive.booked)
    sandbox.restart()

    assert sorted(names(sandbox)) == kept
