"""Best effort over a network: what goes beside what, by hand and over random sites."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.links.best_effort import MOST_OF_USER, TURN_S, BestEffortLink, BestEffortTransfer
from outrider.core.links.network import Network, NetworkLink
from outrider.core.model import Image, Transfer

RATE = 10
SIZE = 100


def link(name: str, rate: int = RATE, lanes: int = 1, beside: int = 0) -> NetworkLink:
    return NetworkLink(name=name, rate_bytes_per_s=rate, lanes=lanes, beside_bytes_per_s=beside)


def network(
    *, store: NetworkLink | None = None, mirror: NetworkLink | None = None, node_rate: int | None = None
) -> Network:
    """A store, perhaps with a mirror, a second source of other images, and two racks of two nodes."""
    racks = link("rack1"), link("rack2")
    return Network(
        site=link("site"),
        sources={"store": store or link("store"), "other": link("other")},
        groups={f"n{node}": racks[node // 2] for node in range(4)},
        mirrors={} if mirror is None else {"store": (mirror,)},
        source_of=lambda uri: uri.split("/")[2],
        address_at=lambda uri, source: uri.replace("//store/", f"//{source}/"),
        node_rate_bytes_per_s=node_rate,
    )


def lane_over(over: Network) -> BestEffortLink:
    return BestEffortLink(
        rate_bytes_per_s=RATE,
        beside_rate_bytes_per_s=0,
        is_relay=True,
        network=over,
        name_of=lambda node: f"n{node}",
    )


def asked(lane: BestEffortLink, uri: str, nodes: list[int], user: int = 1) -> BestEffortTransfer:
    cargo = lane.add(Image(uri=f"http://{uri}", size_bytes=SIZE, digest=uri), nodes)[0][1]
    lane.join(cargo, user)
    return cargo


def begun(lane: BestEffortLink) -> list[BestEffortTransfer]:
    found = []
    while (cargo := lane.begin(0)) is not None:
        found.append(cargo)
    return found


def test_what_shares_no_link_goes_at_the_same_time() -> None:
    lane = lane_over(network())
    first, second = asked(lane, "store/a", [0]), asked(lane, "other/b", [2])

    assert begun(lane) == [first, second]
    assert lane.ends((), 0) == {first.number: SIZE // RATE, second.number: SIZE // RATE}


@pytest.mark.parametrize(("uri", "node"), [("store/b", 2), ("other/b", 1)], ids=["one source", "one rack"])
def test_what_shares_a_link_waits(uri: str, node: int) -> None:
    lane = lane_over(network())
    first, second = asked(lane, "store/a", [0]), asked(lane, uri, [node])

    assert begun(lane) == [first]
    assert lane.ends((), 0)[second.number] == 2 * SIZE // RATE


def test_lanes_of_a_link_go_at_the_same_time_each_with_its_part() -> None:
    lane = lane_over(network(store=link("store", 2 * RATE, lanes=2)))
    first, second, third = (asked(lane, f"store/{node}", [node]) for node in (0, 2, 1))

    assert begun(lane) == [first, second]
    assert {lane.rate(each) for each in (first, second)} == {RATE}
    lane.arrive(first, 0)
    assert begun(lane) == [third]


def test_what_is_set_aside_beside_deadlines_is_shared_by_lanes() -> None:
    lane = lane_over(network(store=link("store", 10, lanes=2, beside=4)))
    asked(lane, "store/a", [0])

    (first,) = begun(lane)
    assert first.way is not None
    # 5 of a lane's, and half of what is for best effort alone.
    assert (first.way.rate_bytes_per_s, first.way.beside_bytes_per_s) == (7, 0)


def test_mirror_gives_a_second_way_and_a_transfer_keeps_its_own() -> None:
    over = network(mirror=link("mirror"))
    lane = lane_over(over)
    first, second = asked(lane, "store/a", [0], user=1), asked(lane, "store/b", [2], user=2)

    assert begun(lane) == [first, second]
    addresses = [lane.ways.address(each.image, each.way) for each in (first, second)]
    assert addresses == ["http://store/a", "http://mirror/b"]
    for each in (second, first):
        lane.give_way(each)
    lane.charge(first, 1)
    # The second one is first now, and does not change its server.
    assert begun(lane) == [second, first]
    assert lane.ways.address(second.image, second.way) == "http://mirror/b"


def test_way_without_deadlines_is_found_first_and_may_be_refused() -> None:
    lane = lane_over(network(mirror=link("mirror")))
    first = asked(lane, "store/a", [0])
    store = Transfer(
        number=1, image=first.image, nodes=("n3",), duration_s=9, deadline_s=99, lanes=("store/1", "rack2/1")
    )

    assert lane.begin(0, avoided=store.lanes, may_begin=lambda way: not way.meets(store)) is first
    assert first.way is not None
    assert first.way.lanes == {"mirror/1", "rack1/1"}
    second = asked(lane, "store/b", [3])
    assert lane.begin(0, avoided=store.lanes, may_begin=lambda way: not way.meets(store)) is None
    # What deadlines hold up keeps nobody else.
    third = asked(lane, "other/c", [1], user=2)
    lane.arrive(first, 0)
    assert lane.begin(0, avoided=store.lanes, may_begin=lambda way: not way.meets(store)) is third
    assert lane.waiting == [second]


def test_who_needs_two_links_is_not_passed_over_for_ever() -> None:
    lane = lane_over(network())
    one = asked(lane, "store/a", [0], user=1)
    assert begun(lane) == [one]
    # Both racks: the first one is taken.
    both = asked(lane, "other/wide", [1, 3], user=2)
    late = asked(lane, "site/c", [2], user=3)

    assert begun(lane) == []
    lane.arrive(one, 0)
    assert begun(lane) == [both]
    lane.arrive(both, 1)
    lane.arrive(both, 3)
    assert begun(lane) == [late]


def test_many_of_one_user_do_not_hide_what_another_waits_for() -> None:
    lane = lane_over(network())
    held_up = Transfer(
        number=1,
        image=Image(uri="http://store/x", size_bytes=SIZE, digest="x"),
        nodes=("n3",),
        duration_s=9,
        deadline_s=99,
        lanes=("store/1",),
    )
    for number in range(5 * MOST_OF_USER):
        asked(lane, f"store/{number}", [0], user=1)
    free = asked(lane, "other/b", [2], user=2)

    assert lane.begin(0, may_begin=lambda way: not way.meets(held_up)) is free


def test_links_of_a_transfer_are_those_of_the_nodes_that_it_has_now() -> None:
    lane = lane_over(network())
    first = asked(lane, "store/a", [0, 1])
    lane.ends((), 0)
    lane.leave(first, 1)
    asked(lane, "store/a", [2])
    other = asked(lane, "other/b", [3])

    # Both go to the second rack.
    assert lane.ends((), 0)[other.number] == 2 * SIZE // RATE


def test_transfer_to_the_same_node_waits_and_has_its_turn() -> None:
    lane = lane_over(network())
    nowhere = Network(
        site=link("site"), sources={"other": link("other")}, source_of=lambda uri: uri.split("/")[2]
    )
    lane = lane_over(nowhere)
    first, second = asked(lane, "site/a", [0], user=1), asked(lane, "other/b", [0], user=2)

    assert begun(lane) == [first]
    lane.charge(first, RATE * TURN_S)
    assert lane.is_turn_over(first)
    lane.give_way(first)
    assert begun(lane) == [second]


def test_relay_takes_on_nodes_behind_another_link_only_if_that_is_free() -> None:
    lane = lane_over(network())
    first, second = asked(lane, "store/a", [0]), asked(lane, "other/b", [2])
    assert begun(lane) == [first, second]

    apart = asked(lane, "store/a", [3])
    assert apart is not first
    lane.arrive(second, 2)
    assert asked(lane, "store/a", [1]) is first
    assert first.nodes == [0, 1]


@pytest.mark.parametrize("seed", range(60))
def test_no_lane_is_had_twice_and_everybody_comes_to_an_end(seed: int) -> None:
    random = Random(seed)
    store = link("store", 20, lanes=random.randint(1, 3))
    lane = lane_over(network(store=store, mirror=link("mirror") if random.random() < 0.5 else None))
    waiting = 0
    ended = 0
    for step in range(200):
        if step < 100 and random.random() < 0.5:
            nodes = random.sample(range(4), random.randint(1, 3))
            asked(lane, f"{random.choice(('store', 'other', 'site'))}/{step}", nodes, random.randint(1, 4))
            waiting += 1
        begun(lane)
        ways = [each.way for each in lane.running if each.way is not None]
        lanes = [name for way in ways for name in way.lanes]
        nodes_had = [name for way in ways for name in way.nodes]
        assert len(lanes) == len(set(lanes))
        assert len(nodes_had) == len(set(nodes_had))
        assert lane.running or not lane.waiting
        for cargo in list(lane.running):
            done = random.randint(0, SIZE)
            lane.moved(cargo, max(0, cargo.left_bytes - done))
            lane.charge(cargo, done)
            if not cargo.left_bytes:
                ended += 1
                for node in list(cargo.left):
                    lane.arrive(cargo, node)
            elif lane.is_turn_over(cargo):
                lane.give_way(cargo)
    assert ended == waiting
    assert lane.ends((), 0) == {}
