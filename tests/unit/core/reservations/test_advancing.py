"""A transfer that waits is brought forward where one copy then serves two reservations."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from outrider.core.reservations.admission import Rejected, assess
from outrider.core.reservations.book import Book, ReservationPlan, Shipping
from outrider.core.reservations.planning import plan_at
from tests.amount import examples
from tests.unit.core.books import A, C, accept, free_s, nodes, pass_time, tight_book, wanted
from tests.unit.core.sites import Site


@pytest.mark.parametrize("shipping", list(Shipping))
def test_a_link_that_has_time_for_one_copy_brings_it_for_whoever_begins_first(shipping: Shipping) -> None:
    """2 s for A by 4 and 4 s for C by 6 fill the link; a second A by 3 would be too much."""
    book = Site(nodes=nodes(1, cpus=4), shipping=shipping, reserve_s=0).book()
    accept(book, wanted("later", 4, 10, A), 0)
    accept(book, wanted("other", 6, 10, C), 0)
    request = wanted("sooner", 3, 1, A)

    book.terms = replace(book.terms, is_advancing=False)
    without = assess(book, request, 0)
    book.terms = replace(book.terms, is_advancing=True)
    plan = accept(book, request, 0)

    assert isinstance(without, Rejected)
    assert plan.transfers == ()
    assert plan.advanced == (1,)
    assert [(each.number, at_s) for each, at_s in book.link.latest_starts()] == [(1, 0), (2, 2)]
    pass_time(book, 0, 2)
    assert book.entries["sooner"].lives == book.entries["later"].lives
    [(_, life)] = book.entries["later"].lives
    assert (life.transfer, life.ready_s, life.expires_s) == (None, 2, 14)


def test_a_pool_that_has_room_for_one_copy_keeps_it_for_both() -> None:
    book = Site(nodes=nodes(1, pool_bytes=15), reserve_s=0).book()
    accept(book, wanted("later", 20, 10, A), 0)

    plan = accept(book, wanted("sooner", 5, 14, A), 0)

    assert plan.advanced == (1,)
    [(_, life)] = book.entries["later"].lives
    assert (life.start_s, life.ready_s, life.expires_s) == (3, 5, 30)
    assert book.pools.pools[0].promised_bytes == 10


def test_what_has_begun_is_not_moved_and_a_refusal_changes_nothing() -> None:
    book = Site(nodes=nodes(1, cpus=4), reserve_s=None).book()
    accept(book, wanted("later", 10, 10, A), 0)
    pass_time(book, 0, 0)

    answer = assess(book, wanted("sooner", 1, 1, A), 0)

    assert isinstance(answer, Rejected)
    assert [end_s for _, end_s in book.link.under_way()] == [2]


def test_more_is_accepted_with_it_and_nothing_less() -> None:
    more = 0
    for seed in range(examples(1500)):
        chance = Random(seed)
        book, request, now_s = tight_book(chance)
        assert request.start_s is not None
        book.terms = replace(book.terms, is_advancing=False)
        without = plan_at(book, request, request.start_s, now_s)
        book.terms = replace(book.terms, is_advancing=True)
        plan = plan_at(book, request, request.start_s, now_s)
        if isinstance(without, ReservationPlan):
            assert plan == without, seed
        elif isinstance(plan, ReservationPlan):
            more += 1
            assert plan.advanced, seed
            check_carried_out(book, plan, now_s, seed)
    assert more > examples(3)


def check_carried_out(book: Book, plan: ReservationPlan, now_s: int, seed: int) -> None:
    """Everybody's images come in time, transfer by transfer."""
    book.commit(plan, now_s)
    entries = dict(book.entries)
    starts = {
        life.transfer: min(
            entry.reservation.start_s
            for entry in entries.values()
            if life in [other for _, other in entry.lives] and entry.reservation.start_s >= now_s
        )
        for entry in entries.values()
        for _, life in entry.lives
        if life.transfer is not None and entry.reservation.start_s >= now_s
    }
    waiting = {each.number: each for each, _ in book.link.latest_starts()}
    for number, start_s in starts.items():
        if number in waiting:
            deadline_s = waiting[number].deadline_s
            assert deadline_s is not None, seed
            assert deadline_s <= start_s, seed
    cursor_s = free_s(book, now_s)
    for transfer, latest_s in book.link.latest_starts():
        assert cursor_s <= latest_s, seed
        cursor_s += transfer.duration_s
        assert transfer.deadline_s is not None, seed
        assert cursor_s <= transfer.deadline_s, seed


def test_the_answer_says_the_same_as_a_question() -> None:
    book = Site(nodes=nodes(1, pool_bytes=15), reserve_s=0).book()
    accept(book, wanted("later", 20, 10, A), 0)

    answer = assess(book, wanted("sooner", 5, 14, A), 0)

    assert isinstance(answer, ReservationPlan)
    assert answer == accept(book, wanted("sooner", 5, 14, A), 0)
