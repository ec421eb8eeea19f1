"""Where a best-effort job is led: against a search through everything on small sites, and by hand."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.besteffort.jobs.placement import (
    JobPlacement,
    NoPlacement,
    PlacementRequest,
    hold,
    let_go,
    place_job,
)
from outrider.core.images.pools import Life, Lingering, Pools
from outrider.core.links.best_effort import BestEffortLink
from outrider.core.links.expected_turns import slots_of
from outrider.core.links.links import ExclusiveLinks
from outrider.core.model import Image, Node, Resources, Transfer
from outrider.core.nodes.forecast import BusyForecast, Taken
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.reservations.book import Book, Shipping, Terms
from tests.amount import examples

RATE = 10
IMAGE = Image(uri="http://site/a", size_bytes=100, digest="sha256:a")
OTHER = Image(uri="http://site/b", size_bytes=100, digest="sha256:b")
TOOK_S = 10
LIMIT_S = 50


def site(nodes: int, *, pool_bytes: int | None = None, is_relay: bool = True) -> tuple[Book, BestEffortLink]:
    """Nodes of one processor each, and nothing on them."""
    made = [
        Node(name=f"n{number}", capacity=Resources.of(cpus=1), pool_bytes=pool_bytes)
        for number in range(nodes)
    ]
    pools = Pools(made, keep_bytes=1 << 40, rank=lambda entry, now_s: (entry.last_use_s,))
    terms = Terms(shipping=Shipping.RELAY if is_relay else Shipping.PER_NODE)
    book = Book(made, terms, links=ExclusiveLinks(rate_bytes_per_s=RATE), pools=pools)
    return book, BestEffortLink(rate_bytes_per_s=RATE, beside_rate_bytes_per_s=0, is_relay=is_relay)


def busy(book: Book, until_s: list[int] | None = None) -> BusyForecast:
    """Nodes that are taken from now until these instants."""
    taken = [
        Taken(nodes=(node,), start_s=0, end_s=end_s) for node, end_s in enumerate(until_s or []) if end_s
    ]
    return BusyForecast(book.timeline.layout, [row.capacity for row in book.timeline.rows], taken)


def wish(book: Book, *, nodes: int = 1, copies: int | None = None, spares: int = 0) -> PlacementRequest:
    return PlacementRequest(
        name="job-1",
        image=IMAGE,
        nodes_wanted=nodes,
        copies=nodes if copies is None else copies,
        spares=spares,
        need=book.timeline.layout.pack(Resources.of(cpus=1)),
        limit_s=LIMIT_S,
        grace_s=0,
        eligible=book.timeline.everyone,
    )


def put(book: Book, *nodes: int, image: Image = IMAGE) -> None:
    for node in nodes:
        entry = Lingering(
            key=image.key, size_bytes=image.size_bytes, added_s=0, uses=0, last_use_s=0, next_use_s=None
        )
        book.pools.keep(node, entry)


def way(
    book: Book, lane: BestEffortLink, taken: BusyForecast, wanted: PlacementRequest, now_s: int = 0
) -> JobPlacement:
    found = place_job(book, lane, slots_of(book.link, now_s), taken, wanted, now_s)
    assert isinstance(found, JobPlacement), found
    return found


@settings(max_examples=examples(150), deadline=None)
@given(
    until_s=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    has_image=st.integers(0, 31),
    nodes=st.integers(1, 5),
    ahead=st.integers(0, 3),
    is_relay=st.booleans(),
    examined=st.sampled_from([0, 1, 64]),
)
def test_start_is_the_earliest_that_any_choice_of_nodes_allows(
    until_s: list[int], has_image: int, nodes: int, ahead: int, is_relay: bool, examined: int
) -> None:
    """Also where more nodes are on the site than are examined."""
    book, lane = site(len(until_s), is_relay=is_relay)
    there = [node for node in range(len(until_s)) if has_image >> node & 1]
    put(book, *there)
    for _ in range(ahead):
        lane.add(OTHER, [0])
    # In a relay all that wait for one image are one transfer.
    waits_s = TOOK_S * (min(ahead, 1) if is_relay else ahead)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("outrider.core.besteffort.jobs.placement.MOST_EXAMINED", examined)
        found = place_job(book, lane, slots_of(book.link, 0), busy(book, until_s), wish(book, nodes=nodes), 0)

    starts = []
    for chosen in combinations(range(len(until_s)), nodes):
        missing = [node for node in chosen if node not in there]
        count = min(1, len(missing)) if is_relay else len(missing)
        arrival_s = waits_s + TOOK_S * count if missing else 0
        starts.append(max(max(until_s[node], arrival_s if node in missing else 0) for node in chosen))
    assert (min(starts) if starts else None) == (found.start_s if isinstance(found, JobPlacement) else None)


@settings(max_examples=examples(100), deadline=None)
@given(
    limits=st.lists(st.sampled_from([0, 100, 150, 200, 300]), min_size=1, max_size=4),
    jobs=st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.integers(0, 40)), max_size=8),
)
def test_no_pool_is_promised_more_than_it_has(limits: list[int], jobs: list[tuple[bool, int, int]]) -> None:
    book, lane = site(len(limits))
    for pool, limit in zip(book.pools.pools, limits, strict=True):
        pool.limit(limit)
    now_s = 0
    for number, (is_other, nodes, later_s) in enumerate(jobs):
        now_s += later_s
        book.pools.settle(now_s)
        wanted = wish(book, nodes=nodes, copies=nodes + 1, spares=2)
        image = OTHER if is_other else IMAGE
        wanted = PlacementRequest(
            name=f"job-{number}", image=image, nodes_wanted=nodes, copies=nodes + 1, spares=2,
            need=wanted.need, limit_s=LIMIT_S, grace_s=5, eligible=wanted.eligible,
        )  # fmt: skip
        found = place_job(book, lane, slots_of(book.link, now_s), busy(book), wanted, now_s)
        if isinstance(found, JobPlacement):
            hold(book, lane, wanted, found, now_s)

    for pool in book.pools.pools:
        assert pool.peak((), now_s) <= (pool.limit_bytes or 0)


def test_node_with_the_image_comes_before_one_that_needs_bytes() -> None:
    book, lane = site(3)
    put(book, 2)
    found = way(book, lane, busy(book), wish(book))

    assert (found.nodes, found.revived, found.missing, found.start_s) == ((2,), (2,), (), 0)


def test_busy_node_with_the_image_is_left_for_a_free_one_to_which_a_transfer_is_quicker() -> None:
    book, lane = site(2)
    put(book, 0)

    assert way(book, lane, busy(book, [TOOK_S + 1, 0]), wish(book)).missing == (1,)
    assert way(book, lane, busy(book, [TOOK_S, 0]), wish(book)).revived == (0,)


def test_transfer_that_somebody_elses_job_waits_for_is_joined() -> None:
    book, lane = site(2, is_relay=False)
    first = wish(book)
    hold(book, lane, first, way(book, lane, busy(book), first), 0)
    found = way(book, lane, busy(book, [0, 1000]), wish(book))

    assert found.missing == ()
    assert [node for node, _ in found.lives] == [0]
    assert found.ready_s == TOOK_S


def test_transfer_with_a_deadline_is_joined_only_while_it_runs() -> None:
    book, lane = site(1)
    life = Life(IMAGE, 0, 5, 100, users={"render-1": 100}, transfer=7)
    book.pools.add(0, life)
    running = place_job(book, lane, (), busy(book), wish(book), 0, carried=frozenset({7}))
    waiting = place_job(book, lane, (), busy(book), wish(book), 0)

    assert isinstance(running, JobPlacement)
    assert running.lives == ((0, life),)
    assert isinstance(waiting, JobPlacement)
    assert waiting.missing == (0,)


def test_relay_takes_more_nodes_on_board_at_no_cost() -> None:
    book, lane = site(3)
    first = wish(book)
    hold(book, lane, first, way(book, lane, busy(book), first), 0)
    second = way(book, lane, busy(book, [1000, 0, 0]), wish(book))
    hold(book, lane, wish(book), second, 0)

    assert [cargo.nodes for cargo in lane.all()] == [[0, 1]]
    assert second.ready_s == TOOK_S


def test_first_asked_for_is_first_brought() -> None:
    _, lane = site(2, is_relay=False)
    for node in (0, 1):
        lane.add(OTHER if node else IMAGE, [node])

    ends = lane.ends((), 0)
    assert ends == {-1: TOOK_S, -2: 2 * TOOK_S}
    first = lane.begin(0)
    assert first is not None
    assert first.number == -1


def test_deadlines_push_what_best_effort_expects_back() -> None:
    book, lane = site(2)
    deadline = Transfer(number=1, image=OTHER, nodes=("n1",), duration_s=30, deadline_s=30)
    insertion = book.link.plan([deadline], 0)
    assert insertion is not None
    book.link.apply(insertion)

    assert way(book, lane, busy(book), wish(book)).ready_s == 30 + TOOK_S


def test_share_of_the_link_is_expected_beside_deadlines() -> None:
    lane = BestEffortLink(rate_bytes_per_s=RATE, beside_rate_bytes_per_s=2, is_relay=True)
    lane.add(IMAGE, [0])

    assert lane.ends(((0, 30),), 0) == {-1: 30 + 4}


def test_pool_that_was_promised_to_others_is_gone_round() -> None:
    book, lane = site(2, pool_bytes=150)
    book.pools.add(0, Life(OTHER, 40, 40, 500, users={"render-1": 500}))

    assert way(book, lane, busy(book), wish(book)).missing == (1,)


def test_full_pools_everywhere_are_told() -> None:
    book, lane = site(2, pool_bytes=150)
    for node in range(2):
        book.pools.add(node, Life(OTHER, 40, 40, 500, users={"render-1": 500}))
    found = place_job(book, lane, (), busy(book), wish(book), 0)

    assert isinstance(found, NoPlacement)
    assert "have room in their pools" in found.message


def test_image_larger_than_every_pool_is_told() -> None:
    book, lane = site(2, pool_bytes=50)
    found = place_job(book, lane, (), busy(book), wish(book), 0)

    assert isinstance(found, NoPlacement)
    assert "never fits" in found.message
    assert "the largest pool has 50 bytes" in found.message


def test_copies_for_an_array_go_to_more_nodes() -> None:
    book, lane = site(5)
    found = way(book, lane, busy(book), wish(book, copies=3))

    assert len(found.missing) == 3
    assert found.ready_s == TOOK_S


def test_node_that_is_away_is_not_chosen() -> None:
    book, lane = site(2)
    put(book, 0)
    book.available &= ~1

    assert way(book, lane, busy(book), wish(book)).nodes == (1,)


def test_what_nobody_waits_for_any_more_is_out_of_the_lane() -> None:
    book, lane = site(1)
    wanted = wish(book)
    held = hold(book, lane, wanted, way(book, lane, busy(book), wanted), 0)

    assert let_go(book, lane, wanted.name, 0, held[0], 1)
    assert list(lane.all()) == []
    assert book.pools.pools[0].promised_bytes == 0


def test_reservation_that_comes_soon_keeps_a_node_from_long_jobs() -> None:
    book, _ = site(1)
    taken = busy(book)
    taken.take(Taken(nodes=(0,), start_s=30, end_s=60))

    assert taken.free_from(0, 1, 0, 30) == 0
    assert taken.free_from(0, 1, 0, 31) == 60
    assert taken.free_from(0, 1 << 50, 0, 1) == FOREVER


def test_job_is_led_although_the_first_nodes_are_taken_when_its_image_comes() -> None:
    """More nodes than are examined are free for now, and not for long enough after the transfer."""
    book, lane = site(80)
    soon = [Taken(nodes=(node,), start_s=LIMIT_S + 5, end_s=FOREVER) for node in range(79)]
    taken = BusyForecast(book.timeline.layout, [row.capacity for row in book.timeline.rows], soon)

    assert way(book, lane, taken, wish(book)).nodes == (79,)


def test_job_that_joins_the_last_layer_of_its_image_has_room_for_all_of_it() -> None:
    """A reservation brought that layer alone, and counts on the others only as long as it lasts."""
    book, lane = site(1, pool_bytes=150)
    rest = Life(Image(uri=IMAGE.uri, size_bytes=1, digest=IMAGE.digest), 0, 0, 10)
    book.pools.add(0, rest)
    wanted = wish(book)
    placement = way(book, lane, busy(book), wanted)
    held = hold(book, lane, wanted, placement, 0)
    pool = book.pools.pools[0]
    after_s = placement.until_s - 1
    has_room = (
        pool.has_room(((after_s, after_s + 1, 51),), after_s),
        pool.has_room(((after_s, after_s + 1, 50),), after_s),
    )
    let_go(book, lane, wanted.name, 0, held[0], 20)
    book.pools.settle(21)

    assert has_room == (False, True)
    assert not pool.lives


def test_job_does_not_join_the_last_layer_of_its_image_where_there_is_no_room_for_the_others() -> None:
    book, lane = site(1, pool_bytes=150)
    book.pools.add(0, Life(Image(uri=IMAGE.uri, size_bytes=1, digest=IMAGE.digest), 0, 0, 10))
    book.pools.add(0, Life(Image(uri="http://site/c", size_bytes=100), 0, 0, FOREVER))
    found = place_job(book, lane, slots_of(book.link, 0), busy(book), wish(book), 0)

    assert isinstance(found, NoPlacement)
