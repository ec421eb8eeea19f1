"""Transfers whose time is over before they begin: nobody new may count on them, or on their time."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.links.deadline import DeadlineLink
from outrider.core.model import Transfer
from outrider.core.reservations.admission import Rejected, assess
from outrider.core.reservations.book import ReservationPlan
from tests.amount import examples
from tests.unit.core.books import A, B, accept, nodes, wanted
from tests.unit.core.links.test_deadline_link import transfer
from tests.unit.core.sites import Site


def test_nobody_counts_on_a_copy_whose_transfer_is_late() -> None:
    book = Site(nodes=nodes(1), reserve_s=0).book()
    accept(book, wanted("first", 20, 10, A), 0)
    ((first, latest_s),) = book.link.latest_starts()

    in_time = assess(book, wanted("next", 40, 10, A), latest_s)
    late = assess(book, wanted("next", 40, 10, A), latest_s + 1)

    assert book.link.late(latest_s) == frozenset()
    assert book.link.late(latest_s + 1) == {first.number}
    assert isinstance(in_time, ReservationPlan)
    assert isinstance(late, ReservationPlan)
    assert (len(in_time.transfers), len(late.transfers)) == (0, 1)


def test_the_time_that_a_late_transfer_still_needs_is_not_promised_to_others() -> None:
    """Each transfer takes 2 s. The first must begin at 18; at 19 it needs the link until 21."""
    book = Site(nodes=nodes(2), reserve_s=0).book()
    accept(book, wanted("first", 20, 10, A), 0)

    too_early = assess(book, wanted("next", 22, 10, B), 19)
    behind = assess(book, wanted("next", 23, 10, B), 19)

    assert isinstance(too_early, Rejected)
    assert too_early.earliest_start_s == 23
    assert isinstance(behind, ReservationPlan)


def test_who_stands_behind_a_late_transfer_is_late_until_the_link_has_caught_up() -> None:
    link = DeadlineLink(reserve_s=0)
    link.resume_waiting([transfer(1, 5, 10), transfer(2, 5, 16), transfer(3, 5, 40)])

    assert link.late(5) == frozenset()
    assert link.late(6) == {1}
    assert link.late(7) == {1, 2}
    assert link.late(26) == {1, 2, 3}


def is_in_time(new: Transfer, sequence: Sequence[Transfer], from_s: int) -> bool:
    """Whether it arrives by its deadline, and so do all behind it, if all are sent in this order, one
    behind another. Those before it may be late: they are not later for it."""
    is_behind = False
    for each in sequence:
        is_behind = is_behind or each is new
        from_s += each.duration_s
        assert each.deadline_s is not None
        if is_behind and from_s > each.deadline_s:
            return False
    return True


kept = st.lists(st.tuples(st.integers(1, 4), st.integers(4, 20)), max_size=5)


@settings(max_examples=examples(1500), derandomize=True, deadline=None)
@given(kept, st.integers(0, 20), st.integers(1, 4), st.integers(0, 30))
def test_a_place_is_found_exactly_when_it_and_all_behind_it_are_in_time(
    waiting: list[tuple[int, int]], now_s: int, duration_s: int, deadline_s: int
) -> None:
    link = DeadlineLink(reserve_s=0)
    link.resume_waiting([transfer(number, *each) for number, each in enumerate(waiting, 1)])
    before = [each for each, _ in link.latest_starts()]
    new = transfer(99, duration_s, deadline_s)
    after = sorted([*before, new], key=lambda each: each.deadline_s or 0)

    insertion = link.plan([new], now_s)

    expected = is_in_time(new, after, now_s)
    assert (insertion is not None) == expected
    earliest_s = link.earliest_deadline(duration_s, now_s, deadline_s)
    assert (earliest_s == deadline_s) == expected
    assert link.plan([transfer(99, duration_s, earliest_s)], now_s) is not None
    if insertion is not None:
        link.apply(insertion)
        assert [each for each, _ in link.latest_starts()] == after
