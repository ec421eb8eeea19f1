"""The earliest start that is named is the first that would be accepted: compared with every second."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest

from outrider.core.besteffort.board import QueueRules
from outrider.core.links.links import ExclusiveLinks
from outrider.core.links.shared import SharedLink
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.core.nodes import earliest_slots
from outrider.core.reservations.admission import Rejected, assess
from outrider.core.reservations.book import Book, ReservationPlan, Shipping, Terms
from outrider.core.reservations.earliest import earliest_start, search_from
from outrider.core.reservations.planning import plan_at
from outrider.core.reservations.renegotiation import change_end
from outrider.core.scheduler import Scheduler
from tests.amount import examples
from tests.unit.core.books import (
    A,
    B,
    accept,
    nodes,
    random_book,
    random_workspace,
    tight_book,
    wanted,
)
from tests.unit.core.sites import Site

ONE = Resources.of(cpus=1)
LAST_S = 150
"""Later than anything in a random book matters."""


def first_accepted(book: Book, workspace: Workspace, from_s: int, now_s: int) -> int | None:
    """Ask for every second."""
    return next(
        (
            at_s
            for at_s in range(max(from_s, now_s), LAST_S)
            if isinstance(plan_at(book, workspace, at_s, now_s), ReservationPlan)
        ),
        None,
    )


def searched_anew(book: Book, workspace: Workspace, from_s: int, now_s: int) -> int | None:
    """Begin another search at each step, where the one before rests."""
    while True:
        try:
            reached_s = next(search_from(book, workspace, from_s, now_s))
        except StopIteration as ended:
            return None if ended.value is None else int(ended.value.start_s)
        assert reached_s > from_s
        from_s = reached_s


@pytest.mark.parametrize("shipping", list(Shipping))
@pytest.mark.parametrize("reserve_s", [0, 1])
def test_two_full_pools_are_free_when_what_they_hold_expires_and_each_transfer_has_had_its_time(
    shipping: Shipping, reserve_s: int
) -> None:
    site = Site(nodes=nodes(2, cpus=1, pool_bytes=15), shipping=shipping, reserve_s=reserve_s)
    book = site.book()
    accept(book, wanted("a", 20, 10, A, instances=2), 0)
    request = wanted("b", 20, 5, B, instances=2)

    refused = assess(book, request, 0)
    by_a_deadline = assess(book, wanted("b", 20, 5, B, instances=2, finish_by_s=90), 0)

    # Each transfer takes 2 s, and may begin `reserve_s` before its time.
    first_s = 30 + reserve_s + (4 if shipping is Shipping.PER_NODE else 2)
    assert first_accepted(book, request, 20, 0) == first_s
    assert isinstance(refused, Rejected)
    assert refused.earliest_start_s == first_s
    assert isinstance(by_a_deadline, ReservationPlan)
    assert by_a_deadline.start_s == first_s


@pytest.mark.parametrize("is_tight", [False, True])
def test_with_pool_limits_the_earliest_start_is_the_first_that_is_accepted(is_tight: bool) -> None:
    refused = 0
    wrong: list[tuple[int, int | None, int | None]] = []
    for seed in range(examples(1300)):
        chance = Random(seed)
        if is_tight:
            book, workspace, now_s = tight_book(chance)
        else:
            book, now_s = random_book(chance, has_limits=True)
            workspace = random_workspace(chance, "w", now_s)
        assert workspace.start_s is not None

        found = earliest_start(book, workspace, workspace.start_s, now_s)

        right = first_accepted(book, workspace, workspace.start_s, now_s)
        refused += right != workspace.start_s
        if found != right:
            wrong.append((seed, found, right))
    assert refused > examples(300)
    assert not wrong, f"{len(wrong)} of {refused}: {wrong[:5]}"


@pytest.mark.parametrize("listed_s", [2, 86_400])
def test_a_search_that_begins_anew_at_each_step_finds_the_first_start(listed_s: int) -> None:
    later = 0
    wrong: list[tuple[int, int | None, int | None]] = []
    for seed in range(examples(600)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=chance.random() < 0.5)
        workspace = random_workspace(chance, "w", now_s)
        from_s = max(workspace.start_s or 0, now_s)

        with patch.object(earliest_slots, "STARTS_LISTED_S", listed_s):
            found = searched_anew(book, workspace, from_s, now_s)

        right = first_accepted(book, workspace, from_s, now_s)
        later += right != from_s
        if found != right:
            wrong.append((seed, found, right))
    assert later > examples(150)
    assert not wrong, f"{len(wrong)} of {later}: {wrong[:5]}"


def test_with_an_image_that_is_only_being_made_the_earliest_start_is_the_first_that_is_accepted() -> None:
    refused = 0
    wrong: list[tuple[int, int | None, int | None]] = []
    for seed in range(examples(900)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=chance.random() < 0.5)
        made_s = now_s + chance.randint(0, 25)
        image = Image(uri="made", size_bytes=chance.randint(5, 20), made_s=made_s)
        workspace = replace(random_workspace(chance, "w", now_s), image=image, finish_by_s=None)
        assert workspace.start_s is not None

        found = earliest_start(book, workspace, workspace.start_s, now_s)

        right = first_accepted(book, workspace, workspace.start_s, now_s)
        at_once = first_accepted(book, replace(workspace, image=replace(image, made_s=0)), now_s, now_s)
        refused += right != at_once
        if found != right:
            wrong.append((seed, found, right))
        if right is not None:
            plan = plan_at(book, workspace, right, now_s)
            assert isinstance(plan, ReservationPlan)
            assert plan.insertion is None or min(plan.insertion.latest) >= made_s
    assert refused > examples(200)
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"


def test_where_a_reservation_ends_earlier_than_promised_others_can_start_then() -> None:
    # Too many instances a node to be listed one by one: starts are tried where something ends or begins.
    book = Book(nodes(2, cpus=16), Terms(), links=ExclusiveLinks(rate_bytes_per_s=1))
    whole = Workspace(name="whole", instances=2, resources=Resources.of(cpus=16), duration_s=100, start_s=0)
    accept(book, whole, 0)
    accept(book, replace(whole, name="next", start_s=120), 0)

    assert change_end(book, "whole", 70, 10) is None

    asked = Workspace(name="asked", instances=20, resources=ONE, duration_s=50, start_s=20)
    assert earliest_start(book, asked, 20, 10) == first_accepted(book, asked, 20, 10) == 70


def test_image_that_is_being_made_reaches_an_idle_node_by_its_transfer_after_that() -> None:
    """30 bytes at 5 bytes/s, made at 40: at 46, and not at 45."""
    book = Site(nodes=nodes(1, cpus=1, pool_bytes=None), reserve_s=0).book()
    request = wanted("w", 45, 5, Image(uri="made", size_bytes=30, made_s=40))

    answer = assess(book, request, 0)

    assert isinstance(answer, Rejected)
    assert answer.earliest_start_s == 46
    assert "is being converted until about 40, and cannot reach n0 by 45" in answer.refusal.sentence()
    assert isinstance(assess(book, replace(request, start_s=46), 0), ReservationPlan)


def shared_site(chance: Random, pool_bytes: int | None) -> Scheduler:
    """One link for both, with best effort and reservations of a few images on it."""
    site = tuple(
        Node(name=f"n{number}", capacity=Resources.of(cpus=chance.randint(1, 3)), pool_bytes=pool_bytes)
        for number in range(chance.randint(1, 3))
    )
    link = SharedLink(
        rate_bytes_per_s=10,
        best_effort_percent=chance.choice([20, 50]),
        reserve_s=chance.choice([None, 0, 3]),
    )
    terms = Terms(shipping=chance.choice(list(Shipping)))
    scheduler = Scheduler(Book(site, terms, links=link), QueueRules())
    images = [Image(uri=name, size_bytes=chance.randint(5, 40)) for name in "abc"]
    for number in range(chance.randint(1, 4)):
        scheduler.submit(
            Workspace(
                name=f"be{number}", instances=1, resources=ONE, duration_s=chance.randint(2, 20),
                image=chance.choice(images),
            )
        )  # fmt: skip
    scheduler.schedule(0)
    for number in range(chance.randint(0, 3)):
        scheduler.reserve(shared_request(chance, f"r{number}", images), 0, tells_earliest=False)
    return scheduler


def shared_request(chance: Random, name: str, images: list[Image]) -> Workspace:
    return wanted(name, chance.randint(1, 30), chance.randint(1, 9), chance.choice(images),
                  instances=chance.randint(1, 2))  # fmt: skip


def test_what_best_effort_brings_for_certain_is_a_start_that_is_looked_at() -> None:
    """100 bytes of best effort at 5 of 10 bytes/s are there at 20; a second transfer would come later."""
    site = (Node(name="n0", capacity=Resources.of(cpus=2)),)
    link = SharedLink(rate_bytes_per_s=10, best_effort_percent=50, reserve_s=0)
    scheduler = Scheduler(Book(site, Terms(), links=link), QueueRules())
    image = Image(uri="a", size_bytes=95)
    scheduler.submit(Workspace(name="be", instances=1, resources=ONE, duration_s=5, image=image))
    scheduler.schedule(0)
    other = Image(uri="b", size_bytes=35)
    accept(scheduler.book, wanted("other", 7, 60, other), 0)

    refused = scheduler.what_if(wanted("w", 10, 5, image), 0)

    assert isinstance(refused, Rejected)
    assert first_accepted(scheduler.book, wanted("w", 10, 5, image), 10, 0) == 19
    assert refused.earliest_start_s == 19


@pytest.mark.parametrize("pool_bytes", [None, 60])
def test_on_a_shared_link_the_earliest_start_is_the_first_that_is_accepted(pool_bytes: int | None) -> None:
    refused = 0
    wrong: list[tuple[int, int | None, int | None]] = []
    for seed in range(examples(700)):
        chance = Random(seed)
        scheduler = shared_site(chance, pool_bytes)
        images = [Image(uri=name, size_bytes=chance.randint(5, 40)) for name in "abc"]
        known = [life.image for pool in scheduler.book.pools.pools for lives in pool.lives.values()
                 for life in lives]  # fmt: skip
        workspace = shared_request(chance, "w", known or images)
        assert workspace.start_s is not None

        found = earliest_start(scheduler.book, workspace, workspace.start_s, 0)

        right = first_accepted(scheduler.book, workspace, workspace.start_s, 0)
        refused += right != workspace.start_s
        if found != right:
            wrong.append((seed, found, right))
    assert refused > examples(100)
    assert not wrong, f"{len(wrong)} of {refused}: {wrong[:5]}"
