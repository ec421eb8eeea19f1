"""On a link that deadlines share with best effort, a promise rests on nothing that may still be delayed."""

from __future__ import annotations

import pytest

from outrider.core.besteffort.board import QueueRules
from outrider.core.links.shared import SharedLink
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import Book, ReservationPlan, Terms
from outrider.core.scheduler import Decided, Scheduler

ONE = Resources.of(cpus=1)
IMAGE = Image(uri="a", size_bytes=100)


def site(best_effort_percent: int) -> Scheduler:
    nodes = tuple(Node(name=f"n{number}", capacity=ONE) for number in range(2))
    link = SharedLink(rate_bytes_per_s=10, best_effort_percent=best_effort_percent, reserve_s=None)
    scheduler = Scheduler(Book(nodes, Terms(), links=link), QueueRules())
    scheduler.submit(
        Workspace(name="be", instances=1, resources=ONE, duration_s=5, image=IMAGE, is_parallel=False)
    )
    scheduler.schedule(0)
    return scheduler


def reserve(scheduler: Scheduler, name: str, start_s: int, image: Image) -> Decided:
    workspace = Workspace(name=name, instances=1, resources=ONE, duration_s=5, start_s=start_s, image=image)
    return scheduler.reserve(workspace, 0)


@pytest.mark.parametrize("best_effort_percent", [0, 20])
def test_a_reservation_does_not_join_best_effort_that_later_deadlines_may_delay(
    best_effort_percent: int,
) -> None:
    scheduler = site(best_effort_percent)

    first = reserve(scheduler, "first", 16, IMAGE)

    assert isinstance(first.admission, ReservationPlan)
    assert len(first.admission.transfers) == 1


def test_a_reservation_joins_best_effort_that_its_share_alone_brings_in_time() -> None:
    # 100 bytes at the promised 5 bytes/s are there at 20, whatever else is accepted; one more
    # transfer of its own would take as long.
    scheduler = site(50)

    early = reserve(scheduler, "early", 19, IMAGE).admission
    in_time = reserve(scheduler, "in time", 20, IMAGE).admission

    assert isinstance(early, Rejected)
    assert early.earliest_start_s == 20
    assert isinstance(in_time, ReservationPlan)
    assert not in_time.transfers
