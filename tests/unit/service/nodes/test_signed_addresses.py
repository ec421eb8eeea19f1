"""Images of buckets: a node is told a signed address, keeps nothing of it, and lets nobody else in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.service.images.catalogue import Catalogue
from outrider.service.nodes.daemons import SocketNodes
from outrider.service.ports import NodeReport, Order, Readers, TellNode
from tests.daemons.node.daemons import Inside, ScriptedCarrier
from tests.unit.service.nodes.telling import CLOCK, CONTENT, DIGEST, codes, fetch

ONE, OTHER = "s3://images/one", "s3://images/other"
SIGNED = "https://store.example.org/images/one?X-Amz-Signature=0123abcd"
ADA, BOB = 61001, 61002
Tell = Callable[..., NodeReport]


def sign(uri: str, digest: str, until_s: int | None) -> str | None:
    return SIGNED if uri.startswith("s3://") else None


@pytest.fixture
def node(inside: Callable[..., Inside], carrier: ScriptedCarrier) -> Inside:
    carrier.contents = {SIGNED: CONTENT}
    return inside()


@pytest.fixture
def tell(node: Inside) -> Tell:
    nodes = SocketNodes({"n1": node.socket}, clock=CLOCK, catalogue=Catalogue(made=sign))

    def ask(*orders: Order) -> NodeReport:
        report = nodes.tell(TellNode(node="n1", orders=orders, wants_images=True))
        node.settle()
        return report

    return ask


def wanted(uri: str, *uids: int) -> Order:
    return fetch(uri=uri, sources=(uri,), readers=Readers(uids=uids), deadline_s=CLOCK.now_s() + 60)


def test_node_reads_by_the_signed_address_and_calls_the_image_by_its_own(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    tell(wanted(ONE, ADA))

    assert [uri for uri, _ in carrier.started_at] == [SIGNED]
    assert node.ask("show", name=DIGEST)["uri"] == ONE


def test_node_keeps_no_signature_of_an_address(node: Inside, tell: Tell) -> None:
    tell(wanted(ONE, ADA))

    files = [each for each in Path(node.pool).rglob("*") if each.is_file()]
    assert [each for each in files if b"0123abcd" in each.read_bytes()] == []
    assert any(ONE.encode() in each.read_bytes() for each in files), "the search finds what is there"
    assert "0123abcd" not in str(node.ask("transfers")) + node.log()


def test_who_was_shown_a_right_to_the_same_object_may_use_it(node: Inside, tell: Tell) -> None:
    tell(wanted(ONE, ADA))

    assert codes(tell(wanted(ONE, ADA, BOB))) == [""]
    assert node.ask("show", name=DIGEST)["readers"]["uids"] == [ADA, BOB]


def test_digest_of_an_object_gives_nobody_what_came_from_another(node: Inside, tell: Tell) -> None:
    tell(wanted(ONE, ADA))

    assert codes(tell(wanted(OTHER, BOB))) == ["not-allowed"]
    assert node.ask("show", name=DIGEST)["readers"]["uids"] == [ADA]


def test_object_for_everybody_is_so_wherever_it_lies_for_one_and_no_other_object(
    node: Inside, tell: Tell
) -> None:
    tell(wanted(ONE, ADA))
    other = tell(fetch(uri=OTHER, sources=(OTHER,), owner="other-1"))
    was_public = node.ask("show", name=DIGEST)["is_public"]
    same = tell(fetch(uri=ONE, sources=(ONE,), owner="other-1"))

    assert (codes(other), was_public, codes(same)) == (["not-allowed"], False, [""])
    assert node.ask("show", name=DIGEST)["is_public"] is True
