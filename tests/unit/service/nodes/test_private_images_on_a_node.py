"""Private images on a node: for whom they are, and what opens them to others."""

from __future__ import annotations

import os

from outrider.service.ports import Pin, Readers, Stop
from tests.daemons.node.daemons import MIB, Inside, ScriptedCarrier
from tests.unit.service.nodes.telling import CLOCK, CONTENT, DIGEST, A, B, Tell, arrived, codes, fetch


def test_private_image_is_for_its_readers_alone(node: Inside, tell: Tell) -> None:
    report = tell(fetch(readers=Readers(uids=(61001,), gids=(61900,))))
    arrived(tell, node)
    shown = node.ask("show", name=DIGEST)

    assert codes(report) == [""]
    assert shown["is_public"] is False
    assert shown["readers"] == {"uids": [61001], "gids": [61900]}


def test_report_tells_whose_a_private_image_is(node: Inside, tell: Tell, carrier: ScriptedCarrier) -> None:
    carrier.contents[B] = b"another one" * 99
    tell(fetch(readers=Readers(uids=(61001,), gids=(61900,))))
    arrived(tell, node)
    node.ask("add", uri=B, uid=61002, private=True, wait=True)
    report = tell()

    assert report.images is not None
    told = {image.uri: (image.is_public, image.owner_uid, image.readers) for image in report.images}
    assert told[A] == (False, None, Readers(uids=(61001,), gids=(61900,)))
    assert told[B] == (False, 61002, Readers())


def test_public_wish_does_not_open_a_private_image_that_is_there(node: Inside, tell: Tell) -> None:
    tell(fetch(readers=Readers(uids=(61001,))))
    arrived(tell, node)
    report = tell(fetch(uri=B, sources=(B,), owner="other-1"))

    assert codes(report) == ["not-allowed"]
    assert "private: true" in report.results[0].words
    assert node.ask("show", name=DIGEST)["is_public"] is False


def test_image_is_everybodys_where_everybody_gets_it_though_it_was_brought_for_one(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(A, MIB)
    tell(fetch(readers=Readers(uids=(61001,))))
    arriving = tell(fetch(owner="other-1"))
    was_public = [each["is_public"] for each in node.ask("ls")["arriving"]]
    gate.set()
    node.settle()
    there = tell(
        Pin(digest=DIGEST, owner="other-1", until_s=CLOCK.now_s() + 60, uri=A, size_bytes=len(CONTENT))
    )

    assert (codes(arriving), codes(there), was_public) == ([""], [""], [False])
    assert node.ask("show", name=DIGEST)["is_public"] is True


def test_image_stays_private_where_not_everybody_gets_it(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    carrier.trusting.add(A)
    gate = carrier.hold(A, MIB)
    tell(fetch(readers=Readers(uids=(61001,))))
    arriving = tell(fetch(owner="other-1"))
    gate.set()
    node.settle()
    there = tell(fetch(owner="other-1"))

    assert (codes(arriving), codes(there)) == (["not-allowed"], ["not-allowed"])
    assert node.ask("show", name=DIGEST)["is_public"] is False


def test_second_reader_of_a_private_image_has_to_come_by_its_own_address(node: Inside, tell: Tell) -> None:
    tell(fetch(readers=Readers(uids=(61001,))))
    arrived(tell, node)
    node.settle()
    by_another = tell(fetch(uri=B, sources=(B,), readers=Readers(uids=(61002,))))
    by_the_same = tell(fetch(readers=Readers(uids=(61001, 61002))))

    assert (codes(by_another), codes(by_the_same)) == (["not-allowed"], [""])
    assert node.ask("show", name=DIGEST)["readers"]["uids"] == [61001, 61002]


def test_second_reader_of_a_private_image_that_arrives_will_have_it(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(A, MIB)
    tell(fetch(readers=Readers(uids=(61001,))))
    by_another = tell(fetch(uri=B, sources=(B,), readers=Readers(uids=(61002,)), owner="b-1"))
    public = tell(fetch(uri=B, sources=(B,), owner="c-1"))
    by_the_same = tell(fetch(readers=Readers(uids=(61001, 61003)), owner="d-1"))
    (before,) = node.ask("transfers")["transfers"]
    gate.set()
    node.settle()

    assert [codes(each) for each in (by_another, public, by_the_same)] == [
        ["not-allowed"],
        ["not-allowed"],
        [""],
    ]
    assert before["wanted_by"] == [os.geteuid(), 61003]
    assert node.ask("show", name=DIGEST)["readers"]["uids"] == [61001, 61003]


def test_stop_of_a_private_image_for_us_alone_stops_it_though_it_was_told_twice(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    carrier.hold(A, MIB)
    for _ in range(3):
        tell(fetch(readers=Readers(uids=(61001,))))
    tell(Stop(digest=DIGEST))
    node.settle()

    assert [each["state"] for each in node.ask("transfers")["transfers"]] == ["cancelled"]
