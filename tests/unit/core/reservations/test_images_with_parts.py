"""Images that share parts: what a node lacks is planned, and what is there is held until then."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.images.pools import Lingering
from outrider.core.model import Image, ImagePart
from outrider.core.reservations.admission import Rejected, assess
from outrider.core.reservations.book import Book, ReservationPlan, Shipping
from outrider.core.reservations.missing_copies import Restaged, lose_copy, note_pool, restage
from outrider.core.reservations.refusal import Cause
from outrider.core.restart.snapshot import keep
from tests.amount import examples
from tests.unit.core.books import accept, begin_next, nodes, pass_time, wanted
from tests.unit.core.restart.test_restoring import again
from tests.unit.core.sites import RATE_BYTES_PER_S, Site

BASE, LEFT, RIGHT = (
    ImagePart(key="base", size_bytes=90),
    ImagePart(key="left", size_bytes=10),
    ImagePart(key="right", size_bytes=10),
)


def layered(name: str, *parts: ImagePart) -> Image:
    return Image(uri=name, size_bytes=sum(part.size_bytes for part in parts), parts=parts)


A, B = layered("A", BASE, LEFT), layered("B", BASE, RIGHT)


def site(count: int = 1, *, pool_bytes: int | None = None, shipping: Shipping = Shipping.RELAY) -> Site:
    return Site(nodes=nodes(count, pool_bytes=pool_bytes), shipping=shipping, keep_bytes=10_000)


def there(book: Book, name: str, node: int) -> set[str]:
    """The parts that a reservation holds on a node, whoever brought them."""
    lives = [life for each, life in book.entries[name].lives if each == node]
    return {key for life in lives for key in ([part.key for part in life.image.parts] or [life.image.key])}


def check_holdings(book: Book) -> None:
    """Every reservation holds all parts of its image on each of its nodes until its end, and no pool is
    promised more than it has at any instant: worked out life by life."""
    for name, entry in book.entries.items():
        image = entry.reservation.workspace.image
        assert image is not None
        for chosen in entry.fits:
            assert {part.key for part in image.parts} <= there(book, name, chosen.node), name
        for _, life in entry.lives:
            assert life.expires_s >= entry.end_s
    for pool in book.pools.pools:
        lives = [life for each in pool.lives.values() for life in each]
        for at_s in {life.start_s for life in lives}:
            held = sum(life.image.size_bytes for life in lives if life.start_s <= at_s < life.expires_s)
            assert pool.limit_bytes is None or held <= pool.limit_bytes


def test_second_image_takes_the_link_for_what_it_does_not_share() -> None:
    book = site().book()
    first = accept(book, wanted("first", 40, 100, A), 0)
    pass_time(book, 0, 40)

    second = accept(book, wanted("second", 45, 50, B), 41)

    assert first.transfers[0].duration_s == 100 // RATE_BYTES_PER_S
    assert [each.duration_s for each in second.transfers] == [10 // RATE_BYTES_PER_S]
    assert second.transfers[0].image.parts == (RIGHT,)
    assert second.saved_bytes == 90
    check_holdings(book)


def test_reservation_that_shares_nothing_is_refused_where_one_that_does_is_not() -> None:
    book = site().book()
    accept(book, wanted("first", 40, 100, A), 0)
    pass_time(book, 0, 40)
    other = layered("C", ImagePart(key="other", size_bytes=90), RIGHT)

    refused = assess(book, wanted("other", 45, 50, other), 41)

    assert isinstance(refused, Rejected)
    assert refused.refusal.cause is Cause.LINK
    assert isinstance(assess(book, wanted("second", 45, 50, B), 41), ReservationPlan)


def test_relay_brings_what_any_of_its_nodes_lacks_and_each_pool_counts_its_own() -> None:
    book = site(2, pool_bytes=200).book()
    accept(book, wanted("first", 40, 100, A), 0)
    pass_time(book, 0, 40)

    plan = accept(book, wanted("second", 80, 50, B, instances=3), 41)

    assert [each.image.size_bytes for each in plan.transfers] == [100]
    assert {book.timeline.nodes[node].name: own.size_bytes for node, own in plan.own} == {"n0": 10, "n1": 100}
    assert [pool.promised_bytes for pool in book.pools.pools] == [110, 100]
    check_holdings(book)


def test_parts_stay_when_the_reservation_that_brought_them_is_cancelled() -> None:
    book = site(pool_bytes=120).book()
    accept(book, wanted("first", 40, 100, A), 0)
    pass_time(book, 0, 40)
    accept(book, wanted("second", 200, 50, B), 41)

    book.cancel("first", 42)
    book.pools.settle(150)

    # What the second has to bring is 2 s of the link: there would be no room for 20 s of the whole.
    assert there(book, "second", 0) >= {"base", "right"}
    beside = assess(book, wanted("third", 100, 10, layered("D", ImagePart(key="d", size_bytes=30))), 43)
    assert isinstance(beside, Rejected)
    assert beside.refusal.cause is Cause.POOL
    check_holdings(book)


def test_parts_that_a_node_says_it_has_are_not_brought_again() -> None:
    book = site().book()
    found = [
        Lingering(key=part.key, size_bytes=part.size_bytes, added_s=0, uses=1, last_use_s=0, next_use_s=None)
        for part in (BASE, LEFT)
    ]
    note_pool(book, "n0", found, 1)

    plan = accept(book, wanted("first", 10, 50, B), 1)

    assert [each.duration_s for each in plan.transfers] == [10 // RATE_BYTES_PER_S]
    assert not {"base"} & book.pools.pools[0].lingering.keys()
    check_holdings(book)


def test_lost_base_is_brought_again_with_what_was_to_be_brought_beside_it() -> None:
    """To each in whole: the other one may be cancelled before it has come."""
    book = site().book()
    accept(book, wanted("first", 40, 400, A), 0)
    pass_time(book, 0, 40)
    accept(book, wanted("second", 200, 50, B), 41)

    lost = lose_copy(book, "n0", A.key, 42)
    answers = {name: restage(book, name, 42) for name in lost.users}

    assert set(lost.users) == {"first", "second"}
    assert all(isinstance(each, Restaged) for each in answers.values())
    check_holdings(book)
    brought = [transfer for transfer, _ in book.link.latest_starts()]
    assert sum(transfer.image.size_bytes for transfer in brought) == 200


def test_lost_base_is_lost_once_to_all_that_build_on_it_together() -> None:
    book = site().book()
    accept(book, wanted("first", 40, 50, A), 0)
    pass_time(book, 0, 40)
    names = ("second", "third", "fourth")
    for number, name in enumerate(names):
        accept(book, wanted(name, 200 + 60 * number, 50, B), 41)
    (own,) = {life.transfer for name in names for _, life in book.entries[name].lives} - {None}
    lost = lose_copy(book, "n0", A.key, 42)

    assert (lost.users, lost.dropped) == (("first", *names), (own,))
    assert [book.entries[name].lives for name in names] == [[], [], []]
    for name in lost.users:
        assert isinstance(restage(book, name, 42), Restaged)
    check_holdings(book)


def test_copies_and_what_they_build_on_are_the_same_after_a_restart() -> None:
    chosen = site(2, pool_bytes=400)
    book = chosen.book()
    accept(book, wanted("first", 40, 100, A), 0)
    pass_time(book, 0, 40)
    accept(book, wanted("second", 120, 50, B, instances=3), 41)

    restored = again(chosen, keep(book, 42), 42)

    assert not restored.lost
    for name in book.entries:
        for node in (0, 1):
            assert there(restored.book, name, node) == there(book, name, node)
    assert restored.book.link.latest_starts() == book.link.latest_starts()
    check_holdings(restored.book)


def test_parts_are_held_and_pools_keep_their_limits_in_random_histories() -> None:
    parts = [ImagePart(key=f"p{number}", size_bytes=5 + 3 * number) for number in range(8)]
    for seed in range(examples(90)):
        chance = Random(seed)
        shipping = chance.choice(list(Shipping))
        book = site(3, pool_bytes=chance.choice([None, 90, 140]), shipping=shipping).book()
        images = [layered(f"i{number}", *chance.sample(parts, chance.randint(1, 6))) for number in range(4)]
        names: list[str] = []
        now_s = 0
        for step in range(25):
            before_s, now_s = now_s, now_s + chance.randint(0, 12)
            pass_time(book, before_s, now_s)
            book.pools.settle(now_s)
            for name in [name for name in names if book.entries[name].end_s <= now_s]:
                book.cancel(name, now_s)
                names.remove(name)
            if names and chance.random() < 0.2:
                book.cancel(names.pop(chance.randrange(len(names))), now_s)
            name = f"r{step}"
            start_s = now_s + chance.randint(0, 60)
            request = wanted(
                name, start_s, chance.randint(1, 40), chance.choice(images), chance.randint(1, 4)
            )
            answer = assess(book, request, now_s)
            if isinstance(answer, ReservationPlan):
                accept(book, request, now_s)
                names.append(name)
            check_holdings(book)


@pytest.mark.parametrize("is_running", [False, True])
def test_what_a_transfer_is_to_bring_for_another_image_is_not_counted_on(is_running: bool) -> None:
    """It ends with the reservation that it is for, which then leaves the other the time of the link."""
    book = site().book()
    accept(book, wanted("first", 40, 100, A), 10)
    if is_running:
        begin_next(book, 20)

    plan = accept(book, wanted("second", 80, 50, B), 21)
    book.cancel("first", 22)

    assert [each.image.size_bytes for each in plan.transfers] == [100]
    assert there(book, "second", 0) == {"base", "right"}
    check_holdings(book)


def test_parts_are_counted_on_where_somebody_has_them_before_the_rest_comes() -> None:
    book = site(2, pool_bytes=200).book()
    accept(book, wanted("first", 40, 100, A), 0)
    pass_time(book, 0, 40)
    accept(book, wanted("second", 80, 50, B, instances=3), 41)
    entry = book.entries["second"]
    names = book.timeline.nodes

    counted_on = {names[node].name: entry.counted_on(life) for node, life in entry.copies()}

    assert counted_on == {"n0": ("base",), "n1": ()}
    assert {names[node].name for node in book.nodes_waiting("second")} == {"n0", "n1"}
    assert book.brought_later("second") == frozenset(
        node for node, each in enumerate(names) if each.name == "n1"
    )
