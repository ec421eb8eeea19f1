"""What becomes of promises: cancelled, joined, sharing images, limits and links."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.images.pools import Life
from outrider.core.model import Image, Node, Resources, Transfer, Workspace
from outrider.core.reservations.admission import Rejected, admit, assess
from outrider.core.reservations.book import ReservationPlan, Shipping
from outrider.core.reservations.refusal import Cause
from tests.amount import examples
from tests.unit.core.books import (
    A,
    B,
    C,
    accept,
    begin_next,
    end_running,
    nodes,
    pass_time,
    promises,
    random_book,
    random_workspace,
    wanted,
)
from tests.unit.core.sites import Site


def test_an_accepted_and_cancelled_reservation_leaves_no_trace() -> None:
    cancelled = 0
    for seed in range(examples(900)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=True)
        book.pools.settle(now_s + 1)
        before = promises(book, now_s)
        has_lingering = any(pool.lingering for pool in book.pools.pools)
        answer = admit(book, random_workspace(chance, "w", now_s), now_s, tells_earliest=False)
        if isinstance(answer, Rejected) or has_lingering or answer.advanced:
            # A transfer that was brought earlier for it stays as early as that.
            continue
        book.cancel("w", now_s)
        book.pools.settle(now_s + 1)
        cancelled += 1

        assert promises(book, now_s) == before, f"seed {seed}"

    assert cancelled > examples(200)


@pytest.mark.parametrize("reserve_s", [None, 0, 5])
def test_a_waiting_transfer_that_nobody_wants_is_withdrawn(reserve_s: int | None) -> None:
    """Its bytes could have been on the disk since it was accepted, but are not."""
    book = Site(nodes=nodes(2), reserve_s=reserve_s).book()
    accept(book, wanted("first", 4, 5, C), 0)
    accept(book, wanted("second", 8, 5, A, cpus=2), 0)
    begin_next(book, 0)

    book.cancel("second", 3)

    assert len(book.link) == 0
    assert book.pools.nodes_with(A.key) == []


def test_a_transfer_under_way_that_nobody_wants_keeps_its_space_until_it_ends() -> None:
    book = Site(nodes=nodes(1, pool_bytes=20)).book()
    accept(book, wanted("first", 9, 5, C), 0)
    begin_next(book, 0)
    book.cancel("first", 1)

    beside = assess(book, wanted("second", 12, 5, B), 1)
    again = assess(book, wanted("third", 9, 5, C), 1)

    assert isinstance(beside, Rejected)
    assert beside.refusal.cause is Cause.POOL
    assert isinstance(again, ReservationPlan)
    assert again.saved_bytes == C.size_bytes
    end_running(book, 4)
    assert isinstance(assess(book, wanted("second", 12, 5, B), 4), ReservationPlan)


def test_a_cancelled_reservation_keeps_the_image_that_another_joined() -> None:
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("first", 10, 5, A), 0)
    plan = accept(book, wanted("second", 20, 5, A), 0)
    book.cancel("first", 1)

    assert plan.transfers == ()
    assert [each.deadline_s for each, _ in book.link.latest_starts()] == [10]
    pass_time(book, 1, 5)
    life = book.pools.pools[0].life_at(A.key, 24)
    assert life is not None
    assert life.ready_s <= 20


def test_a_relay_goes_on_for_the_node_that_another_reservation_joined() -> None:
    book = Site(nodes=nodes(2, cpus=1), shipping=Shipping.RELAY, reserve_s=0).book()
    first = accept(book, wanted("first", 10, 5, A, instances=2), 0)
    second = accept(book, wanted("second", 20, 5, A), 0)

    book.cancel("first", 1)

    assert second.transfers == ()
    (kept,) = first.transfers
    assert [each.number for each, _ in book.link.latest_starts()] == [kept.number]
    assert [node for node, _ in book.lives_of(kept.number)] == [0]


def test_the_earliest_start_may_be_when_a_best_effort_transfer_ends() -> None:
    """The link for deadlines is taken until 20; the image comes to n0 by the other one at 7."""
    book = Site(nodes=nodes(2, cpus=1)).book()
    coming = Life(A, 0, 7, 30, {"run": 30}, transfer=99, is_firm=True)
    book.pools.add(0, coming)
    book.links.add(Transfer(number=99, image=A, nodes=("n0",), duration_s=7), 0)
    accept(book, wanted("long", 50, 5, Image(uri="large", size_bytes=100)), 0)
    begin_next(book, 0)

    answer = assess(book, wanted("w", 1, 3, A), 0)

    assert isinstance(answer, Rejected)
    assert answer.refusal.cause is Cause.LINK
    assert answer.earliest_start_s == 7


def test_an_image_kept_longer_and_one_brought_earlier_share_one_limit() -> None:
    """On n0 image a may stay beside c until 30 and beside b from then on, but not beside both.

    A reservation at 33 keeps a on n0 and brings it to n1 as well; that transfer, at 31, pushes
    the one of b ahead to 29.
    """
    both = (
        Node(name="n0", capacity=Resources.of(cpus=4, gpus=1), pool_bytes=20),
        Node(name="n1", capacity=Resources.of(cpus=3), pool_bytes=20),
    )
    book = Site(nodes=both, reserve_s=0).book()

    def on_first(name: str, start_s: int, end_s: int, uri: str) -> None:
        image, needs = Image(uri=uri, size_bytes=10), Resources.of(cpus=1, gpus=1)
        workspace = Workspace(
            name=name, instances=1, resources=needs, duration_s=end_s - start_s, image=image, start_s=start_s
        )
        accept(book, workspace, 0)

    on_first("holds a", 3, 10, "a")
    on_first("needs c", 12, 30, "c")
    on_first("needs b", 32, 50, "b")
    pass_time(book, 0, 9)

    answer = admit(book, wanted("keeps a", 33, 5, A, instances=2, cpus=3), 9, tells_earliest=False)

    assert book.pools.pools[0].peak([], 9) <= 20
    assert isinstance(answer, Rejected)
    assert answer.refusal.cause is Cause.POOL


def test_a_copy_that_cannot_be_kept_sends_a_reservation_to_another_node() -> None:
    """On n0 there is a until 10, but c, on its way from 12 on, leaves it no room; n1 is empty."""
    book = Site(nodes=nodes(2, cpus=1, pool_bytes=20), reserve_s=0).book()
    accept(book, wanted("holds", 2, 8, A), 0)
    accept(book, wanted("elsewhere", 2, 58), 0)
    accept(book, wanted("needs c", 16, 8, C), 0)
    book.cancel("elsewhere", 1)
    pass_time(book, 1, 2)

    plan = accept(book, wanted("again", 30, 5, A), 2)

    assert [fit.node for fit in plan.fits] == [1]
    assert [each.nodes for each in plan.transfers] == [("n1",)]


def test_the_same_image_on_another_node_is_not_taken_for_a_copy() -> None:
    book = Site(nodes=nodes(2, cpus=1)).book()
    first = accept(book, wanted("first", 10, 10, A), 0)
    pass_time(book, 0, 5)

    second = accept(book, wanted("second", 10, 10, A), 5)

    assert first.fits[0].node != second.fits[0].node
    assert [each.nodes for each in second.transfers] == [("n1",)]


@pytest.mark.parametrize(("is_faulty", "transfers"), [(False, 1), (True, 0)])
def test_only_the_thesis_fault_takes_another_image_for_this_one(is_faulty: bool, transfers: int) -> None:
    book = Site(nodes=nodes(1), joins_any_image=is_faulty).book()
    accept(book, wanted("first", 10, 10, A), 0)

    plan = accept(book, wanted("second", 20, 10, B), 0)

    assert len(plan.transfers) == transfers


def test_images_with_one_digest_are_one_image_and_with_two_are_two() -> None:
    old, same, new = (
        Image(uri="x", size_bytes=10, digest="1"),
        Image(uri="y", size_bytes=10, digest="1"),
        Image(uri="x", size_bytes=10, digest="2"),
    )
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("old", 10, 10, old), 0)
    pass_time(book, 0, 10)

    assert accept(book, wanted("same", 10, 10, same), 10).transfers == ()
    assert len(accept(book, wanted("new", 20, 10, new), 10).transfers) == 1


def test_an_immediate_reservation_is_accepted_only_where_its_image_is() -> None:
    book = Site(nodes=nodes(2, cpus=1)).book()
    assert isinstance(assess(book, wanted("bare", 0, 5), 0), ReservationPlan)
    refused = assess(book, wanted("cold", 0, 5, A), 0)
    accept(book, wanted("first", 2, 5, A), 0)
    pass_time(book, 0, 7)
    book.cancel("first", 7)

    warm = assess(book, wanted("warm", 7, 5, A), 7)

    assert isinstance(refused, Rejected)
    assert refused.refusal.cause is Cause.LINK
    assert refused.earliest_start_s == 2
    assert isinstance(warm, ReservationPlan)
    assert [fit.node for fit in warm.fits] == [0]


def test_a_start_in_the_past_an_unknown_resource_and_a_name_in_use_are_refused_in_words() -> None:
    book = Site(nodes=nodes(1)).book()
    accept(book, wanted("taken", 10, 5), 5)
    gpu = Workspace(name="g", instances=1, resources=Resources.of(gpus=1), duration_s=1, start_s=9)

    words = []
    for workspace in (wanted("late", 4, 5), gpu, wanted("taken", 30, 5), wanted("huge", 9, 5, instances=9)):
        answer = assess(book, workspace, 5)
        assert isinstance(answer, Rejected)
        assert answer.earliest_start_s is None
        words.append(answer.refusal.sentence())

    assert "1 s in the past" in words[0]
    assert "no node has the resource gpus" in words[1]
    assert "taken exists already" in words[2]
    assert "there is room for 2" in words[3]


def test_a_relay_costs_its_link_once_for_all_nodes() -> None:
    answers = {}
    for shipping in Shipping:
        book = Site(nodes=nodes(3, cpus=1), shipping=shipping).book()
        answer = assess(book, wanted("wide", 2, 5, A, instances=3), 0)
        answers[shipping] = answer.earliest_start_s if isinstance(answer, Rejected) else 2

    assert answers == {Shipping.RELAY: 2, Shipping.PER_NODE: 6}


def test_bounded_push_back_accepts_a_reservation_that_pure_jit_refuses() -> None:
    """With 20 s to move two images of 2 s by 20: JIT waits until 18 with the first."""
    accepted = {}
    for reserve_s in (None, 0, 5):
        book = Site(nodes=nodes(2, cpus=1), reserve_s=reserve_s).book()
        accept(book, wanted("early", 20, 5, A), 0)
        pass_time(book, 0, 17)
        accepted[reserve_s] = isinstance(assess(book, wanted("late", 20, 5, B), 17), ReservationPlan)

    assert accepted == {None: True, 0: False, 5: True}


def test_a_policy_refuses_in_its_own_words() -> None:
    book = Site(nodes=nodes(1)).book()

    answer = admit(book, wanted("w", 10, 5), 0, policy=lambda workspace, now_s: "not on Sundays")

    assert isinstance(answer, Rejected)
    assert answer.refusal.cause is Cause.POLICY
    assert answer.refusal.sentence() == "not on Sundays"
    assert not book.entries
