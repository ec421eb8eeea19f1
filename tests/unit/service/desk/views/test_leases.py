"""Leases of every kind in one list."""

from __future__ import annotations

from dataclasses import replace

from outrider.metadata.workspace import WorkspaceFile
from outrider.service.answers.decision import Decision
from outrider.service.answers.leases import LeaseDetails, LeaseList
from outrider.service.answers.reply import Trouble
from outrider.service.requests import Caller, Cancel, ListLeases, ShowLease
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import ALICE, BOB, Sandbox, reserve, wanted

HOUR_S = 3_600


def listed(sandbox: Sandbox, caller: Caller = ALICE, **values: object) -> LeaseList:
    answer = sandbox.ask(ListLeases(**values), caller)  # type: ignore[arg-type]
    assert isinstance(answer, LeaseList)
    return answer


def details(sandbox: Sandbox, name: str, caller: Caller = ALICE) -> LeaseDetails:
    answer = sandbox.ask(ShowLease(name=name), caller)
    assert isinstance(answer, LeaseDetails), answer
    return answer


def recurring(sandbox: Sandbox, times: int = 3) -> str:
    first_s = sandbox.now_s + 2 * HOUR_S
    request = wanted(sandbox, name="often", start=f"uts{first_s}")
    answer = sandbox.ask(replace(request, starts=tuple(first_s + 2 * HOUR_S * each for each in range(times))))
    assert isinstance(answer, Decision)
    return answer.name


def deadline(sandbox: Sandbox) -> str:
    request = wanted(sandbox, name="late", start="now+30h")
    deployment = request.workspace.deployment
    assert deployment is not None
    assert deployment.start_s is not None
    terms = {"finish_by_s": deployment.start_s + 5 * HOUR_S}
    file: WorkspaceFile = request.workspace.model_copy(
        update={"deployment": deployment.model_copy(update=terms)}
    )
    answer = sandbox.ask(replace(request, workspace=file))
    assert isinstance(answer, Decision)
    return answer.name


def test_each_kind_is_listed_as_what_it_is_and_what_recurs_once(sandbox: Sandbox) -> None:
    names = [reserve(sandbox, nodes=1).name, recurring(sandbox), deadline(sandbox)]
    reserve(sandbox, name="huge", nodes=4, start="now+20m")

    found = listed(sandbox).leases

    kinds = {each.name: each.kind for each in found if each.kind != "offer"}
    assert kinds == dict(zip(names, ("reservation", "recurring", "deadline"), strict=True))
    assert {each.state for each in found if each.kind == "offer"} == {"offered"}
    series = next(each for each in found if each.kind == "recurring")
    assert (series.left, series.last_end_s - series.end_s) == (3, 4 * HOUR_S)


def test_kinds_and_users_can_be_chosen_and_offers_are_ones_own(sandbox: Sandbox) -> None:
    reserve(sandbox, BOB, name="crowd", nodes=4)
    recurring(sandbox)
    reserve(sandbox, nodes=2, start="now+20m")

    own = listed(sandbox, kind="offer").leases
    of_bob = listed(sandbox, BOB, kind="offer").leases
    series = listed(sandbox, BOB, kind="recurring").leases
    all_of_bob = listed(sandbox, user="bob").leases

    assert own
    assert of_bob == ()
    assert [each.user for each in series] == ["alice"]
    assert [each.name for each in all_of_bob] == ["crowd-1"]


def test_lease_that_recurs_has_the_times_of_its_next_occurrence(sandbox: Sandbox) -> None:
    name = recurring(sandbox)
    first = details(sandbox, name)
    sandbox.ask(Cancel(name=f"{name}.1"))

    second = details(sandbox, name)
    one = details(sandbox, f"{name}.2")

    assert [each.name for each in first.reservations] == [f"{name}.{number}" for number in (1, 2, 3)]
    assert second.lease.start_s - first.lease.start_s == 2 * HOUR_S
    assert (second.lease.left, one.lease.name, one.lease.kind) == (2, f"{name}.2", "reservation")


def test_series_of_which_one_runs_is_active(sandbox: Sandbox) -> None:
    name = recurring(sandbox)
    sandbox.sleep(2 * HOUR_S + 60)

    assert details(sandbox, name).lease.state == "active"


def test_offer_is_a_lease_of_its_user_alone_until_its_time_is_over(sandbox: Sandbox) -> None:
    reserve(sandbox, BOB, name="crowd", nodes=4)
    offer = reserve(sandbox, nodes=2, start="now+20m").offers[0]

    found = details(sandbox, offer.name)
    of_bob = sandbox.ask(ShowLease(name=offer.name), BOB)
    sandbox.sleep(Settings().offers_held_s)
    after = sandbox.ask(ShowLease(name=offer.name))

    assert (found.lease.state, found.lease.start_s, found.reservations) == ("offered", offer.start_s, ())
    assert [each.code for each in (of_bob, after) if isinstance(each, Trouble)] == ["not-found"] * 2
