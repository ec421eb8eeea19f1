"""The overview: all reservations where they are, and nothing that is not for everybody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from outrider.service.answers.site import Overview
from outrider.service.desk.views.overview import runs
from outrider.service.requests import ShowOverview
from tests.unit.service.desk.sandbox import ALICE, BOB, Sandbox, reserve, show


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path)
    yield made
    made.close()


def overview(sandbox: Sandbox) -> Overview:
    answer = sandbox.ask(ShowOverview(), ALICE)
    assert isinstance(answer, Overview)
    return answer


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([], ()), ([3], (3, 1)), ([0, 1, 2], (0, 3)), ([3, 4, 5, 9], (3, 3, 9, 1)), ([0, 2], (0, 1, 2, 1))],
)
def test_neighbours_are_one_run(numbers: list[int], expected: tuple[int, ...]) -> None:
    assert runs(numbers) == expected


def test_reservations_are_where_they_were_promised(sandbox: Sandbox) -> None:
    first = reserve(sandbox, start="now+1hour", nodes=2)
    second = reserve(sandbox, start="now+5hours", nodes=1)

    found = overview(sandbox)

    columns = found.reservations
    assert set(columns.names) == {first.name, second.name}
    for decision in (first, second):
        at = columns.names.index(decision.name)
        held = columns.nodes[at]
        names = [
            found.nodes[place]
            for first_place, count in zip(held[::2], held[1::2], strict=True)
            for place in range(first_place, first_place + count)
        ]
        assert len(names) == decision.node_count
        assert (columns.starts_s[at], columns.ends_s[at]) == (decision.start_s, decision.end_s)
        assert columns.ready_s[at] == show(sandbox, decision.name).reservation.ready_s
    assert found.is_complete


def test_it_says_the_same_until_something_happens(sandbox: Sandbox) -> None:
    reserve(sandbox, start="now+5hours", nodes=1)
    before = overview(sandbox)

    sandbox.sleep(7)

    assert overview(sandbox) == before


def test_private_image_is_not_in_it(sandbox: Sandbox) -> None:
    reserve(sandbox, start="now+1hour", nodes=1)

    told = repr(asdict(overview(sandbox)))

    assert "sha256" not in told
    assert "file:" not in told
    assert sandbox.ask(ShowOverview(), BOB) == overview(sandbox)
