"""Copies that are there for some alone: nobody counts on one because he knows its digest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.images.pools import Lingering
from outrider.core.model import Image
from outrider.core.reservations.admission import assess
from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.reservations.missing_copies import (
    Restaged,
    copy_arrived,
    lose_copy,
    note_pool,
    part_with,
    restage,
)
from tests.unit.core.books import accept, begin_next, nodes, pass_time, wanted
from tests.unit.core.naive_checks import check_invariants
from tests.unit.core.sites import Site

PRIVATE = Image(uri="http://mine/x", digest="sha256:x", size_bytes=10, is_private=True)
PUBLIC = replace(PRIVATE, uri="http://site/x", is_private=False)
OTHER = replace(PUBLIC, uri="http://mirror/x")


def book_with(image: Image, end_s: int = 100) -> Book:
    """The image is there for a reservation that has begun."""
    book = Site(nodes=nodes(1), keep_bytes=100).book()
    accept(book, wanted("first", 10, end_s - 10, image), 0)
    pass_time(book, 0, 10)
    return book


@pytest.mark.parametrize(
    ("there", "image", "is_counted_on"),
    [
        (PRIVATE, PUBLIC, False),
        (PRIVATE, replace(PUBLIC, is_private=True), False),
        # By the same address a right to it is shown in no time.
        (PRIVATE, PRIVATE, True),
        (PRIVATE, replace(PRIVATE, is_private=False), True),
        (PUBLIC, replace(PUBLIC, is_private=True), True),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_copy_is_counted_on_by_whoever_may_use_it(
    there: Image, image: Image, is_counted_on: bool, is_there: bool
) -> None:
    assert is_joined(there, image, is_there=is_there) is is_counted_on


@pytest.mark.parametrize("is_there", [True, False])
def test_copy_of_everybodys_is_counted_on_by_whoever_has_another_address_once_it_is_there(
    is_there: bool,
) -> None:
    """Until then that address may deliver nothing."""
    assert is_joined(PUBLIC, OTHER, is_there=is_there) is is_there
    assert is_joined(PUBLIC, PRIVATE, is_there=is_there) is is_there


def is_joined(there: Image, image: Image, *, is_there: bool) -> bool:
    """Whether a second reservation counts on what is, or comes, for the first, instead of a transfer."""
    book = Site(nodes=nodes(1), keep_bytes=100).book()
    accept(book, wanted("first", 10, 90, there, cpus=0), 0)
    if is_there:
        pass_time(book, 0, 10)
    else:
        begin_next(book, 0)
    now_s = 10 if is_there else 1

    plan = assess(book, wanted("second", 60, 30, image, cpus=0), now_s)

    assert isinstance(plan, ReservationPlan)
    assert bool(plan.joined) is not bool(plan.transfers)
    return bool(plan.joined)


def test_private_copy_that_nobody_needs_any_more_is_counted_on_by_nobody() -> None:
    book = book_with(PRIVATE, end_s=50)
    pass_time(book, 10, 60)
    book.pools.settle(60)
    found = Lingering(key="sha256:x", size_bytes=10, added_s=0, uses=1, last_use_s=50, next_use_s=None)

    assert not book.pools.pools[0].lingering
    note_pool(book, "n0", [found], 60, private={"sha256:x"})
    assert not book.pools.pools[0].lingering
    note_pool(book, "n0", [found], 60)
    assert book.pools.pools[0].lingering


def test_private_copy_that_came_by_itself_is_none_for_others() -> None:
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("first", 100, 50, PUBLIC), 0)

    assert copy_arrived(book, "n0", PUBLIC.key, 1, there=PRIVATE) == ()
    assert book.link.latest_starts()
    assert len(copy_arrived(book, "n0", PUBLIC.key, 1, there=OTHER)) == 1


def test_copy_that_turns_out_to_be_for_others_is_brought_for_the_one_that_counted_on_it() -> None:
    book = book_with(PRIVATE)
    accept(book, wanted("second", 150, 30, PRIVATE), 11)
    first = book.entries["first"].lives

    part_with(book, "second", "n0", 12)
    answer = restage(book, "second", 12, without=("n0",))

    assert isinstance(answer, Restaged)
    assert not answer.is_late
    assert [each.image for each in answer.transfers] == [PRIVATE]
    ((_, own),) = book.entries["second"].lives
    assert own.transfer == answer.transfers[0].number
    assert book.entries["first"].lives == first
    assert [life.users.keys() for _, life in first] == [{"first"}]
    check_invariants(book, 12)


def test_address_that_gives_other_bytes_takes_nothing_from_those_who_have_it_from_elsewhere() -> None:
    book = book_with(PRIVATE)
    accept(book, wanted("second", 150, 30, PUBLIC), 11)

    lost = lose_copy(book, "n0", PUBLIC.key, 12, uri=PUBLIC.uri)

    assert lost.users == ("second",)
    assert len(lost.dropped) == 1
    assert len(book.entries["first"].lives) == 1
    assert not book.entries["second"].lives
