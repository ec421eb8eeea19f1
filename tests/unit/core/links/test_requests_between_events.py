"""A link is told the time at its events only; what is asked in between counts from then on."""

from __future__ import annotations

from outrider.core.links.shared import SharedLink
from outrider.core.model import Image, Node, Resources, Transfer, Workspace
from outrider.core.reservations.book import ReservationPlan
from outrider.sim.setup import Setup

RATE = 10


def best_effort(number: int, size_bytes: int) -> Transfer:
    image = Image(uri=f"image-{number}", size_bytes=size_bytes)
    return Transfer(number=number, image=image, nodes=("n1",), duration_s=1)


def test_a_forecast_counts_what_was_sent_since_the_last_event() -> None:
    link = SharedLink(rate_bytes_per_s=RATE)
    link.add(best_effort(1, 100), 0)

    assert link.end_if_added(10, 1, 5) == 11
    assert link.end_of(1, 5) == 10


def test_a_transfer_does_not_begin_before_its_reservation_was_asked_for() -> None:
    setup = Setup(rate_bytes_per_s=RATE, best_effort_percent=20, push_back_s=None)
    scheduler = setup.scheduler((Node(name="n1", capacity=Resources.of(cpus=1)),))
    workspace = Workspace(
        name="late",
        instances=1,
        resources=Resources.of(cpus=1),
        duration_s=10,
        image=Image(uri="image", size_bytes=80),
        start_s=100,
    )
    answer = scheduler.reserve(workspace, 50)

    events = list(scheduler.book.links.advance(100))

    assert isinstance(answer.admission, ReservationPlan)
    assert [(event.at_s, event.has_begun) for event in events] == [(50, True), (58, False)]


def test_two_small_transfers_that_end_in_one_second_both_begin() -> None:
    link = SharedLink(rate_bytes_per_s=RATE)
    link.add(best_effort(1, 5), 0)
    link.add(best_effort(2, 5), 0)

    events = [(event.at_s, event.transfer.number, event.has_begun) for event in link.advance(1)]

    assert events == [(0, 1, True), (1, 1, False), (1, 2, True), (1, 2, False)]
