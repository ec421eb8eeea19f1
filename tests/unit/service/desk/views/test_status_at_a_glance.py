"""The status is kept up as things change instead of being counted: it must be what counting gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.service.answers.reservations import ReservationList
from outrider.service.answers.site import Status
from outrider.service.requests import Cancel, ListReservations, Modify, ShowStatus
from tests.unit.service.desk.sandbox import ADMIN, Sandbox, reserve


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path)
    yield made
    made.close()


def status(sandbox: Sandbox) -> Status:
    answer = sandbox.ask(ShowStatus(), ADMIN)
    assert isinstance(answer, Status)
    return answer


def check(sandbox: Sandbox) -> Status:
    """The status, after what it says was counted in the list of reservations."""
    told, listed = status(sandbox), sandbox.ask(ListReservations(), ADMIN)
    assert isinstance(listed, ReservationList)
    views = listed.reservations
    states = Counter(each.state for each in views)
    assert {state: count for state, count in told.reservations.items() if count} == dict(states)
    starts = [each.start_s for each in views if each.start_s > sandbox.now_s]
    assert told.next_start_s == min(starts, default=None)
    return told


def test_empty_service_has_no_next_start(sandbox: Sandbox) -> None:
    assert check(sandbox).next_start_s is None


def test_status_follows_a_reservation_from_its_acceptance_to_its_end(sandbox: Sandbox) -> None:
    reserve(sandbox, start="now+10minutes", duration="10m")
    assert check(sandbox).reservations["accepted"] == 1

    for _ in range(30):
        sandbox.sleep(60)
        last = check(sandbox)

    assert sum(last.reservations.values()) == 0


def test_next_start_follows_changes_and_cancellations(sandbox: Sandbox) -> None:
    late = reserve(sandbox, start="now+10hours")
    early = reserve(sandbox, start="now+5hours")
    assert check(sandbox).next_start_s == early.start_s

    sandbox.ask(Modify(name=early.name, start_s=sandbox.now_s + 20 * 3600), ADMIN)
    assert check(sandbox).next_start_s == late.start_s

    sandbox.ask(Cancel(name=late.name), ADMIN)
    assert check(sandbox).next_start_s == sandbox.now_s + 20 * 3600

    sandbox.restart()
    assert check(sandbox).next_start_s == sandbox.now_s + 20 * 3600
