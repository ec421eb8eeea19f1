"""A reservation is meant by its whole name, or by its workspace's as long as that is clear."""

from __future__ import annotations

from outrider.service.answers.records import Explanation
from outrider.service.answers.reply import Trouble
from outrider.service.answers.reservations import ReservationDetails
from outrider.service.requests import Cancel, Explain, Show
from tests.unit.service.desk.sandbox import ADMIN, ALICE, BOB, Sandbox, reserve, show


def end(sandbox: Sandbox, name: str) -> None:
    answer = sandbox.ask(Cancel(name=name))
    assert isinstance(answer, ReservationDetails)


def trouble(sandbox: Sandbox, name: str, caller: object = ALICE) -> Trouble:
    answer = sandbox.ask(Show(name=name), caller)  # type: ignore[arg-type]
    assert isinstance(answer, Trouble)
    return answer


def test_reservation_that_is_over_is_found_by_its_workspace(sandbox: Sandbox) -> None:
    reserve(sandbox)
    end(sandbox, "render")

    assert show(sandbox, "render").reservation.name == "render-1"
    assert trouble(sandbox, "render", BOB).code == "not-found", "it is another user's"


def test_live_one_is_meant_rather_than_those_that_are_over(sandbox: Sandbox) -> None:
    reserve(sandbox)
    end(sandbox, "render-1")
    reserve(sandbox)

    assert show(sandbox, "render").reservation.name == "render-2"


def test_candidates_are_named_where_it_is_not_clear(sandbox: Sandbox) -> None:
    for name in ("render", "render", "render-1x", "ren"):
        reserve(sandbox, name=name)
    assert trouble(sandbox, "render").message == "render could be render-1, render-2: name one of them"
    for number, name in enumerate(("render", "render", "render-1x", "ren"), 1):
        end(sandbox, f"{name}-{number}")

    found = trouble(sandbox, "render")

    assert (found.code, found.message) == (
        "ambiguous",
        "render could be render-2, render-1: name one of them",
    )
    assert show(sandbox, "render-1x").reservation.name == "render-1x-3"


def test_administrators_mean_any_users(sandbox: Sandbox) -> None:
    reserve(sandbox)
    reserve(sandbox, BOB)
    end(sandbox, "render-1")
    sandbox.ask(Cancel(name="render-2"), BOB)

    assert "render-2, render-1" in trouble(sandbox, "render", ADMIN).message
    assert show(sandbox, "render", BOB).reservation.name == "render-2"


def test_workspace_called_job_has_a_name_of_its_own(sandbox: Sandbox) -> None:
    reserve(sandbox, name="job")
    assert show(sandbox, "job").reservation.name == "job-workspace-1"
    end(sandbox, "job")

    assert show(sandbox, "job").reservation.name == "job-workspace-1"


def test_refusals_under_a_workspaces_name_are_found_beside_what_is_over(sandbox: Sandbox) -> None:
    reserve(sandbox)
    end(sandbox, "render-1")
    reserve(sandbox, nodes=100)

    by_workspace = sandbox.ask(Explain(name="render"))
    by_name = sandbox.ask(Explain(name="render-1"))

    assert isinstance(by_workspace, Explanation)
    assert [each.outcome for each in by_workspace.decisions] == ["refused"]
    assert isinstance(by_name, Explanation)
    assert by_name.sentences == ("it is over: cancelled by its user",)
