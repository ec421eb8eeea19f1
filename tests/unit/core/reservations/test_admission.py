"""Answers to requests for reservations: what is promised, what is refused, and what changes."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.model import Workspace
from outrider.core.nodes import timeline as module
from outrider.core.reservations.admission import Rejected, admit, assess
from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.reservations.earliest import earliest_start
from outrider.core.reservations.planning import plan_at
from tests.amount import examples
from tests.unit.core.books import (
    HORIZON_S,
    random_book,
    random_workspace,
    snapshot,
    wanted,
)


def first_accepted(book: Book, workspace: Workspace, from_s: int, now_s: int) -> int | None:
    """Ask for every second."""
    instants = range(max(from_s, now_s), HORIZON_S + 60)
    return next(
        (at_s for at_s in instants if isinstance(plan_at(book, workspace, at_s, now_s), ReservationPlan)),
        None,
    )


@pytest.mark.parametrize("bucket_s", [3600, 4])
def test_without_pool_limits_the_earliest_start_is_the_first_that_is_accepted(
    bucket_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUCKET_S", bucket_s)
    for seed in range(examples(900)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=False)
        for number in range(2):
            workspace = random_workspace(chance, f"w{number}", now_s)
            assert workspace.start_s is not None

            found = earliest_start(book, workspace, workspace.start_s, now_s)

            assert found == first_accepted(book, workspace, workspace.start_s, now_s), f"seed {seed}"


@pytest.mark.parametrize("bucket_s", [3600, 4])
def test_an_earliest_start_that_is_named_is_accepted_when_asked_for(
    bucket_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUCKET_S", bucket_s)
    named = 0
    for seed in range(examples(900)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=True)
        workspace = random_workspace(chance, "w", now_s)
        answer = assess(book, workspace, now_s)
        if isinstance(answer, Rejected) and answer.earliest_start_s is not None:
            named += 1
            again = wanted(
                "again", answer.earliest_start_s, workspace.duration_s, workspace.image, workspace.instances,
                cpus=workspace.resources["cpus"],
            )  # fmt: skip

            assert isinstance(admit(book, again, now_s), ReservationPlan), f"seed {seed}"

    assert named > examples(150)


def test_asking_and_refusal_change_nothing_and_the_answer_is_the_real_one() -> None:
    refused = 0
    for seed in range(examples(900)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=seed % 2 == 0)
        workspace = random_workspace(chance, "w", now_s)
        before = snapshot(book)

        asked = assess(book, workspace, now_s)
        assert snapshot(book) == before, f"seed {seed}"
        answer = admit(book, workspace, now_s)

        if isinstance(answer, Rejected):
            refused += 1
            assert answer == asked
            assert snapshot(book) == before, f"seed {seed}"
        else:
            assert isinstance(asked, ReservationPlan)
            assert asked.start_s == answer.start_s
            assert asked.fits == answer.fits
            assert asked.transfers == answer.transfers
            assert asked.lives == answer.lives
            assert set(book.entries["w"].reservation.nodes) == {f"n{each.node}" for each in answer.fits}
    assert refused > examples(300)


def test_a_deadline_workspace_is_accepted_exactly_when_some_start_would_do() -> None:
    for seed in range(examples(900)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=False)
        workspace = random_workspace(chance, "w", now_s)
        if workspace.finish_by_s is None:
            continue
        assert workspace.start_s is not None
        first_s = first_accepted(book, workspace, workspace.start_s, now_s)

        answer = assess(book, workspace, now_s)

        if first_s is not None and first_s + workspace.duration_s <= workspace.finish_by_s:
            assert isinstance(answer, ReservationPlan)
            assert answer.start_s == first_s
        else:
            assert isinstance(answer, Rejected)
