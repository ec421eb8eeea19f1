"""Transfers that end when they really do, and those that go on outside of the plan."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import pytest

from outrider.core.links.links import Links, TransferStanding
from outrider.core.model import Transfer
from outrider.core.reservations.admission import assess
from outrider.core.reservations.book import ReservationPlan
from outrider.core.restart.snapshot import TransferStage, keep, keep_transfers
from outrider.store.forms import read_transfer, write_transfer
from tests.amount import examples
from tests.unit.core.books import A, B, C, accept, nodes, wanted
from tests.unit.core.naive_checks import check_invariants
from tests.unit.core.restart.test_restoring import again, contents, events, go_on, new_links, random_service
from tests.unit.core.sites import Site


@pytest.fixture(params=[False, True], ids=["exclusive", "shared"])
def links(request: pytest.FixtureRequest) -> Links:
    return new_links(Site(nodes=nodes(1)), is_shared=request.param)


def three_transfers(links: Links) -> Site:
    """A site over these links whose three transfers of 2 s or more have deadlines 20, 30 and 40."""
    site = Site(nodes=nodes(1, cpus=3))
    book = site.book()
    for name, start_s, image in (("x", 20, A), ("y", 30, B), ("z", 40, C)):
        accept(book, wanted(name, start_s, 5, image), 0)
    waiting = [transfer for transfer, _ in book.link.latest_starts()]
    links.resume([TransferStanding(transfer=transfer) for transfer in waiting], 0)
    return site


def test_the_next_transfer_begins_when_one_is_put_aside(links: Links) -> None:
    three_transfers(links)
    happened = list(links.advance(0))
    assert [(each.transfer.number, each.has_begun) for each in happened] == [(1, True)]

    assert links.set_aside(1, 1).number == 1
    happened = list(links.advance(1))

    assert [(each.at_s, each.transfer.number, each.has_begun) for each in happened] == [(1, 2, True)]
    assert ([each.number for each, _ in links.deadlines.under_way()], [*links.deadlines.aside]) == ([2], [1])
    assert links.end(1, 9).number == 1
    assert ([each.number for each, _ in links.deadlines.under_way()], links.deadlines.aside) == ([2], {})


def test_a_transfer_that_ends_early_frees_the_link(links: Links) -> None:
    three_transfers(links)
    list(links.advance(0))

    assert links.end(1, 1).number == 1

    assert links.deadlines.under_way() == ()
    assert [(each.at_s, each.transfer.number) for each in links.advance(1)] == [(1, 2)]


def test_a_transfer_that_does_not_run_cannot_end(links: Links) -> None:
    three_transfers(links)
    list(links.advance(0))

    for number in (2, 99):
        with pytest.raises(ValueError, match=f"transfer {number} does not run"):
            links.end(number, 1)
    assert links.deadlines.under_way()
    links.end(1, 1)
    with pytest.raises(ValueError, match="transfer 1 does not run"):
        links.set_aside(1, 1)


@pytest.mark.parametrize("is_shared", [False, True])
def test_what_was_put_aside_is_put_back_beside_what_runs(is_shared: bool) -> None:
    links = new_links(Site(nodes=nodes(1)), is_shared=is_shared)
    site = three_transfers(links)
    list(links.advance(0))
    links.set_aside(1, 1)
    list(links.advance(1))
    links.set_aside(2, 1)
    list(links.advance(1))
    standings = links.standings(1)

    resumed = new_links(site, is_shared=is_shared)
    resumed.resume(standings, 1)

    begun = [(each.transfer.number, each.end_s is None) for each in standings if each.has_begun]
    assert begun == [(1, True), (2, True), (3, False)]
    assert resumed.standings(1) == standings
    assert resumed.next_event_s(1) == links.next_event_s(1)
    assert list(resumed.advance(50)) == list(links.advance(50))


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_book_with_transfers_aside_is_restored_from_what_is_stored(is_shared: bool) -> None:
    aside = 0
    for seed in range(700, 700 + examples(400)):
        chance = Random(seed)
        site, service = random_service(chance, is_shared=is_shared)
        book, now_s = service.book, service.now_s
        while book.link.under_way() and chance.random() < 0.8:
            number = book.links.set_aside(book.link.under_way()[0][0].number, now_s).number
            (kept,) = keep_transfers(book, now_s, {number})
            assert (kept.stage, read_transfer(write_transfer(kept))) == (TransferStage.RUNNING, kept)
            for event in events(book, now_s, now_s):
                assert event.has_begun
                book.transfer_begun(event.transfer.number, now_s)
            book.expect_arrivals(now_s)
        aside += len(book.link.aside) > 0
        kept_book = keep(book, now_s)
        restored = again(site, kept_book, now_s, is_shared=is_shared).book
        survivor = deepcopy(book)

        assert restored.link.aside == survivor.link.aside
        assert contents(restored, now_s) == contents(survivor, now_s), f"seed {seed}"
        for each in (restored, survivor):
            for number in sorted(each.link.aside):
                if number % 2:
                    each.links.end(number, now_s)
                    each.transfer_done(number, now_s)
        assert go_on(restored, now_s, seed) == go_on(survivor, now_s, seed), f"seed {seed}"
    assert aside >= examples(10)


def test_nobody_counts_on_a_copy_whose_transfer_was_put_aside() -> None:
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("w", 20, 10, A), 0)
    list(book.links.advance(0))
    book.transfer_begun(1, 0)
    joins = assess(book, wanted("next", 20, 10, A), 1)
    book.links.set_aside(1, 1)

    own = assess(book, wanted("next", 20, 10, A), 1)

    assert isinstance(joins, ReservationPlan)
    assert isinstance(own, ReservationPlan)
    assert (len(joins.transfers), len(own.transfers)) == (0, 1)
    check_invariants(book, 1)
    book.links.end(1, 5)
    book.transfer_done(1, 5)
    assert [(life.ready_s, life.transfer) for _, life in book.entries["w"].lives] == [(5, None)]
    check_invariants(book, 5)


def test_who_waits_for_a_transfer_aside_is_late_once_its_deadline_has_passed() -> None:
    site = Site(nodes=nodes(1))
    book = site.book()
    accept(book, wanted("w", 20, 10, A), 0)
    list(book.links.advance(0))
    book.transfer_begun(1, 0)
    book.links.set_aside(1, 1)
    kept = keep(book, 1)

    assert again(site, kept, 20).late == ()
    assert again(site, kept, 21).late == ("w",)


def test_best_effort_beside_a_transfer_gets_the_whole_link_only_from_when_that_is_put_aside() -> None:
    """10 bytes a second, half of them for each: 5 bytes in the first second, 10 in each later one."""
    links = new_links(Site(nodes=nodes(1)), is_shared=True)
    links.deadlines.resume_waiting([Transfer(number=1, image=C, nodes=("n0",), duration_s=4, deadline_s=99)])
    links.add(Transfer(number=2, image=C, nodes=("n0",), duration_s=2), 0)
    list(links.advance(0))

    links.set_aside(1, 1)

    assert links.end_of(2, 1) == 3
    assert [(each.at_s, each.has_begun) for each in links.advance(9)] == [(3, False)]
