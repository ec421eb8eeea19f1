"""A promise under new terms: accepted whole, or the book as it was to the last step."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from outrider.core.model import Workspace
from outrider.core.nodes import timeline as module
from outrider.core.reservations.admission import Rejected, admit, assess
from outrider.core.reservations.book import Book, ReservationPlan, Shipping
from outrider.core.reservations.refusal import Cause
from outrider.core.reservations.renegotiation import change_end, renegotiate
from outrider.core.restart.snapshot import keep
from tests.amount import examples
from tests.unit.core.books import (
    A,
    B,
    accept,
    begin_next,
    nodes,
    pass_time,
    random_book,
    random_workspace,
    snapshot,
    wanted,
)
from tests.unit.core.naive_checks import check_invariants, lacks
from tests.unit.core.sites import Site


def other_terms(chance: Random, book: Book, name: str, now_s: int) -> Workspace:
    """The same workspace with something changed, or another one altogether."""
    old = book.entries[name].reservation
    if chance.random() < 0.4:
        return random_workspace(chance, name, now_s)
    start_s = max(now_s, old.start_s + chance.choice([-6, -2, 0, 0, 2, 9]))
    return replace(
        old.workspace,
        start_s=start_s,
        finish_by_s=None,
        duration_s=max(1, old.workspace.duration_s + chance.choice([-2, 0, 0, 3])),
        instances=max(1, old.workspace.instances + chance.choice([-1, 0, 0, 1])),
    )


def random_change(seed: int) -> tuple[Book, int, Workspace, frozenset[str] | None, Random] | None:
    chance = Random(seed)
    book, now_s = random_book(chance, has_limits=chance.random() < 0.6)
    live = [name for name, entry in book.entries.items() if entry.end_s > now_s]
    if not live:
        return None
    workspace = other_terms(chance, book, chance.choice(live), now_s)
    among = frozenset(node.name for node in book.timeline.nodes if chance.random() < 0.7)
    return book, now_s, workspace, among if chance.random() < 0.3 else None, chance


def without_it(book: Book, name: str, now_s: int, among: frozenset[str] | None) -> Book:
    """The book if there were no such reservation, and only some nodes to choose from."""
    other = deepcopy(book)
    other.cancel(name, now_s)
    if among is not None:
        for node, number in other.timeline.number_of.items():
            if node not in among:
                other.available &= ~(1 << number)
    return other


def answers(book: Book, now_s: int, seed: int) -> list[object]:
    """What a book says to some later requests."""
    chance = Random(seed)
    found: list[object] = []
    for number in range(4):
        answer = admit(book, random_workspace(chance, f"later{number}", now_s), now_s)
        name = f"later{number}"
        found.append(answer if isinstance(answer, Rejected) else book.entries[name].reservation)
        until_s = now_s + chance.choice([0, 2])
        pass_time(book, now_s, until_s)
        now_s = until_s
        book.pools.settle(now_s)
    return [*found, keep(book, now_s)]


@pytest.mark.parametrize("block", range(4))
def test_a_question_or_a_refusal_leaves_the_book_as_it_was(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUCKET_S", 4 if block % 2 else 3600)
    counts: Counter[str] = Counter()
    for seed in range(block * 250, block * 250 + examples(250)):
        made = random_change(seed)
        if made is None:
            continue
        book, now_s, workspace, among, _ = made
        before, kept, twin = snapshot(book), keep(book, now_s), deepcopy(book)
        planned = renegotiate(book, workspace, now_s, among=among, is_plan=True)

        assert snapshot(book) == before, f"seed {seed}"
        assert keep(book, now_s) == kept, f"seed {seed}"
        assert planned.dropped == ()
        counts[type(planned.admission).__name__] += 1
        if isinstance(planned.admission, Rejected):
            assert renegotiate(book, workspace, now_s, among=among).admission == planned.admission
            assert snapshot(book) == before, f"seed {seed}"
        assert answers(book, now_s, seed) == answers(twin, now_s, seed), f"seed {seed}"
    assert min(counts["ReservationPlan"], counts["Rejected"]) > examples(20), counts


@pytest.mark.parametrize("block", range(4))
def test_new_terms_are_accepted_whenever_they_would_be_if_the_old_were_not_there(block: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(1000 + block * 250, 1000 + block * 250 + examples(250)):
        made = random_change(seed)
        if made is None:
            continue
        book, now_s, workspace, among, _ = made
        order = list(book.entries)
        waiting = {transfer.number for transfer, _ in book.link.latest_starts()}
        anew = assess(without_it(book, workspace.name, now_s, among), workspace, now_s)
        planned = renegotiate(book, workspace, now_s, among=among, is_plan=True).admission
        done = renegotiate(book, workspace, now_s, among=among)

        assert list(book.entries) == order
        if isinstance(done.admission, Rejected):
            assert done.admission == anew, f"seed {seed}"
            counts["rejected"] += 1
            continue
        reservation, plan = book.entries[workspace.name].reservation, done.admission
        assert isinstance(planned, ReservationPlan)
        assert planned == plan
        assert (reservation.start_s, reservation.end_s) == (plan.start_s, plan.end_s)
        assert among is None or among.issuperset(reservation.nodes)
        counts["accepted" if isinstance(anew, ReservationPlan) else "only beside its copies"] += 1
        if isinstance(anew, ReservationPlan):
            assert reservation.start_s == anew.start_s, f"seed {seed}"
            assert len(plan.transfers) <= len(anew.transfers), f"seed {seed}"
        left = {transfer.number for transfer, _ in book.link.latest_starts()}
        assert waiting - left == set(done.dropped), f"seed {seed}"
        counts["dropped"] += bool(done.dropped)
        counts["kept"] += any(life.transfer in waiting for _, life in book.entries[workspace.name].lives)
        assert lacks(book, workspace.name) == []
        try:
            check_invariants(book, now_s)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        pass_time(book, now_s, 150)
        assert book.link.under_way() == ()
    assert all(counts[each] >= examples(5) for each in ("accepted", "rejected", "dropped", "kept")), counts


def test_a_later_start_keeps_the_transfer_that_waits_and_its_node() -> None:
    book = Site(nodes=nodes(3)).book()
    accept(book, wanted("on the first node", 20, 30, B, cpus=2), 0)
    (transfer,) = accept(book, wanted("moves", 20, 10, A), 0).transfers
    book.cancel("on the first node", 0)

    done = renegotiate(book, wanted("moves", 40, 10, A), 1)

    assert isinstance(done.admission, ReservationPlan)
    assert (done.admission.transfers, done.dropped) == ((), ())
    assert [each.number for each, _ in book.link.latest_starts()] == [transfer.number]
    assert book.entries["moves"].reservation.nodes == ("n1",)
    ((_, life),) = book.entries["moves"].lives
    assert (life.users, life.expires_s) == ({"moves": 50}, 50)


def test_an_earlier_start_replaces_the_transfer_whose_deadline_is_too_late() -> None:
    book = Site(nodes=nodes(1)).book()
    (old,) = accept(book, wanted("moves", 20, 10, A), 0).transfers

    done = renegotiate(book, wanted("moves", 5, 10, A), 0)

    assert isinstance(done.admission, ReservationPlan)
    (new,) = done.admission.transfers
    assert (done.dropped, new.deadline_s) == ((old.number,), 5)
    assert [each.number for each, _ in book.link.latest_starts()] == [new.number]
    assert len(book.pools.pools[0].lives["a"]) == 1


@pytest.mark.parametrize("start_s", [2, 3])
def test_an_earlier_start_keeps_the_transfer_that_runs_and_ends_by_then(start_s: int) -> None:
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("moves", 20, 10, A), 0)
    number = begin_next(book, 0)

    done = renegotiate(book, wanted("moves", start_s, 10, A), 1)

    assert isinstance(done.admission, ReservationPlan)
    assert (len(done.admission.transfers), done.dropped) == (0, ())
    ((_, life),) = book.entries["moves"].lives
    assert (life.transfer, life.ready_s, life.expires_s) == (number, 2, start_s + 10)
    check_invariants(book, 1)


def test_a_transfer_that_runs_and_is_overdue_is_not_counted_on() -> None:
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("moves", 20, 10, A), 0)
    begin_next(book, 0)

    done = renegotiate(book, wanted("moves", 8, 10, A), 4)

    assert isinstance(done.admission, ReservationPlan)
    assert len(done.admission.transfers) == 1


def test_fewer_nodes_drop_only_the_transfers_to_those_that_are_left() -> None:
    book = Site(nodes=nodes(3, cpus=1)).book()
    numbers = [each.number for each in accept(book, wanted("w", 20, 10, A, 3), 0).transfers]

    done = renegotiate(book, wanted("w", 20, 10, A, 2), 0)

    assert done.dropped == (numbers[2],)
    assert [each.number for each, _ in book.link.latest_starts()] == numbers[:2]


def test_more_nodes_need_transfers_only_to_those_that_are_new() -> None:
    book = Site(nodes=nodes(3, cpus=1)).book()
    accept(book, wanted("w", 20, 10, A, 2), 0)
    begin_next(book, 0)

    done = renegotiate(book, wanted("w", 20, 10, A, 3), 1)

    assert isinstance(done.admission, ReservationPlan)
    assert [each.nodes for each in done.admission.transfers] == [("n2",)]
    assert done.dropped == ()
    assert lacks(book, "w") == []


def test_a_relay_that_some_of_the_new_nodes_still_need_stays() -> None:
    book = Site(nodes=nodes(3, cpus=1), shipping=Shipping.RELAY).book()
    (transfer,) = accept(book, wanted("w", 20, 10, A, 3), 0).transfers

    done = renegotiate(book, wanted("w", 22, 10, A, 2), 0)

    assert done.dropped == ()
    assert [node for node, _ in book.lives_of(transfer.number)] == [0, 1]


def test_a_reservation_without_an_image_stays_on_its_nodes() -> None:
    book = Site(nodes=nodes(2, cpus=1)).book()
    accept(book, wanted("first", 10, 10), 0)
    accept(book, wanted("second", 10, 10), 0)
    book.cancel("first", 0)

    renegotiate(book, wanted("second", 12, 10), 0)

    assert book.entries["second"].reservation.nodes == ("n1",)


def test_a_policy_that_refuses_the_new_terms_leaves_the_old_ones() -> None:
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("w", 20, 10, A), 0)
    before = snapshot(book)

    done = renegotiate(book, wanted("w", 30, 10, A), 0, policy=lambda *_: "not on a Sunday")

    assert isinstance(done.admission, Rejected)
    assert done.admission.refusal.sentence() == "not on a Sunday"
    assert snapshot(book) == before


def test_a_policy_that_fails_leaves_the_old_terms() -> None:
    book = Site(nodes=nodes(2)).book()
    accept(book, wanted("w", 20, 10, A), 0)
    before = snapshot(book)

    def broken(workspace: Workspace, now_s: int) -> str:
        raise RuntimeError("no such table")

    with pytest.raises(RuntimeError, match="no such table"):
        renegotiate(book, wanted("w", 30, 10, A), 0, policy=broken, among=frozenset({"n1"}))
    assert snapshot(book) == before


def naive_room(book: Book, name: str, from_s: int, until_s: int) -> bool:
    """Whether each node has its instances free throughout and its pool has room for the copy."""
    entry = book.entries[name]
    layout = book.timeline.layout
    for chosen in entry.fits:
        for at_s in range(from_s, until_s):
            free = book.timeline.rows[chosen.node].free_at(at_s)
            if not layout.fits(entry.need * chosen.instances, free):
                return False
    for node, life in entry.lives:
        pool = book.pools.pools[node]
        for at_s in range(max(from_s, life.expires_s), until_s):
            held = sum(
                other.image.size_bytes
                for lives in pool.lives.values()
                for other in lives
                if other.start_s <= at_s < other.expires_s
            )
            if pool.limit_bytes is not None and held + life.image.size_bytes > pool.limit_bytes:
                return False
    return True


def test_an_end_is_changed_exactly_if_nodes_and_pools_have_room() -> None:
    counts: Counter[tuple[str, Cause | None]] = Counter()
    for seed in range(examples(1500)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=chance.random() < 0.7)
        active = [
            name
            for name, entry in book.entries.items()
            if entry.reservation.start_s <= now_s + 3 and entry.end_s > now_s + 3
        ]
        if not active:
            continue
        pass_time(book, now_s, now_s + 3)
        now_s += 3
        book.pools.settle(now_s)
        name = chance.choice(active)
        old_s = book.entries[name].end_s
        end_s = max(now_s + 1, old_s + chance.choice([-3, -1, 1, 4, 9]))
        before, has_room = snapshot(book), naive_room(book, name, old_s, end_s)
        refusal = change_end(book, name, end_s, now_s)

        counts["longer" if end_s > old_s else "shorter", refusal.cause if refusal else None] += 1
        if refusal is None:
            assert end_s <= old_s or has_room, f"seed {seed}"
            entry = book.entries[name]
            assert (entry.end_s, entry.reservation.end_s) == (end_s, end_s)
            check_invariants(book, now_s)
        else:
            assert not has_room, f"seed {seed}"
            assert snapshot(book) == before
    assert counts["longer", None] > 10, counts
    assert counts["shorter", None] > 10, counts
    assert counts["longer", Cause.SLOTS] > 5, counts
    assert counts["shorter", Cause.SLOTS] == 0


def test_an_end_is_not_moved_to_where_the_pool_has_promised_its_room() -> None:
    """The next image's transfer takes 2 s and begins as late as it can: at 28."""
    book = Site(nodes=nodes(1, pool_bytes=15), reserve_s=0).book()
    accept(book, wanted("now", 5, 10, A), 0)
    accept(book, wanted("next", 30, 10, B), 0)
    pass_time(book, 0, 6)
    before = snapshot(book)

    refusal = change_end(book, "now", 29, 6)

    assert refusal is not None
    assert (refusal.cause, refusal.nodes) == (Cause.POOL, ("n0",))
    assert snapshot(book) == before
    assert change_end(book, "now", 28, 6) is None
    check_invariants(book, 6)


def test_an_end_cannot_be_moved_into_the_past() -> None:
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("w", 5, 10), 0)

    with pytest.raises(ValueError, match="cancel it"):
        change_end(book, "w", 7, 7)
    assert book.entries["w"].end_s == 15
