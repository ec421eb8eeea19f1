"""A reservation with several options: which is promised, why, and what is said of the others."""

from __future__ import annotations

from outrider.core.model import Image, Workspace
from outrider.core.options.admission import Reason, admit_options
from outrider.core.reservations.book import Book
from outrider.core.reservations.refusal import Cause
from tests.unit.core.books import A, B, accept, begin_next, end_running, nodes, snapshot, wanted
from tests.unit.core.sites import Site


def book_of(count: int) -> Book:
    return Site(nodes=nodes(count, cpus=1)).book()


def ways(*sizes: tuple[int, int], image: Image | None = None) -> list[Workspace]:
    """Options of so many nodes for so long, from 10 on."""
    return [wanted("r", 10, duration_s, image, instances) for instances, duration_s in sizes]


def test_option_with_fewest_node_seconds_is_taken_while_it_is_in_time() -> None:
    answer = admit_options(book_of(4), ways((2, 60), (4, 35)), 0, finish_by_s=100)

    assert answer.chosen is not None
    assert (answer.chosen.index, answer.reason) == (0, Reason.LEAST)
    assert answer.reservation is not None
    assert (answer.reservation.start_s, answer.reservation.end_s) == (10, 70)


def test_more_nodes_are_taken_when_only_they_keep_the_deadline() -> None:
    answer = admit_options(book_of(4), ways((2, 60), (4, 35)), 0, finish_by_s=50)

    assert answer.chosen is not None
    assert (answer.chosen.index, answer.reason) == (1, Reason.ONLY)
    slow = answer.options[0]
    assert slow.refusal is not None
    assert slow.refusal.message == "it lasts 60 s, and 40 s are left"
    assert slow.earliest_start_s == 10


def test_without_a_deadline_the_option_that_ends_first_is_taken() -> None:
    answer = admit_options(book_of(4), ways((2, 60), (4, 35)), 0)

    assert answer.chosen is not None
    assert (answer.chosen.index, answer.reason) == (1, Reason.FIRST_END)


def test_refusal_names_the_obstacle_and_the_earliest_start_of_each_and_changes_nothing() -> None:
    book = book_of(2)
    accept(book, wanted("taken", 0, 50, instances=1), 0)
    before = snapshot(book)

    answer = admit_options(book, ways((2, 20), (3, 10)), 0, finish_by_s=40)

    assert (answer.chosen, answer.reservation) == (None, None)
    assert [each.refusal.cause for each in answer.options if each.refusal is not None] == [Cause.SLOTS] * 2
    # Both nodes are free from 50 on; there are never three.
    assert [each.earliest_start_s for each in answer.options] == [50, None]
    assert snapshot(book) == before


def test_plan_tells_the_same_and_changes_nothing() -> None:
    book = book_of(4)
    before = snapshot(book)

    planned = admit_options(book, ways((2, 60), (4, 35)), 0, finish_by_s=50, is_plan=True)

    assert planned.reservation is None
    assert snapshot(book) == before
    assert planned.chosen == admit_options(book, ways((2, 60), (4, 35)), 0, finish_by_s=50).chosen


def test_option_whose_image_is_there_wins_over_a_slightly_shorter_one() -> None:
    book = book_of(1)
    accept(book, wanted("earlier", 5, 5, A), 0)
    begin_next(book, 3)
    end_running(book, 5)
    other, there = wanted("r", 10, 10, B), wanted("r", 10, 11, A)

    answer = admit_options(book, [other, there], 5, finish_by_s=60)

    assert answer.chosen is not None
    # 11 s without a transfer against 10 s and 2 s of transfer.
    assert (answer.chosen.index, answer.reason) == (1, Reason.IMAGE)
    assert answer.chosen.plan is not None
    assert answer.chosen.plan.transfers == ()


def test_what_could_not_be_better_is_not_asked_about_and_the_choice_is_the_same() -> None:
    book = book_of(8)
    three = ways((2, 60), (4, 35), (8, 20))

    brief = admit_options(book, three, 0, finish_by_s=100, is_plan=True, tells_all=False)
    whole = admit_options(book, three, 0, finish_by_s=100, is_plan=True)

    assert [each.index for each in brief.options] == [0]
    assert len(whole.options) == 3
    assert (brief.chosen, brief.reason) == (whole.chosen, whole.reason)


def test_of_those_that_are_not_the_first_the_cheapest_is_taken_without_asking_about_all() -> None:
    three = ways((8, 20), (4, 35), (2, 60))

    brief = admit_options(book_of(8), three, 0, finish_by_s=100, tells_all=False)

    assert brief.chosen is not None
    assert brief.chosen.index == 2
    assert brief.reservation is not None
    assert len(brief.reservation.nodes) == 2
