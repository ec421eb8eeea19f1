"""When a node is told and asked next: what is there in time is known in time, and what is lost is mended."""

from __future__ import annotations

from dataclasses import replace

from outrider.service.desk.nodes.events import Arrived, Moved, News
from outrider.service.desk.nodes.orders import RETRY_S, NodeOrders
from outrider.service.desk.nodes.state import Need
from outrider.service.desk.state.agenda import Agenda
from outrider.service.ports import (
    KNOWN,
    READ,
    Arriving,
    Fetch,
    NodeImage,
    NodeReport,
    OrderResult,
    Pin,
    Relay,
    Stop,
    TellNode,
    Unpin,
)
from outrider.service.settings import Settings

DIGEST = "sha256:" + "a" * 64
SIZE = 100_000_000
NOW_S = 1_000_000
BOTH = dict.fromkeys(("job-1", "render-1"), ("n0", "n1"))
SETTINGS = Settings(progress_every_s=5, reconcile_every_s=120, pin_lease_s=86_400)


def need(
    deadline_s: int | None = None,
    *,
    owner: str = "render-1",
    upstream: tuple[str, ...] = (),
    transfer: int = 1,
    rate: int | None = None,
) -> Need:
    return Need(
        owner=owner,
        digest=DIGEST,
        uri="http://site/image",
        size_bytes=SIZE,
        format="raw",
        readers=None,
        until_s=NOW_S + 1_000_000,
        transfer=transfer,
        deadline_s=deadline_s,
        upstream=upstream,
        rate_bytes_per_s=rate,
    )


def staff_of(wanted: Need) -> NodeOrders:
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n1"], {"render-1": ["n1"]}, NOW_S)
    node_orders.need("n1", wanted, NOW_S)
    return node_orders


def call_at(node_orders: NodeOrders, at_s: int, node: str = "n1") -> TellNode:
    due_s = node_orders.statuses[node].due_s
    assert due_s is not None
    node_orders.due(node, due_s)
    return next(call for call in node_orders.calls(at_s) if call.node == node)


def tell(
    node_orders: NodeOrders,
    at_s: int,
    *,
    arriving: Arriving | None = None,
    owners: tuple[str, ...] | None = None,
) -> list[News]:
    """The node is called, and answers with what is on its way or, with `owners`, is there."""
    return answer(node_orders, call_at(node_orders, at_s), at_s, arriving=arriving, owners=owners)


def answer(
    node_orders: NodeOrders,
    call: TellNode,
    at_s: int,
    *,
    arriving: Arriving | None = None,
    owners: tuple[str, ...] | None = None,
    letting_go: str = "",
    fetching: str = "",
    words: str = "",
) -> list[News]:
    """`letting_go` and `fetching`: the faults of doing so."""
    pinned = fetching or ("missing" if owners is None else "")
    image = NodeImage(digest=DIGEST, size_bytes=SIZE, owners=owners or ())
    report = NodeReport(
        node=call.node,
        at_s=at_s,
        limit_bytes=10 * SIZE,
        used_bytes=SIZE,
        arriving=() if arriving is None else (arriving,),
        images=(() if owners is None else (image,)) if call.wants_images else None,
        results=tuple(
            OrderResult(
                order=order,
                code={Pin: pinned, Unpin: letting_go, Fetch: fetching}.get(type(order), ""),
                words=words,
            )
            for order in call.orders
        ),
    )
    return node_orders.heard(call, report, "", at_s)


def on_its_way(left_bytes: int, rate: int) -> Arriving:
    return Arriving(
        digest=DIGEST, size_bytes=SIZE, arrived_bytes=SIZE - left_bytes, rate_bytes_per_s=rate, source="n0"
    )


def test_node_is_asked_again_when_its_image_should_be_there() -> None:
    node_orders = staff_of(need(deadline_s=NOW_S + 600))
    news = tell(node_orders, NOW_S, arriving=on_its_way(20_000_000, 10_000_000))

    assert news == [Moved(node="n1", owner="render-1")]
    assert node_orders.statuses["n1"].due_s == NOW_S + 2


def test_node_is_asked_again_before_the_deadline() -> None:
    node_orders = staff_of(need(deadline_s=NOW_S + 4))
    tell(node_orders, NOW_S, arriving=on_its_way(90_000_000, 10_000_000))

    assert node_orders.statuses["n1"].due_s == NOW_S + 3


def test_node_is_not_asked_all_the_time_while_its_image_is_far_away_stuck_or_late() -> None:
    for arriving, deadline_s in (
        (on_its_way(90_000_000, 10_000_000), NOW_S + 600),
        (on_its_way(90_000_000, 0), NOW_S + 600),
        (on_its_way(90_000_000, 0), NOW_S - 1),
        (on_its_way(90_000_000, 0), None),
    ):
        node_orders = staff_of(need(deadline_s=deadline_s))
        tell(node_orders, NOW_S, arriving=arriving)

        assert node_orders.statuses["n1"].due_s == NOW_S + 5


def test_node_is_asked_once_a_second_at_most_at_the_very_end() -> None:
    node_orders = staff_of(need(deadline_s=NOW_S))
    tell(node_orders, NOW_S, arriving=on_its_way(0, 10_000_000))

    assert node_orders.statuses["n1"].due_s == NOW_S + 1


def test_pin_that_was_taken_away_is_put_there_again_at_the_next_comparison() -> None:
    node_orders = staff_of(need())
    assert tell(node_orders, NOW_S, owners=("render-1",)) == [Arrived(node="n1", owner="render-1")]
    assert node_orders.statuses["n1"].due_s == NOW_S + 120
    tell(node_orders, NOW_S + 120, owners=("somebody",))
    call = call_at(node_orders, NOW_S + 121)

    assert [order.owner for order in call.orders if isinstance(order, Pin)] == ["render-1"]


def test_rate_that_changes_while_a_node_is_being_told_another_is_told_at_once() -> None:
    slow_bytes_per_s = 10_000
    wanted = need()
    node_orders = staff_of(wanted)
    fast = call_at(node_orders, NOW_S)
    wanted.rate_bytes_per_s, wanted.is_told = slow_bytes_per_s, False
    node_orders.hurry("n1", wanted.owner, NOW_S)
    answer(node_orders, fast, NOW_S, arriving=on_its_way(90_000_000, 10_000_000))
    assert node_orders.statuses["n1"].due_s == NOW_S + 1
    slow = call_at(node_orders, NOW_S + 1)
    answer(node_orders, slow, NOW_S + 1, arriving=on_its_way(80_000_000, slow_bytes_per_s))
    then = call_at(node_orders, NOW_S + 6)

    said = [
        [order.rate_bytes_per_s for order in call.orders if isinstance(order, Fetch)]
        for call in (fast, slow, then)
    ]
    assert said == [[None], [slow_bytes_per_s], []]


def test_need_on_a_node_that_its_owner_does_not_have_is_forgotten_and_its_pin_taken_away() -> None:
    """What the state was before it was loaded anew: a move to n1 that could not be written down."""
    node_orders = staff_of(need())
    tell(node_orders, NOW_S, owners=("render-1",))
    node_orders.assemble(["n1", "n2"], {"render-1": ["n2"]}, NOW_S)
    tell(node_orders, NOW_S + 120, owners=("render-1",))
    call = call_at(node_orders, NOW_S + 121)

    assert call.orders == (Unpin(digest=DIGEST, owner="render-1"),)


def both_on_n1(job: Need, reservation: Need) -> tuple[NodeOrders, TellNode]:
    """A job's image is on its way to n1 when a reservation needs the same there: what n1 is told then."""
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n0", "n1"], BOTH, NOW_S)
    node_orders.need("n1", job, NOW_S - 100)
    tell(node_orders, NOW_S, arriving=on_its_way(90_000_000, 1_000_000))
    node_orders.need("n1", reservation, NOW_S + 1)
    return node_orders, call_at(node_orders, NOW_S + 1)


def test_chain_of_best_effort_that_a_node_is_just_being_told_of_is_left_for_a_deadline_too() -> None:
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n0", "n1"], BOTH, NOW_S)
    node_orders.need("n1", need(owner="job-1", transfer=-1, upstream=("n0",)), NOW_S - 100)
    under_way = call_at(node_orders, NOW_S)
    node_orders.need("n1", need(deadline_s=NOW_S + 600), NOW_S)
    answer(node_orders, under_way, NOW_S, arriving=on_its_way(90_000_000, 1_000_000))
    call = call_at(node_orders, NOW_S + 1)

    assert [order.owner for order in under_way.orders if isinstance(order, Fetch)] == ["job-1"]
    assert call.orders[0] == Stop(digest=DIGEST)
    assert [order.owner for order in call.orders if isinstance(order, Fetch)] == ["job-1", "render-1"]


def test_image_of_a_deadline_does_not_come_through_nodes_where_best_effort_is_held_back() -> None:
    job = need(owner="job-1", transfer=-1, upstream=("n0",))
    _, call = both_on_n1(job, need(deadline_s=NOW_S + 60))
    stop, *others = call.orders
    fetches = [each for each in others if isinstance(each, Fetch)]

    assert stop == Stop(digest=DIGEST)
    assert [(each.owner, each.sources) for each in fetches] == [
        ("job-1", ("http://site/image",)),
        ("render-1", ("http://site/image",)),
    ]


def test_image_in_layers_does_not_come_through_nodes_where_best_effort_is_held_back() -> None:
    """What is there of it is held for its reservation before its transfer begins."""
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n0", "n1"], BOTH, NOW_S)
    node_orders.need("n1", need(owner="job-1", transfer=-1, upstream=("n0",)), NOW_S - 100)
    partial = replace(need(), transfer=None, layers=("one",))
    node_orders.need("n1", partial, NOW_S - 50)
    tell(node_orders, NOW_S, arriving=on_its_way(90_000_000, 1_000_000))
    node_orders.need("n1", need(deadline_s=NOW_S + 60), NOW_S + 1)
    stop, *others = call_at(node_orders, NOW_S + 1).orders

    assert stop == Stop(digest=DIGEST)
    assert [each.sources for each in others if isinstance(each, Fetch)] == 2 * [("http://site/image",)]


def test_image_that_is_brought_later_is_let_go_but_for_the_layers_that_are_counted_on() -> None:
    """If the node cannot let go of it at once, it is told both again: to let go takes those layers, too."""
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n0", "n1"], BOTH, NOW_S)
    node_orders.need("n1", need(), NOW_S - 100)
    tell(node_orders, NOW_S - 99)
    node_orders.drop("n1", "render-1", NOW_S)
    node_orders.need("n1", replace(need(), transfer=None, layers=("one",)), NOW_S)
    at_once = call_at(node_orders, NOW_S)
    answer(node_orders, at_once, NOW_S, letting_go="disk")
    again = call_at(node_orders, NOW_S + RETRY_S)

    for call in (at_once, again):
        unpin, pin = call.orders
        assert isinstance(unpin, Unpin)
        assert isinstance(pin, Pin)
        assert pin.layers == ("one",)


def test_deadline_joins_what_comes_by_the_same_way() -> None:
    _, call = both_on_n1(need(owner="job-1"), need(deadline_s=NOW_S + 60))

    assert Stop(digest=DIGEST) not in call.orders
    assert [each.owner for each in call.orders if isinstance(each, Fetch)] == ["render-1"]


def test_job_that_joins_a_deadline_leaves_it_its_place_in_the_chain() -> None:
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n0", "n1"], BOTH, NOW_S)
    node_orders.need("n1", need(deadline_s=NOW_S + 60, upstream=("n0",)), NOW_S - 100)
    tell(node_orders, NOW_S, arriving=on_its_way(90_000_000, 1_000_000))
    node_orders.need("n1", need(owner="job-1"), NOW_S + 1)
    call = call_at(node_orders, NOW_S + 1)

    assert Stop(digest=DIGEST) not in call.orders
    assert [each.sources for each in call.orders if isinstance(each, Fetch)] == [
        (Relay(node="n0", digest=DIGEST), "http://site/image")
    ]


def test_deadline_that_a_job_counts_on_goes_on_when_another_reservation_does() -> None:
    """The job names no nodes before n1: it is brought nothing of its own."""
    job = need(owner="job-1", transfer=3)
    _, call = both_on_n1(job, need(transfer=3, deadline_s=NOW_S + 600, upstream=("n0",)))

    assert not any(isinstance(order, Stop) for order in call.orders)


def test_what_comes_with_a_deadline_goes_on_when_another_reservation_needs_it_too() -> None:
    """It has begun anew once, for the first of them."""
    job = need(owner="job-1", transfer=-1, upstream=("n0",))
    node_orders, call = both_on_n1(job, need(deadline_s=NOW_S + 60))
    answer(node_orders, call, NOW_S + 1, arriving=on_its_way(90_000_000, 1_000_000))
    node_orders.need("n1", need(owner="later-2", deadline_s=NOW_S + 60), NOW_S + 2)
    later = call_at(node_orders, NOW_S + 2)

    assert call.orders[0] == Stop(digest=DIGEST)
    assert not any(isinstance(order, Stop) for order in later.orders)


def test_deadline_does_not_wait_for_the_chain_of_one_that_is_late() -> None:
    late = need(NOW_S + 5, owner="late-1", upstream=("n0",), rate=1_000_000)
    _, call = both_on_n1(late, need(NOW_S + 60, transfer=2, rate=10_000_000))
    stop, *others = call.orders

    assert stop == Stop(digest=DIGEST)
    assert [(each.rate_bytes_per_s, each.sources) for each in others if isinstance(each, Fetch)] == 2 * [
        (10_000_000, ("http://site/image",))
    ]


def test_deadline_leaves_the_chain_of_another_that_becomes_late() -> None:
    first = need(NOW_S + 60, owner="late-1", upstream=("n0",), rate=10_000_000)
    node_orders, together = both_on_n1(first, need(NOW_S + 600, transfer=2, rate=10_000_000))
    answer(node_orders, together, NOW_S + 1, arriving=on_its_way(90_000_000, 1_000_000))
    node_orders.set_rate("n1", 1, 1_000_000, NOW_S + 2)
    stop, *others = call_at(node_orders, NOW_S + 2).orders

    assert not any(isinstance(order, Stop) for order in together.orders), "both are as fast"
    assert stop == Stop(digest=DIGEST)
    assert [(each.rate_bytes_per_s, each.sources) for each in others if isinstance(each, Fetch)] == 2 * [
        (10_000_000, ("http://site/image",))
    ]


def test_what_failed_to_arrive_for_whom_nobody_knows_keeps_no_bytes() -> None:
    """A service that was killed had ordered it: until its pin ends its bytes would be nobody else's."""
    node_orders = staff_of(need())
    node_orders.compare_all(NOW_S)
    failed = replace(on_its_way(50_000_000, 0), has_failed=True, owners=("render-7",))
    tell(node_orders, NOW_S, arriving=failed, owners=())

    assert Unpin(digest=DIGEST, owner="render-7") in call_at(node_orders, NOW_S + 1).orders


def test_image_that_is_to_come_by_a_deadlines_own_way_does_so_whatever_else_is_new() -> None:
    """Best effort is told its new rate in the same moment: the chain that it came in is held back."""
    chained = need(owner="job-1", upstream=("n0",), transfer=-1)
    node_orders = staff_of(chained)
    tell(node_orders, NOW_S, arriving=on_its_way(50_000_000, 10_000_000))
    node_orders.need("n1", need(deadline_s=NOW_S + 60), NOW_S + 1)
    node_orders.need("n1", replace(chained, rate_bytes_per_s=1), NOW_S + 1)

    orders = call_at(node_orders, NOW_S + 1).orders
    assert orders[0] == Stop(digest=DIGEST)
    assert {each.owner for each in orders if isinstance(each, Fetch)} == {"job-1", "render-1"}


def barred(node_orders: NodeOrders, node: str, at_s: int) -> Fetch:
    """The node is told, and has the bytes for others alone; what it was told."""
    call = call_at(node_orders, at_s, node)
    answer(node_orders, call, at_s, fetching="not-allowed")
    (order,) = (each for each in call.orders if isinstance(each, Fetch))
    return order


def test_one_node_reads_what_all_have_for_others_and_the_rest_know_it_then() -> None:
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n0", "n1"], BOTH, NOW_S)
    node_orders.need("n0", need(deadline_s=NOW_S + 60), NOW_S)
    node_orders.need("n1", need(deadline_s=NOW_S + 60, upstream=("n0",)), NOW_S)
    first = call_at(node_orders, NOW_S, "n0")
    answer(node_orders, first, NOW_S, words=READ, arriving=on_its_way(90_000_000, 1_000_000))
    second = barred(node_orders, "n1", NOW_S)
    meanwhile = call_at(node_orders, NOW_S + 3, "n1")
    answer(node_orders, meanwhile, NOW_S + 3)
    answer(node_orders, call_at(node_orders, NOW_S + 5, "n0"), NOW_S + 5, owners=("render-1",))
    afterwards = call_at(node_orders, NOW_S + 8, "n1")

    assert [each.proof for each in first.orders if isinstance(each, Fetch)] == [READ]
    assert second.proof == ""
    assert meanwhile.orders == ()
    assert [each.proof for each in afterwards.orders if isinstance(each, Fetch)] == [KNOWN]


def test_node_that_has_it_for_others_waits_for_the_one_before_it_to_which_it_comes() -> None:
    """To read it beside would take the link twice."""
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n0", "n1"], BOTH, NOW_S)
    node_orders.need("n0", need(deadline_s=NOW_S + 60), NOW_S)
    node_orders.need("n1", need(deadline_s=NOW_S + 60, upstream=("n0",)), NOW_S)
    answer(node_orders, call_at(node_orders, NOW_S, "n0"), NOW_S, arriving=on_its_way(90_000_000, 1_000_000))
    barred(node_orders, "n1", NOW_S)
    meanwhile = call_at(node_orders, NOW_S + 3, "n1")
    answer(node_orders, meanwhile, NOW_S + 3)
    answer(node_orders, call_at(node_orders, NOW_S + 5, "n0"), NOW_S + 5, owners=("render-1",))
    afterwards = call_at(node_orders, NOW_S + 8, "n1")

    assert meanwhile.orders == ()
    assert [each.proof for each in afterwards.orders if isinstance(each, Fetch)] == [KNOWN]


def test_node_that_has_it_for_others_does_not_wait_for_one_that_has_it_by_a_copy_of_others() -> None:
    """That one reads nothing: it would wait until the reservation's end."""
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n0", "n1"], BOTH, NOW_S)
    node_orders.need("n0", replace(need(), transfer=None), NOW_S)
    answer(node_orders, call_at(node_orders, NOW_S, "n0"), NOW_S, owners=("render-1",))
    node_orders.need("n1", need(deadline_s=NOW_S + 60, upstream=("n0",)), NOW_S)
    barred(node_orders, "n1", NOW_S)
    again = call_at(node_orders, NOW_S + 3, "n1")

    assert [each.proof for each in again.orders if isinstance(each, Fetch)] == [READ]


def test_node_that_cannot_read_it_is_followed_by_another_and_is_not_asked_every_second() -> None:
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n0", "n1"], BOTH, NOW_S)
    node_orders.need("n0", need(deadline_s=NOW_S + 600), NOW_S)
    node_orders.need("n1", need(deadline_s=NOW_S + 600, upstream=("n0",)), NOW_S)
    told = {"n0": 0, "n1": 0}
    proofs: set[tuple[str, str]] = set()
    for at_s in range(NOW_S, NOW_S + 120):
        for node in told:
            status = node_orders.statuses[node]
            if status.due_s is not None and status.due_s <= at_s:
                call = call_at(node_orders, at_s, node)
                answer(node_orders, call, at_s, fetching="not-allowed")
                told[node] += any(isinstance(each, Fetch) for each in call.orders)
                proofs.update((node, each.proof) for each in call.orders if isinstance(each, Fetch))

    assert proofs == {("n0", READ), ("n1", ""), ("n1", READ)}
    assert max(told.values()) < 12


def test_what_best_effort_reads_at_another_address_takes_its_own_part_of_a_link() -> None:
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n1"], BOTH, NOW_S)
    node_orders.need("n1", need(deadline_s=NOW_S + 60, rate=10_000_000), NOW_S)
    node_orders.need("n1", replace(need(owner="job-1", rate=1), uri="http://other/image"), NOW_S)
    call = call_at(node_orders, NOW_S)
    answer(node_orders, call, NOW_S, words=READ, arriving=on_its_way(90_000_000, 1_000_000))
    again = call_at(node_orders, NOW_S + 2)

    rates = [each.rate_bytes_per_s for each in again.orders if isinstance(each, Fetch)]
    assert [each.rate_bytes_per_s for each in call.orders if isinstance(each, Fetch)] == [10_000_000] * 2
    assert rates == [1]


def test_what_best_effort_reads_where_a_deadline_waits_for_another_node_takes_its_own_part_too() -> None:
    node_orders = NodeOrders(SETTINGS, Agenda())
    node_orders.assemble(["n0", "n1"], BOTH, NOW_S)
    node_orders.need("n0", need(deadline_s=NOW_S + 60, rate=10_000_000), NOW_S)
    node_orders.need("n1", need(deadline_s=NOW_S + 60, rate=10_000_000, upstream=("n0",)), NOW_S)
    answer(node_orders, call_at(node_orders, NOW_S, "n0"), NOW_S, arriving=on_its_way(90_000_000, 1_000_000))
    barred(node_orders, "n1", NOW_S)
    node_orders.need("n1", need(owner="job-1", rate=1), NOW_S + 1)
    call = call_at(node_orders, NOW_S + 1, "n1")
    answer(node_orders, call, NOW_S + 1, words=READ, arriving=on_its_way(90_000_000, 1_000_000))
    again = call_at(node_orders, NOW_S + 3, "n1")

    assert [(each.owner, each.proof) for each in call.orders if isinstance(each, Fetch)] == [("job-1", READ)]
    assert [each.rate_bytes_per_s for each in again.orders if isinstance(each, Fetch)] == [1]
