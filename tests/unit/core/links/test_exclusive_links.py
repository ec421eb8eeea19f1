"""The thesis' two links, and its link for best effort alone."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.links.fifo import FifoLink
from outrider.core.links.links import ExclusiveLinks, LinkEvent
from outrider.core.model import Image, Transfer
from tests.amount import examples

RATE = 10


def transfer(number: int, duration_s: int, deadline_s: int | None = None) -> Transfer:
    image = Image(uri=f"image-{number}", size_bytes=duration_s * RATE)
    return Transfer(number=number, image=image, nodes=("n1",), duration_s=duration_s, deadline_s=deadline_s)


def plan(links: ExclusiveLinks, wanted: Transfer, now_s: int) -> None:
    insertion = links.deadlines.plan([wanted], now_s)
    assert insertion is not None
    links.deadlines.apply(insertion)


def told(events: list[LinkEvent]) -> list[tuple[int, int, str]]:
    return [(event.at_s, event.transfer.number, "begins" if event.has_begun else "ends") for event in events]


def test_each_of_the_two_links_has_the_whole_rate() -> None:
    links = ExclusiveLinks(rate_bytes_per_s=RATE)
    plan(links, transfer(1, 10, deadline_s=100), 0)
    links.add(transfer(2, 10), 0)

    events = told(list(links.advance(0)) + list(links.advance(10)))

    assert sorted(events) == [(0, 1, "begins"), (0, 2, "begins"), (10, 1, "ends"), (10, 2, "ends")]


def test_events_of_both_links_come_in_order_and_ends_before_beginnings() -> None:
    links = ExclusiveLinks(rate_bytes_per_s=RATE)
    plan(links, transfer(1, 10, deadline_s=100), 0)
    links.add(transfer(2, 5), 0)
    links.add(transfer(3, 5), 0)
    list(links.advance(0))
    links.add(transfer(4, 1), 0)

    events = told(list(links.advance(10)))

    assert events == [
        (5, 2, "ends"),
        (5, 3, "begins"),
        (10, 3, "ends"),
        (10, 1, "ends"),
        (10, 4, "begins"),
    ]


def test_best_effort_is_sent_in_its_order_one_after_the_other() -> None:
    for seed in range(examples(200)):
        random = Random(seed)
        link = FifoLink(rate_bytes_per_s=RATE)
        adds = sorted((random.randint(0, 50), random.randint(1, 9)) for _ in range(random.randint(1, 12)))

        spans = [link.add(transfer(number, length_s), at_s) for number, (at_s, length_s) in enumerate(adds)]

        free_s = 0
        for span, (at_s, length_s) in zip(spans, adds, strict=True):
            assert (span.start_s, span.end_s) == (max(free_s, at_s), max(free_s, at_s) + length_s)
            free_s = span.end_s


def test_a_forecast_is_what_the_last_of_so_many_additions_gets() -> None:
    for seed in range(examples(200)):
        random = Random(seed)
        link = FifoLink(rate_bytes_per_s=random.randint(1, 50))
        for number in range(random.randint(0, 4)):
            size = random.randint(1, 200)
            image = Image(uri="a", size_bytes=size)
            link.add(Transfer(number=number, image=image, nodes=(), duration_s=link.duration_s(size)), 0)
        count, size, now_s = random.randint(1, 4), random.randint(1, 200), random.randint(0, 30)
        promised_s = link.end_if_added(size, count, now_s)

        for number in range(100, 100 + count):
            image = Image(uri="b", size_bytes=size)
            link.add(Transfer(number=number, image=image, nodes=(), duration_s=link.duration_s(size)), now_s)

        assert link.end_of(99 + count) == promised_s


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_stall_makes_everything_on_the_link_later_but_what_has_begun_has_begun(has_begun: bool) -> None:
    link = FifoLink(rate_bytes_per_s=RATE)
    link.add(transfer(1, 10), 0)
    link.add(transfer(2, 10), 0)
    if has_begun:
        assert link.take_event()[1]

    link.stall(7)

    first, second = link.upcoming()
    assert (first.start_s, first.end_s) == (0 if has_begun else 7, 17)
    assert (second.start_s, second.end_s) == (17, 27)
    assert [link.end_of(1), link.end_of(2), link.end_of(3)] == [17, 27, None]
    assert link.end_if_added(10, 1, 0) == 28


def test_a_stalled_deadline_holds_up_the_next_one() -> None:
    links = ExclusiveLinks(rate_bytes_per_s=RATE)
    plan(links, transfer(1, 10, deadline_s=50), 0)
    plan(links, transfer(2, 10, deadline_s=60), 0)
    list(links.advance(0))
    links.stall(5, has_deadline=True)

    events = [event for at_s in range(1, 60) for event in links.advance(at_s)]

    assert told(events) == [(15, 1, "ends"), (15, 2, "begins"), (25, 2, "ends")]


def test_a_link_that_moves_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="moves nothing"):
        FifoLink(rate_bytes_per_s=0)
