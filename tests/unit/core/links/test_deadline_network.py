"""Transfers over several links: promises are kept, one lane is one link, little is refused in vain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product
from random import Random

import pytest

from outrider.core.links.deadline import DeadlineLink
from outrider.core.links.deadline_network import DeadlineNetwork
from outrider.core.links.network import Network, NetworkLink
from outrider.core.links.schedule import DeadlineSchedule
from outrider.core.model import Image, Transfer
from tests.amount import examples

ONE = Network(site=NetworkLink(name="site", rate_bytes_per_s=10))
FROM_FAR = "far://a"


def two_racks(lanes: int = 1) -> Network:
    """Nodes a0 to a2 behind one link, b0 to b2 behind another, c0 behind none; and a source of its own."""
    racks = {name: NetworkLink(name=name, rate_bytes_per_s=10) for name in "ab"}
    return Network(
        site=NetworkLink(name="site", rate_bytes_per_s=10 * lanes, lanes=lanes),
        sources={"far": NetworkLink(name="far", rate_bytes_per_s=10)},
        groups={f"{rack}{node}": link for rack, link in racks.items() for node in range(3)},
        source_of=lambda uri: uri.split("://")[0],
    )


def mirrored(network: Network) -> Network:
    """The same with a mirror of the source that is far."""
    twin = NetworkLink(name="twin", rate_bytes_per_s=10)
    return replace(
        network,
        sources={**network.sources, "twin": twin},
        mirrors={"far": (twin,)},
        address_at=lambda uri, source: "" if uri.endswith("?") else uri.replace("far://", f"{source}://"),
    )


def near(size_bytes: int = 1) -> Image:
    return Image(uri="near://x", size_bytes=size_bytes)


def transfer(
    number: int, duration_s: int, deadline_s: int, nodes: str = "c0", uri: str = "near://x"
) -> Transfer:
    return Transfer(
        number=number,
        image=Image(uri=uri, size_bytes=10 * duration_s),
        nodes=tuple(nodes.split()),
        duration_s=duration_s,
        deadline_s=deadline_s,
    )


def add(schedule: DeadlineSchedule, *transfers: Transfer, now_s: int = 0) -> bool:
    insertion = schedule.plan(transfers, now_s)
    if insertion is not None:
        schedule.apply(insertion)
    return insertion is not None


class Drive:
    """Lets transfers begin and end when the schedule says so, and looks whether each is in time."""

    def __init__(self, schedule: DeadlineSchedule) -> None:
        self.schedule = schedule
        self.now_s = 0
        self.begun: list[tuple[int, int]] = []

    def until(self, end_s: int) -> None:
        schedule = self.schedule
        while (at_s := schedule.next_event_s(self.now_s)) is not None and at_s <= end_s:
            self.now_s = max(self.now_s, at_s)
            for running, until_s in schedule.under_way():
                if until_s <= self.now_s:
                    assert running.deadline_s is not None
                    assert self.now_s <= running.deadline_s, f"transfer {running.number}"
                    schedule.end(running.number, self.now_s)
            following = schedule.next_start(self.now_s)
            if following is not None and following[0] <= self.now_s:
                begun = schedule.begin(following[1], self.now_s)
                self.begun.append((self.now_s, begun.number))
                lanes = [lane for each, _ in schedule.under_way() for lane in each.lanes]
                assert len(lanes) == len(set(lanes)), "one lane, two transfers"
        self.now_s = end_s


def drawn(chance: Random, number: int, now_s: int) -> Transfer:
    nodes = chance.sample(["a0", "a1", "b0", "b1", "c0"], chance.randint(1, 3))
    uri = FROM_FAR if chance.random() < 0.4 else "near://x"
    return transfer(number, chance.randint(1, 6), now_s + chance.randint(1, 40), " ".join(nodes), uri)


@pytest.mark.parametrize("reserve_s", [None, 0, 5])
def test_one_lane_is_one_link(reserve_s: int | None) -> None:
    """The same answers, pushes, latest starts and beginnings, whatever comes, ends, or is taken back."""
    accepted = 0
    for seed in range(examples(300)):
        chance = Random(seed)
        link, network = DeadlineLink(reserve_s=reserve_s), DeadlineNetwork(ONE, reserve_s=reserve_s)
        drives = Drive(link), Drive(network)
        for number in range(1, 40):
            now_s = drives[0].now_s
            new = transfer(number, chance.randint(1, 6), now_s + chance.randint(1, 60))
            one, other = link.plan([new], now_s), network.plan([new], now_s)
            assert (one is None) == (other is None), f"seed {seed}, {new}"
            if one is not None and other is not None:
                assert (one.latest, one.pushed) == (other.latest, other.pushed), f"seed {seed}"
                link.apply(one)
                network.apply(other)
                accepted += 1
            if chance.random() < 0.15:
                gone = chance.randint(1, number)
                assert link.remove(gone) == network.remove(gone)
            if chance.random() < 0.4:
                until_s = now_s + chance.randint(1, 10)
                for drive in drives:
                    drive.until(until_s)
            assert starts(link) == starts(network), f"seed {seed}"
            assert link.late(now_s) == network.late(now_s)
        assert drives[0].begun == drives[1].begun, f"seed {seed}"
    assert accepted > examples(2000)


def starts(schedule: DeadlineSchedule) -> list[tuple[int, int]]:
    return [(each.number, latest_s) for each, latest_s in schedule.latest_starts()]


@pytest.mark.parametrize("network", [two_racks(), two_racks(3), mirrored(two_racks(2))])
@pytest.mark.parametrize("reserve_s", [None, 0, 7])
def test_what_was_accepted_is_in_time_whatever_comes_after_it(
    network: Network, reserve_s: int | None
) -> None:
    """`Drive` compares the end of each with its deadline, and that no lane is used twice."""
    accepted = refused = 0
    for seed in range(examples(200)):
        chance = Random(seed)
        drive = Drive(DeadlineNetwork(network, reserve_s=reserve_s))
        for number in range(1, 50):
            is_in = add(drive.schedule, drawn(chance, number, drive.now_s), now_s=drive.now_s)
            accepted, refused = accepted + is_in, refused + (not is_in)
            if chance.random() < 0.1:
                drive.schedule.remove(chance.randint(1, number))
            if chance.random() < 0.5:
                drive.until(drive.now_s + chance.randint(1, 8))
        drive.until(drive.now_s + 500)
        assert len(drive.schedule) == 0
    assert min(accepted, refused) > examples(1000)


def test_latest_starts_are_the_same_after_a_restart() -> None:
    for seed in range(examples(200)):
        chance = Random(seed)
        network = two_racks(2) if seed % 2 else mirrored(two_racks(2))
        before = DeadlineNetwork(network, reserve_s=5)
        drive = Drive(before)
        for number in range(1, 30):
            add(before, drawn(chance, number, drive.now_s), now_s=drive.now_s)
            if chance.random() < 0.3:
                drive.until(drive.now_s + chance.randint(1, 5))
        after = DeadlineNetwork(network, reserve_s=5)
        for running, end_s in before.under_way():
            after.resume_running(running, end_s)
        waiting = before.waiting()
        chance.shuffle(waiting)
        after.resume_waiting(waiting)

        assert after.latest_starts() == before.latest_starts(), f"seed {seed}"
        others = Drive(after)
        others.now_s, others.begun = drive.now_s, list(drive.begun)
        drive.until(500)
        others.until(500)
        assert others.begun == drive.begun


def test_what_was_planned_for_other_links_gets_lanes_of_these() -> None:
    network = two_racks()
    after = DeadlineNetwork(network)
    after.resume_waiting([replace(transfer(1, 5, 40, "a0"), lanes=("gone/1",)), transfer(2, 5, 40, "b0")])

    assert [each.lanes for each in after.waiting()] == [("site/1", "a/1"), ("site/1", "b/1")]
    assert starts(after) == [(1, 30), (2, 35)]


def test_a_plan_changes_nothing() -> None:
    network = DeadlineNetwork(two_racks(2), reserve_s=0)
    chance = Random(3)
    for number in range(1, 20):
        add(network, drawn(chance, number, 0))
    before = network.mark(), network.latest_starts(), network.next_start(0)

    for number in range(20, 60):
        network.plan([drawn(chance, number, 0)], 0)
        network.cut_off([drawn(chance, number, 0)], 0)
        network.earliest_deadline_of([drawn(chance, number, 0)], 0, 3)

    assert (network.mark(), network.latest_starts(), network.next_start(0)) == before


def test_transfers_to_unlike_racks_from_unlike_sources_go_at_the_same_time() -> None:
    drive = Drive(DeadlineNetwork(two_racks(), reserve_s=None))
    assert add(drive.schedule, transfer(1, 10, 10, "a0"))
    assert add(drive.schedule, transfer(2, 10, 10, "b0", FROM_FAR))
    assert not add(drive.schedule, transfer(3, 1, 10, "b1"))
    assert not add(drive.schedule, transfer(4, 1, 10, "c0", FROM_FAR))

    drive.until(0)

    assert sorted(drive.begun) == [(0, 1), (0, 2)]


def test_what_a_mirror_has_comes_from_whichever_has_time() -> None:
    network = mirrored(two_racks())
    schedule = DeadlineNetwork(network)
    for number, node in ((1, "a0"), (2, "b0")):
        assert add(schedule, transfer(number, 10, 10, node, FROM_FAR))
    sources = {network.address(each.image, each.lanes) for each in schedule.waiting()}

    assert sources == {FROM_FAR, "twin://a"}
    assert not add(schedule, transfer(3, 1, 10, "c0", FROM_FAR))
    assert schedule.cut_off([transfer(3, 1, 10, "c0", FROM_FAR)], 0) == frozenset()
    assert add(schedule, transfer(4, 10, 20, "c0", f"{FROM_FAR}?"))
    assert network.address(schedule.waiting()[-1].image, schedule.waiting()[-1].lanes) == f"{FROM_FAR}?"


def test_other_nodes_are_no_help_only_if_the_mirror_is_full_too() -> None:
    schedule = DeadlineNetwork(mirrored(two_racks()))
    assert add(schedule, transfer(1, 10, 10, "a0", FROM_FAR))

    assert schedule.cut_off([transfer(2, 5, 10, "a1 b0", FROM_FAR)], 0) == {"a0", "a1", "a2"}


def test_a_link_with_lanes_carries_so_many_at_a_time() -> None:
    network = DeadlineNetwork(two_racks(2))

    assert add(network, transfer(1, 10, 10, "a0"))
    assert add(network, transfer(2, 10, 10, "b0"))
    assert not add(network, transfer(3, 1, 10, "c0"))


def test_a_relay_crosses_the_link_of_each_rack_once_and_goes_through_it_in_one_piece() -> None:
    network = two_racks()

    assert network.in_order(("b1", "a0", "c0", "b0", "a2")) == ("b1", "b0", "a0", "a2", "c0")
    assert [link.name for link in network.route(near(), ("b1", "a0", "c0", "b0"))] == ["site", "b", "a"]
    assert network.duration_s(near(95), ("a0", "a1", "b0")) == 10


def test_the_slowest_part_of_the_way_gives_the_rate() -> None:
    network = replace(two_racks(4), node_rate_bytes_per_s=7, spread_s=3)

    assert network.rate(near(), ("c0",)) == 7
    assert replace(network, node_rate_bytes_per_s=None).rate(near(), ("a0",)) == 10
    assert network.duration_s(near(70), ("a0",)) == 13


def test_nodes_behind_a_full_link_are_named_and_none_if_the_source_is_full() -> None:
    network = DeadlineNetwork(two_racks(2))
    assert add(network, transfer(1, 10, 12, "a0"))

    assert network.cut_off([transfer(2, 5, 12, "a1 b0")], 0) == {"a0", "a1", "a2"}
    # What is brought earlier than it was to be waits itself.
    assert network.cut_off([transfer(1, 5, 11, "a0")], 0) == {"a0", "a1", "a2"}
    assert network.waiting() == [replace(transfer(1, 10, 12, "a0"), lanes=("site/1", "a/1"))]
    assert add(network, transfer(3, 10, 12, "c0"))
    assert network.cut_off([transfer(4, 5, 12, "a1 b0")], 0) == frozenset()


def test_the_earliest_deadline_is_one_that_is_accepted_and_the_second_before_it_is_not() -> None:
    compared = 0
    for seed in range(examples(200)):
        chance = Random(seed)
        network = DeadlineNetwork(two_racks(), reserve_s=0)
        for number in range(1, 15):
            add(network, drawn(chance, number, 0))
        asked = replace(drawn(chance, 99, 0), deadline_s=1)

        named_s = network.earliest_deadline_of([asked], 0, 1)

        assert add(network, replace(asked, deadline_s=named_s)), f"seed {seed}"
        network.remove(99)
        for earlier_s in range(1, named_s):
            compared += 1
            assert not add(network, replace(asked, deadline_s=earlier_s)), f"seed {seed}: {earlier_s}"
    assert compared > examples(1000)


def can_all_be_in_time(network: Network, transfers: Sequence[Transfer]) -> bool:
    """By trying all orders and all lanes, each as early as it can be."""
    ways = []
    for each in transfers:
        hops = network.hops(each.image, each.nodes)
        ways.append(list(product(*([lane for link in hop for lane in link.lane_names] for hop in hops))))
    for order in permutations(range(len(transfers))):
        for lanes in product(*ways):
            free_s: dict[str, int] = {}
            for index in order:
                end_s = max(free_s.get(lane, 0) for lane in lanes[index]) + transfers[index].duration_s
                if end_s > (transfers[index].deadline_s or 0):
                    break
                free_s.update(dict.fromkeys(lanes[index], end_s))
            else:
                return True
    return False


def test_against_brute_force_nothing_impossible_is_accepted_and_little_refused_in_vain() -> None:
    """One after another on tiny networks, from time 0 on: at most five transfers. Deadlines' order is not
    always the best on several links, and lanes are not chosen anew: a tenth of refusals may be in vain."""
    refused = in_vain = accepted = 0
    for seed in range(examples(300)):
        chance = Random(seed)
        network = two_racks(chance.randint(1, 2))
        network = network if seed % 3 else mirrored(network)
        schedule = DeadlineNetwork(network, reserve_s=0)
        there: list[Transfer] = []
        for number in range(1, 8):
            new = drawn(chance, number, 0)
            is_possible = can_all_be_in_time(network, [*there, new])
            if add(schedule, new):
                assert is_possible, f"seed {seed}"
                there.append(new)
                accepted += 1
            else:
                refused += 1
                in_vain += is_possible
            if len(there) == 4:
                break
    assert in_vain * 10 < refused, f"{in_vain} of {refused}"
    assert accepted > examples(600)


def test_a_late_transfer_keeps_the_time_that_it_still_needs() -> None:
    network = DeadlineNetwork(two_racks(), reserve_s=0)
    assert add(network, transfer(1, 5, 10, "a0"))

    assert network.late(5) == frozenset()
    assert network.late(6) == {1}
    assert network.overdue(6) == {1}
    assert not add(network, transfer(2, 4, 14, "a1"), now_s=6)
    assert add(network, transfer(3, 4, 15, "a1"), now_s=6)


def test_only_those_of_its_own_links_are_delayed_by_what_takes_too_long() -> None:
    network = DeadlineNetwork(two_racks(2), reserve_s=None)
    for each in (transfer(3, 5, 11, "b1"), transfer(1, 5, 20, "a0"), transfer(2, 5, 20, "b0")):
        assert add(network, each)
    Drive(network).until(0)
    assert {each.number for each, _ in network.under_way()} == {1, 3}

    assert not network.would_delay(1, 25)
    assert network.would_delay(3, 16)
    assert not network.would_delay(3, 15)
    network.extend(1, 30)
    assert {each.number: end_s for each, end_s in network.under_way()}[1] == 30


def test_what_is_put_aside_leaves_its_lanes_and_ends_later() -> None:
    network = DeadlineNetwork(two_racks(), reserve_s=None)
    assert add(network, transfer(1, 5, 20, "a0"))
    assert add(network, transfer(2, 5, 20, "a0"))
    network.begin(1, 0)

    assert network.next_start(0) is None
    assert network.set_aside(1, 3).number == 1
    assert network.next_start(3) == (3, 2)
    assert network.end(1, 9).number == 1
    with pytest.raises(ValueError, match="transfer 1 does not run"):
        network.end(1, 9)


def test_a_link_without_a_byte_for_each_transfer_is_refused() -> None:
    with pytest.raises(ValueError, match="link uplink: 3 bytes/s for 4 transfers"):
        NetworkLink(name="uplink", rate_bytes_per_s=3, lanes=4)
