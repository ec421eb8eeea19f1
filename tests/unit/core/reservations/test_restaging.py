"""Copies that are not where the book counts on them: it follows, and promises are mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from outrider.core.images.pools import Lingering
from outrider.core.model import Transfer
from outrider.core.reservations.admission import admit, assess
from outrider.core.reservations.book import Book, ReservationPlan, Shipping
from outrider.core.reservations.missing_copies import (
    LostCopy,
    Restaged,
    awaited,
    copy_arrived,
    lose_copy,
    note_pool,
    restage,
)
from outrider.core.reservations.refusal import Cause, Refusal
from outrider.core.restart.snapshot import keep
from tests.amount import examples
from tests.unit.core.books import (
    A,
    B,
    C,
    accept,
    begin_next,
    end_running,
    free_s,
    nodes,
    pass_time,
    random_book,
    random_workspace,
    snapshot,
    wanted,
)
from tests.unit.core.naive_checks import check_invariants, lacks
from tests.unit.core.sites import Site


def is_feasible(
    waiting: Sequence[Transfer], durations: Sequence[int], deadline_s: int, free_from_s: int
) -> bool:
    """Whether a link can carry all in the order of their deadlines: the definition of EDF."""
    work = [(each.deadline_s or 0, each.duration_s) for each in waiting]
    work += [(deadline_s, duration_s) for duration_s in durations]
    return all(
        free_from_s + sum(duration_s for other_s, duration_s in work if other_s <= due_s) <= due_s
        for due_s, _ in work
    )


def some_copy(chance: Random, book: Book) -> tuple[str, str] | None:
    """A node, and an image that the book counts on there."""
    found = sorted(
        (node.name, key)
        for node, pool in zip(book.timeline.nodes, book.pools.pools, strict=True)
        for key in {*pool.lives, *pool.lingering}
    )
    return chance.choice(found) if found else None


def users_of(book: Book, node: str, key: str) -> list[str]:
    number = book.timeline.number_of[node]
    lives = book.pools.pools[number].lives.get(key, ())
    names = {user for life in lives for user in life.users if user in book.entries}
    return sorted(names, key=lambda name: (book.entries[name].reservation.start_s, name))


@pytest.mark.parametrize("block", range(4))
def test_what_is_lost_is_planned_anew_in_time_or_as_early_as_can_be(block: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(block * 250, block * 250 + examples(250)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=chance.random() < 0.5)
        for name in [name for name, entry in book.entries.items() if entry.end_s <= now_s]:
            book.cancel(name, now_s)
        found = some_copy(chance, book)
        if found is None:
            continue
        waiting = {transfer.number for transfer, _ in book.link.latest_starts()}
        users = users_of(book, *found)
        lost = lose_copy(book, *found, now_s)

        assert list(lost.users) == users, f"seed {seed}"
        pool = book.pools.pools[book.timeline.number_of[found[0]]]
        assert found[1] not in {*pool.lives, *pool.lingering}
        left = {transfer.number for transfer, _ in book.link.latest_starts()}
        assert waiting - left == set(lost.dropped)
        check_invariants(book, now_s)
        for name in lost.users:
            restage_and_check(book, name, now_s, counts)
        for number in range(3):
            admit(book, random_workspace(chance, f"later{number}", now_s), now_s)
        check_invariants(book, now_s)
        pass_time(book, now_s, 400)
        assert len(book.link) == 0
    assert all(counts[each] > examples(3) for each in ("in time", "late", "joined")), counts


def restage_and_check(book: Book, name: str, now_s: int, counts: Counter[str]) -> None:
    waiting = [transfer for transfer, _ in book.link.latest_starts()]
    before, entry = snapshot(book), book.entries[name]
    start_s, idle_s = max(entry.reservation.start_s, now_s), free_s(book, now_s)
    had = entry.reservation.transfers
    done = restage(book, name, now_s)
    if isinstance(done, Refusal):
        counts[f"refused: {done.cause.value}"] += 1
        assert snapshot(book) == before
        return
    check_invariants(book, now_s)
    durations = [each.duration_s for each in done.transfers]
    assert entry.reservation.transfers == had + tuple(each.number for each in done.transfers)
    assert done.is_late == (done.deadline_s > start_s)
    nodes_now = {node for node, _ in entry.lives}
    assert nodes_now.issuperset(chosen.node for chosen in entry.fits)
    if not done.is_late:
        counts["in time" if done.transfers else "joined"] += 1
        assert entry.reservation.start_s < now_s or lacks(book, name) == []
        return
    counts["late"] += 1
    assert all(life.ready_s <= done.deadline_s for _, life in entry.lives)
    for earlier_s in range(start_s, done.transfers[0].deadline_s or 0 if done.transfers else 0):
        assert not is_feasible(waiting, durations, earlier_s, idle_s)


@pytest.mark.parametrize("shipping", list(Shipping))
def test_a_waiting_transfer_without_a_copy_left_is_out_of_the_link(shipping: Shipping) -> None:
    book = Site(nodes=nodes(2, cpus=1), shipping=shipping).book()
    numbers = [each.number for each in accept(book, wanted("w", 20, 10, A, 2), 0).transfers]

    first = lose_copy(book, "n0", "a", 0)
    second = lose_copy(book, "n1", "a", 0)

    dropped = ((numbers[0],), (numbers[1],)) if shipping is Shipping.PER_NODE else ((), (numbers[0],))
    assert (first, second) == tuple(LostCopy(users=("w",), dropped=each) for each in dropped)
    assert len(book.link) == 0
    done = restage(book, "w", 0)
    assert isinstance(done, Restaged)
    assert [each.nodes for each in done.transfers] == (
        [("n0",), ("n1",)] if shipping is Shipping.PER_NODE else [("n0", "n1")]
    )
    assert (done.deadline_s, done.is_late) == (20, False)


def test_a_running_transfer_brings_nothing_to_who_has_lost_its_copy() -> None:
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("w", 20, 10, A), 0)
    number = begin_next(book, 0)

    assert lose_copy(book, "n0", "a", 1) == LostCopy(users=("w",))
    assert book.link.under_way()
    assert book.lives_of(number) == ()
    end_running(book, 2)
    assert book.pools.mask_with("a") == 0
    assert restage(book, "w", 2) != Restaged(deadline_s=20)
    assert lacks(book, "w") == []


def test_who_shares_a_lost_copy_shares_the_one_that_replaces_it() -> None:
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("later", 30, 10, A), 0)
    accept(book, wanted("sooner", 20, 10, A), 0)
    pass_time(book, 0, 10)
    lost = lose_copy(book, "n0", "a", 10)
    first, second = (restage(book, name, 10) for name in lost.users)

    assert lost.users == ("sooner", "later")
    assert isinstance(first, Restaged)
    assert [len(first.transfers), first.deadline_s, first.is_late] == [1, 20, False]
    assert second == Restaged(deadline_s=20)
    assert len(book.link) == 1


def test_a_copy_that_cannot_come_in_time_comes_when_the_others_are_served() -> None:
    """Each transfer takes 2 s, and others' fill the link from 10 to 16."""
    book = Site(nodes=nodes(4, cpus=1), reserve_s=0).book()
    accept(book, wanted("w", 10, 40, A), 0)
    pass_time(book, 0, 10)
    accept(book, wanted("others", 16, 10, B, 3), 10)

    lose_copy(book, "n0", "a", 10)
    done = restage(book, "w", 10)

    assert isinstance(done, Restaged)
    assert (done.deadline_s, done.is_late) == (18, True)
    assert [transfer.deadline_s for transfer, _ in book.link.latest_starts()] == [16, 16, 16, 18]
    check_invariants(book, 10)


def two_that_lost_a_copy(others_start_s: int) -> Book:
    """At 5 both lack the image; the second is to get its copy by 9, and three more nodes another
    image when the others start."""
    book = Site(nodes=nodes(4, cpus=4), reserve_s=0).book()
    accept(book, wanted("first", 4, 30, A), 0)
    accept(book, wanted("second", 9, 5, A), 0)
    pass_time(book, 0, 5)
    lose_copy(book, "n0", "a", 5)
    accept(book, wanted("others", others_start_s, 10, B, 3, cpus=3), 5)
    done = restage(book, "second", 5)
    assert isinstance(done, Restaged)
    return book


def test_what_others_bring_is_waited_for_if_nothing_is_sooner() -> None:
    """The link is full until 13, and the copy for the second is there by 9."""
    book = two_that_lost_a_copy(13)
    waiting = book.link.latest_starts()

    done = restage(book, "first", 5)

    assert done == Restaged(deadline_s=9, is_late=True)
    assert book.link.latest_starts() == waiting
    check_invariants(book, 5)


def test_what_others_bring_is_not_waited_for_if_a_transfer_of_its_own_is_sooner() -> None:
    book = two_that_lost_a_copy(40)

    done = restage(book, "first", 5)

    assert isinstance(done, Restaged)
    assert ([each.nodes for each in done.transfers], done.deadline_s) == ([("n0",)], 7)
    check_invariants(book, 5)


def test_what_others_bring_is_not_waited_for_where_it_cannot_stay() -> None:
    """The second's copy is there from 9 to 14; from 20 on the pool is promised to another image."""
    site = Site(nodes=nodes(1, cpus=4, pool_bytes=19), reserve_s=0)
    book = site.book()
    accept(book, wanted("first", 4, 30, A), 0)
    accept(book, wanted("second", 9, 5, A), 0)
    pass_time(book, 0, 5)
    lose_copy(book, "n0", "a", 5)
    restage(book, "second", 5)
    accept(book, wanted("other", 24, 5, C), 5)
    before = snapshot(book)

    refusal = restage(book, "first", 5)

    assert isinstance(refusal, Refusal)
    assert refusal.cause is Cause.POOL
    assert snapshot(book) == before


@pytest.mark.parametrize("shipping", list(Shipping))
def test_best_effort_does_not_expect_what_is_lost_and_goes_on_to_expect_the_rest(shipping: Shipping) -> None:
    site = Site(nodes=nodes(2, cpus=1), shipping=shipping)
    scheduler = site.scheduler()
    book = scheduler.book
    scheduler.submit(replace(wanted("job", 0, 50, A, 2), start_s=None))
    scheduler.schedule(0)
    assert book.pools.coming_times("a")

    assert lose_copy(book, "n0", "a", 0) == LostCopy()
    left = book.pools.coming_times("a")
    assert copy_arrived(book, "n1", "a", 1) == ()

    assert (len(left), book.pools.coming_times("a")) == (1, [])
    assert book._carried == {}
    (run,) = scheduler.board.runs.values()
    scheduler.queue.abandon(run, 2)
    book.pools.settle(60)
    assert book.pools.mask_with("a") == 0


def test_a_copy_that_would_come_after_the_end_is_refused() -> None:
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("w", 4, 2, A), 0)
    pass_time(book, 0, 5)
    lose_copy(book, "n0", "a", 5)
    before = snapshot(book)

    refusal = restage(book, "w", 5)

    assert isinstance(refusal, Refusal)
    assert (refusal.cause, refusal.nodes) == (Cause.LINK, ("n0",))
    assert snapshot(book) == before


def test_a_copy_for_which_the_pool_has_no_room_any_more_is_refused() -> None:
    book = Site(nodes=nodes(1, pool_bytes=15)).book()
    accept(book, wanted("w", 10, 30, A), 0)
    pass_time(book, 0, 5)
    lose_copy(book, "n0", "a", 5)
    accept(book, wanted("quick", 12, 5, B), 5)
    before = snapshot(book)

    refusal = restage(book, "w", 5)

    assert isinstance(refusal, Refusal)
    assert (refusal.cause, refusal.nodes) == (Cause.POOL, ("n0",))
    assert snapshot(book) == before


def test_a_reservation_that_lacks_nothing_gets_nothing() -> None:
    book = Site(nodes=nodes(2)).book()
    accept(book, wanted("with", 10, 5, A), 0)
    accept(book, wanted("without", 10, 5), 0)
    before = snapshot(book)

    assert restage(book, "with", 0) == Restaged(deadline_s=0)
    assert restage(book, "without", 0) == Restaged(deadline_s=10)
    assert snapshot(book) == before


def lingering(key: str, size_bytes: int = 10, uses: int = 1) -> Lingering:
    return Lingering(key=key, size_bytes=size_bytes, added_s=0, uses=uses, last_use_s=0, next_use_s=None)


def test_a_copy_that_turns_up_by_itself_needs_no_transfer() -> None:
    book = Site(nodes=nodes(2, cpus=1)).book()
    numbers = [each.number for each in accept(book, wanted("w", 20, 10, A, 2), 0).transfers]
    assert (awaited(book, "n0"), awaited(book, "n1")) == (("a",), ("a",))

    assert copy_arrived(book, "n0", "a", 3) == (numbers[0],)

    assert [each.number for each, _ in book.link.latest_starts()] == [numbers[1]]
    assert [(life.ready_s, life.transfer) for _, life in book.entries["w"].lives] == [(3, None), (20, 2)]
    assert awaited(book, "n0") == ()
    assert copy_arrived(book, "n0", "a", 4) == copy_arrived(book, "n0", "b", 4) == ()
    check_invariants(book, 4)
    answer = assess(book, wanted("next", 3, 5, A), 3)
    assert isinstance(answer, ReservationPlan)
    assert answer.transfers == ()


def test_a_relay_that_is_still_needed_elsewhere_stays_when_a_copy_turns_up() -> None:
    book = Site(nodes=nodes(2, cpus=1), shipping=Shipping.RELAY).book()
    (transfer,) = accept(book, wanted("w", 20, 10, A, 2), 0).transfers

    assert copy_arrived(book, "n1", "a", 3) == ()
    assert [node for node, _ in book.lives_of(transfer.number)] == [0]
    assert copy_arrived(book, "n0", "a", 3) == (transfer.number,)


def test_a_copy_that_turns_up_while_its_room_is_promised_to_others_is_not_counted_on() -> None:
    book = Site(nodes=nodes(1, pool_bytes=15), reserve_s=0).book()
    accept(book, wanted("first", 10, 5, A), 0)
    accept(book, wanted("second", 30, 5, B), 0)
    before = snapshot(book)

    assert copy_arrived(book, "n0", "b", 3) == ()
    assert snapshot(book) == before


def test_a_copy_that_turns_up_does_not_linger_beside_its_promise() -> None:
    book = Site(nodes=nodes(1), keep_bytes=100, is_extending=False).book()
    book.pools.keep(0, lingering("a"))
    accept(book, wanted("w", 20, 10, A), 0)

    copy_arrived(book, "n0", "a", 3)

    assert book.pools.pools[0].lingering == {}
    assert book.pools.mask_with("a") == 1
    check_invariants(book, 3)


def test_a_copy_that_turns_up_while_its_unwanted_transfer_runs_takes_no_promised_room() -> None:
    book = Site(nodes=nodes(1, pool_bytes=10)).book()
    accept(book, wanted("w", 20, 10, A), 0)
    begin_next(book, 0)
    book.cancel("w", 1)

    assert copy_arrived(book, "n0", "a", 1) == ()

    assert isinstance(assess(book, wanted("next", 6, 5, B), 1), ReservationPlan)
    end_running(book, 2)
    book.pools.settle(3)
    assert book.pools.mask_with("a") == 0


def test_copies_turn_up_at_random_and_all_promises_hold() -> None:
    changed = 0
    for seed in range(examples(600)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=chance.random() < 0.6)
        for node in book.timeline.nodes:
            for key in awaited(book, node.name):
                if chance.random() < 0.6:
                    before = {each.number for each, _ in book.link.latest_starts()}
                    dropped = copy_arrived(book, node.name, key, now_s)
                    left = {each.number for each, _ in book.link.latest_starts()}
                    assert before - left == set(dropped), f"seed {seed}"
                    changed += bool(dropped)
                    check_invariants(book, now_s)
        pass_time(book, now_s, 200)
        book.pools.settle(200)
        assert not book._carried
    assert changed > examples(150)


def test_what_a_node_reports_lingers_but_for_what_is_promised_there() -> None:
    book = Site(nodes=nodes(2, pool_bytes=100), keep_bytes=100).book()
    accept(book, wanted("w", 10, 5, A), 0)
    pass_time(book, 0, 5)
    book.pools.keep(0, lingering("gone"))

    assert note_pool(book, "n0", [lingering("a"), lingering("b", uses=7), lingering("c", 18)], 6) == ()

    pool = book.pools.pools[0]
    assert sorted(pool.lingering) == ["b", "c"]
    assert (pool.uses["b"], book.pools.mask_with("gone")) == (7, 0)
    check_invariants(book, 6)
    answer = assess(book, wanted("next", 6, 5, B), 6)
    assert isinstance(answer, ReservationPlan)
    assert answer.revived == (0,)


def test_what_should_be_ready_and_is_not_reported_is_named() -> None:
    book = Site(nodes=nodes(1), keep_bytes=100).book()
    for name, image in (("x", A), ("y", B), ("z", C)):
        accept(book, wanted(name, 20, 5, image, cpus=0), 0)
    begin_next(book, 0)
    end_running(book, 2)
    begin_next(book, 2)

    # The second is under way, the third has not begun.
    assert note_pool(book, "n0", [], 3) == ("a",)
    assert note_pool(book, "n0", [lingering("a")], 3) == ()
    lost = lose_copy(book, "n0", "a", 3)
    assert lost.users == ("x",)
    assert isinstance(restage(book, "x", 3), Restaged)
    assert note_pool(book, "n0", [], 3) == ()


def test_where_nothing_may_linger_nothing_is_noted() -> None:
    book = Site(nodes=nodes(1)).book()

    assert note_pool(book, "n0", [lingering("a")], 3) == ()
    assert book.pools.pools[0].lingering == {}
    assert book.pools.mask_with("a") == 0


def test_a_report_makes_what_lingers_equal_to_it_and_changes_no_promise() -> None:
    for seed in range(examples(300)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=True)
        twin = deepcopy(book)
        for node, pool in zip(book.timeline.nodes, book.pools.pools, strict=True):
            here = {key for key, lives in pool.lives.items() if any(each.transfer is None for each in lives)}
            more = {key for key in ("a", "b", "c", "d") if chance.random() < 0.4}
            missing = note_pool(book, node.name, [lingering(key) for key in sorted(here | more)], now_s)

            assert missing == ()
            expected = more - pool.lives.keys() if pool.keep_bytes else set()
            assert pool.lingering.keys() == expected, f"seed {seed}"
        check_invariants(book, now_s)
        assert keep(book, now_s).reservations == keep(twin, now_s).reservations
        assert keep(book, now_s).transfers == keep(twin, now_s).transfers
