"""Orders to one node's daemon: each says what should be, and the report says what is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from cachemgr.daemon.parts import PreferringMaker
from outrider.service.images.catalogue import Catalogue, CatalogueImage
from outrider.service.nodes.daemons import SocketNodes
from outrider.service.ports import (
    COPYING,
    Copy,
    NodeReport,
    NodeTrouble,
    Pin,
    Readers,
    Relay,
    Stop,
    TellNode,
    Unpin,
)
from tests.daemons.node.daemons import MIB, Inside, ScriptedCarrier, eventually
from tests.unit.service.nodes.telling import CLOCK, CONTENT, DIGEST, OWNER, A, B, Tell, arrived, codes, fetch


def pins(node: Inside) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.ask("show", name=DIGEST)["pin_list"]
    return found


def test_report_of_an_empty_node_has_its_limit_and_nothing_else(node: Inside, tell: Tell) -> None:
    report = tell()

    assert report.limit_bytes == 64 * MIB
    assert (report.used_bytes, report.arriving, report.images, report.results) == (0, (), (), ())


def test_images_are_reported_only_if_asked_for(node: Inside, tell: Tell) -> None:
    tell(fetch())
    arrived(tell, node)

    assert tell(wants_images=False).images is None
    assert [(each.digest, each.size_bytes, each.uri) for each in tell().images or ()] == [
        (DIGEST, len(CONTENT), A)
    ]


def test_file_without_bytes_that_a_user_has_added_is_no_image(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    carrier.contents[B] = b""
    node.ask("add", uri=B, uid=61002, private=True, wait=True)
    tell(fetch())
    arrived(tell, node)

    assert [each.digest for each in tell().images or ()] == [DIGEST]


def test_fetched_image_arrives_is_counted_and_pinned_so_that_it_stays(node: Inside, tell: Tell) -> None:
    order = fetch()
    report = tell(order)
    arrived(tell, node)
    found = pins(node)

    assert [(each.order, each.code) for each in report.results] == [(order, "")]
    assert [(each["owner"], each["kind"], each["until_s"]) for each in found] == [
        (f"reservation:{OWNER}", "hold", order.until_s)
    ]
    assert tell().arriving == ()
    assert tell().used_bytes == len(CONTENT)


def test_arriving_image_is_reported_with_its_bytes(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(A, 2 * MIB)
    tell(fetch())
    eventually("two MiB are there", lambda: tell().arriving[0].arrived_bytes == 2 * MIB, node.log)
    (arriving,) = tell().arriving
    report = tell()
    gate.set()
    arrived(tell, node)

    assert (arriving.digest, arriving.size_bytes, arriving.has_failed) == (DIGEST, len(CONTENT), False)
    assert arriving.source == A
    assert report.used_bytes == len(CONTENT)


def test_same_orders_again_change_nothing(node: Inside, tell: Tell, carrier: ScriptedCarrier) -> None:
    gate = carrier.hold(A, MIB)
    order = fetch(rate_bytes_per_s=50 * MIB, deadline_s=CLOCK.now_s() + 600)
    tell(order)
    before = node.ask("transfers")["transfers"]
    reports = [tell(order), tell(order)]
    after = node.ask("transfers")["transfers"]
    gate.set()
    arrived(tell, node)
    held = pins(node)
    tell(order)
    names = ("transfer", "limit_bytes_per_s", "deadline_s", "wanted_by")

    assert [codes(report) for report in reports] == [[""], [""]]
    assert [{name: each[name] for name in names} for each in after] == [
        {name: each[name] for name in names} for each in before
    ]
    assert pins(node) == held
    assert len(node.ask("transfers")["transfers"]) == 1


def test_transfer_under_way_gets_another_rate_and_a_later_deadline(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(A, MIB)
    now_s = CLOCK.now_s()
    seen = []
    for rate, deadline_s in ((MIB, now_s + 600), (2 * MIB, now_s + 900), (None, now_s + 900)):
        tell(fetch(rate_bytes_per_s=rate, deadline_s=deadline_s))
        (found,) = node.ask("transfers")["transfers"]
        seen.append((found["limit_bytes_per_s"], found["deadline_s"]))
    gate.set()
    arrived(tell, node)

    assert seen == [(MIB, now_s + 600), (2 * MIB, now_s + 900), (None, now_s + 900)]


def test_pin_of_a_missing_image_is_missing(node: Inside, tell: Tell) -> None:
    report = tell(Pin(digest=DIGEST, owner=OWNER, until_s=CLOCK.now_s() + 60))

    assert codes(report) == ["missing"]
    assert "add it first" in report.results[0].words


def test_pin_and_unpin_may_come_twice(node: Inside, tell: Tell) -> None:
    tell(fetch(owner="other-1"))
    arrived(tell, node)
    pin = Pin(digest=DIGEST, owner=OWNER, until_s=CLOCK.now_s() + 60)
    pinned = tell(pin, pin)
    owners = [each["owner"] for each in pins(node)]
    node.ask("pin", name=DIGEST, owner="keep", until_s=CLOCK.now_s() + 60)
    told = tell(wants_images=True).images
    unpinned = tell(Unpin(digest=DIGEST, owner=OWNER), Unpin(digest=DIGEST, owner=OWNER))

    assert (codes(pinned), codes(unpinned)) == (["", ""], ["", ""])
    assert owners == ["reservation:other-1", f"reservation:{OWNER}"]
    # An administrator's own pin is none of the service's business.
    assert told is not None
    assert [each.owners for each in told] == [("other-1", OWNER)]
    assert [each["owner"] for each in pins(node)] == ["keep", "reservation:other-1"]


def test_order_that_fails_does_not_keep_the_next_from_being_carried_out(node: Inside, tell: Tell) -> None:
    too_large = fetch(digest=f"sha256:{'0' * 64}", uri=B, sources=(B,), size_bytes=1 << 40)
    report = tell(too_large, fetch())
    arrived(tell, node)

    assert codes(report) == ["never-fits", ""]


def test_stopped_transfer_ends_and_says_so(node: Inside, tell: Tell, carrier: ScriptedCarrier) -> None:
    carrier.hold(A, MIB)
    tell(fetch())
    eventually("a MiB is there", lambda: tell().arriving[0].arrived_bytes == MIB, node.log)
    report = tell(Unpin(digest=DIGEST, owner=OWNER), Stop(digest=DIGEST))
    node.settle()
    (arriving,) = tell().arriving

    assert codes(report) == ["", ""]
    assert (arriving.has_failed, arriving.arrived_bytes) == (True, MIB)
    assert "cancelled" in arriving.words
    assert codes(tell(Stop(digest=DIGEST))) == [""]


def test_stopped_transfer_goes_on_another_way_in_the_same_call_with_the_bytes_that_are_there(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    """A deadline does not wait for a source that is held back."""
    carrier.contents[B] = CONTENT
    carrier.hold(A, MIB)
    tell(fetch(owner="job-1"))
    eventually("a MiB is there", lambda: tell().arriving[0].arrived_bytes == MIB, node.log)
    report = tell(Stop(digest=DIGEST), fetch(sources=(B,)))
    arrived(tell, node)

    assert codes(report) == ["", ""]
    assert carrier.started_at == [(A, 0), (B, MIB)]
    assert (tell().images or ())[0].owners == ("job-1", OWNER)


def test_transfer_that_a_user_waits_for_too_is_not_stopped(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(A, MIB)
    tell(fetch())
    node.ask("add", uri=A, digest=DIGEST, uid=61001)
    tell(Stop(digest=DIGEST))
    gate.set()
    arrived(tell, node)

    assert [each.digest for each in tell().images or ()] == [DIGEST]


def test_failed_transfer_is_reported_with_its_reason_until_the_image_is_there(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    carrier.contents = {}
    tell(fetch())
    node.settle()
    (failed,) = tell().arriving
    carrier.contents = {A: CONTENT}
    tell(fetch())
    arrived(tell, node)

    assert (failed.digest, failed.has_failed) == (DIGEST, True)
    assert "no source could deliver" in failed.words
    assert tell().arriving == ()


def test_failed_transfer_is_forgotten_once_the_image_came_another_way(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    carrier.contents = {B: CONTENT}
    tell(fetch())
    node.settle()
    node.ask("add", uri=B)
    node.settle()

    assert [each["state"] for each in node.ask("transfers")["transfers"]] == ["failed", "done"]
    assert tell().arriving == ()


def test_wrong_bytes_are_a_failure_and_no_image(node: Inside, tell: Tell, carrier: ScriptedCarrier) -> None:
    carrier.contents = {A: b"x" * len(CONTENT)}
    tell(fetch())
    node.settle()
    report = tell()

    assert report.images == ()
    assert [(each.digest, each.has_failed) for each in report.arriving] == [(DIGEST, True)]


def test_what_arrived_before_the_daemon_was_restarted_is_not_under_way(
    node: Inside, inside: Callable[..., Inside], carrier: ScriptedCarrier
) -> None:
    carrier.hold(A, MIB)
    nodes = SocketNodes({"n1": node.socket}, clock=CLOCK)
    # Its source was a file of another address, which the next daemon knows nothing of.
    nodes.tell(TellNode(node="n1", orders=(fetch(uri="a-name", sources=(A,)),)))
    eventually("a MiB is there", lambda: node.ask("transfers")["transfers"][0]["bytes"] == MIB, node.log)
    node.stop()
    inside()
    report = nodes.tell(TellNode(node="n1"))

    assert [(each.digest, each.arrived_bytes, each.has_failed) for each in report.arriving] == [
        (DIGEST, MIB, True)
    ]
    assert "no transfer is under way" in report.arriving[0].words


def test_nodes_are_sources_by_their_addresses_and_never_of_themselves(
    node: Inside, carrier: ScriptedCarrier
) -> None:
    carrier.contents = {}
    addresses = {"n1": "127.0.0.1:1", "n2": "127.0.0.1:7010"}
    nodes = SocketNodes({"n1": node.socket}, clock=CLOCK, relay_of=addresses.get)
    relays = tuple(Relay(node=name, digest=DIGEST) for name in ("n1", "n2", "n3"))
    nodes.tell(TellNode(node="n1", orders=(fetch(sources=(*relays, A)),)))
    node.settle()

    assert [uri for uri, _ in carrier.started_at] == [f"relay://127.0.0.1:7010/{DIGEST}", A]


def with_names(node: Inside, readers: Readers | None = None) -> SocketNodes:
    """Nodes of a site that calls the image at A "ubuntu"."""
    image = CatalogueImage(name="ubuntu", uri=A, digest=DIGEST, size_bytes=len(CONTENT), readers=readers)
    return SocketNodes({"n1": node.socket}, clock=CLOCK, catalogue=Catalogue([image]))


def test_node_is_told_an_address_and_the_answer_speaks_of_the_name(
    node: Inside, carrier: ScriptedCarrier
) -> None:
    named = fetch(uri="ubuntu", sources=(Relay(node="n2", digest=DIGEST), "ubuntu"))
    report = with_names(node).tell(TellNode(node="n1", orders=(named,)))
    node.settle()

    assert [uri for uri, _ in carrier.started_at] == [A]
    assert [each.order for each in report.results] == [named]
    assert codes(report) == [""]


def test_image_of_the_catalogue_for_some_is_theirs_on_the_node(node: Inside) -> None:
    readers = Readers(uids=(4242,))
    named = fetch(uri="ubuntu", sources=("ubuntu",))
    with_names(node, readers).tell(TellNode(node="n1", orders=(named,)))
    node.settle()
    shown = node.ask("show", name=DIGEST)

    assert not shown["is_public"]
    assert shown["readers"] == {"uids": [4242], "gids": []}


def test_node_without_a_daemon_is_away(node: Inside) -> None:
    nodes = SocketNodes({"n1": node.socket + "-not"}, clock=CLOCK)

    with pytest.raises(NodeTrouble, match="n1 does not answer") as trouble:
        nodes.tell(TellNode(node="n1"))
    assert trouble.value.is_away
    with pytest.raises(NodeTrouble, match="n9 has no pool") as trouble:
        nodes.tell(TellNode(node="n9"))
    assert not trouble.value.is_away


def test_promised_bytes_are_kept_and_what_others_hold_is_reported(
    node: Inside, carrier: ScriptedCarrier
) -> None:
    until_s = CLOCK.now_s() + 600
    node.ask("add", uri=A, wait=False, pin={"owner": "by-hand", "until_s": until_s})
    node.settle()
    nodes = SocketNodes({"n1": node.socket}, clock=CLOCK)

    report = nodes.tell(TellNode(node="n1", promised_bytes=MIB, promised_until_s=until_s))
    later = nodes.tell(TellNode(node="n1"))

    assert node.ask("promise")["promised_bytes"] == MIB
    assert report.room == later.room
    assert report.room is not None
    [held] = report.room.held
    assert (held.digest, held.until_s) == (DIGEST, until_s)
    assert report.room.capacity_bytes == report.limit_bytes


def test_several_threads_may_tell_one_node(node: Inside, tell: Tell) -> None:
    reports: list[NodeReport] = []
    threads = [threading.Thread(target=lambda: reports.append(tell(fetch()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    arrived(tell, node)

    assert [codes(report) for report in reports] == [[""]] * 4
    assert len(node.ask("transfers")["transfers"]) == 1
    assert node.ask("transfers")["transfers"][0]["wanted_by"] == [os.geteuid()]


def test_copy_is_ordered_with_its_pin_and_goes_with_it(node: Inside, tell: Tell) -> None:
    # Also where the tests' own disk shares blocks.
    node.node.maker = PreferringMaker(node.node.maker, ("copy",))
    pin = Pin(digest=DIGEST, owner=OWNER, until_s=CLOCK.now_s() + 600)
    order = Copy(digest=DIGEST, owner=OWNER, until_s=CLOCK.now_s() + 600)
    absent = codes(tell(pin, order))
    tell(fetch())
    arrived(tell, node)
    told = [codes(tell(pin, order))]

    def is_made() -> bool:
        told.append(codes(tell(pin, order)))
        return told[-1] == ["", ""]

    eventually("it is made", is_made, node.log)
    made = [each["owner"] for each in node.ask("instances")["instances"]]
    report = tell(Unpin(digest=DIGEST, owner=OWNER))

    assert absent == ["missing", "missing"]
    assert all(each in (["", COPYING], ["", ""]) for each in told)
    assert made == [f"reservation:{OWNER}"]
    assert report.room is not None
    assert "file" in report.room.copied_formats
    assert report.room.held == ()
    assert node.ask("instances")["instances"] == []
