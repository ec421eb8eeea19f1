"""An image that a node has for others alone: whoever gets the same bytes elsewhere may use it, too."""

from __future__ import annotations

import pytest

from cachemgr.base.errors import NotAllowed
from cachemgr.daemon.network.peer import NodeCaller
from cachemgr.daemon.verbs.requests import VerbRequest
from cachemgr.daemon.verbs.table import VerbTable
from outrider.service.ports import KNOWN, READ, Fetch, Pin, Readers, Stop
from tests.daemons.node.daemons import MIB, Inside, ScriptedCarrier
from tests.unit.service.nodes.telling import CLOCK, CONTENT, DIGEST, A, B, Tell, arrived, codes, fetch


@pytest.fixture
def there(node: Inside, tell: Tell, carrier: ScriptedCarrier) -> None:
    """It is there for one user, from one address, and the same is at another."""
    carrier.contents[B] = CONTENT
    tell(mine())
    arrived(tell, node)
    node.settle()


def mine() -> Fetch:
    return fetch(readers=Readers(uids=(61001,)))


def other() -> Fetch:
    return fetch(uri=B, sources=(B,), owner="other-1", proof=READ)


def pinned() -> Pin:
    return Pin(digest=DIGEST, owner="other-1", until_s=CLOCK.now_s() + 60, uri=B, size_bytes=len(CONTENT))


def readers(node: Inside) -> object:
    shown = node.ask("show", name=DIGEST)
    return "all" if shown["is_public"] else shown["readers"]["uids"]


@pytest.mark.usefixtures("there")
def test_same_bytes_from_another_address_open_it_to_all_once_they_are_read(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(B, MIB)
    begun = tell(other(), pinned())
    meanwhile = tell(other(), pinned())
    before, (coming,) = readers(node), meanwhile.arriving
    gate.set()
    node.settle()
    after = tell(pinned())

    assert (codes(begun), codes(meanwhile), codes(after)) == (["", READ], ["", READ], [""])
    assert (before, readers(node)) == ([61001], "all")
    assert (coming.digest, coming.size_bytes, coming.has_failed) == (DIGEST, len(CONTENT), False)
    assert [uri for uri, _ in carrier.started_at].count(B) == 1
    assert after.arriving == ()


@pytest.mark.usefixtures("there")
def test_address_with_a_query_is_read_as_it_is(node: Inside, tell: Tell, carrier: ScriptedCarrier) -> None:
    uri = f"{B}?version=2&key=a%20b"
    carrier.contents[uri] = CONTENT
    del carrier.contents[B]
    tell(fetch(uri=uri, sources=(uri,), owner="other-1", proof=READ))
    node.settle()

    assert readers(node) == "all"


@pytest.mark.usefixtures("there")
def test_they_are_read_on_the_terms_on_which_they_would_come(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(B, MIB)
    limits = []
    for rate in (5 * MIB, 2 * MIB):
        tell(fetch(uri=B, sources=(B,), owner="other-1", proof=READ, rate_bytes_per_s=rate))
        limits += [
            each["limit_bytes_per_s"] for each in node.ask("transfers")["transfers"] if not each["ended_s"]
        ]
    gate.set()
    node.settle()

    assert limits == [5 * MIB, 2 * MIB]


@pytest.mark.usefixtures("there")
def test_other_bytes_open_it_to_nobody(node: Inside, tell: Tell, carrier: ScriptedCarrier) -> None:
    carrier.contents[B] = CONTENT[:-1] + b"."
    tell(other())
    node.settle()
    report = tell(pinned())

    assert codes(report) == ["wrong-bytes"]
    assert "is another than" in report.results[0].words
    assert readers(node) == [61001]
    assert [(each.digest, each.has_failed, each.code) for each in report.arriving] == [
        (DIGEST, True, "wrong-bytes")
    ]


@pytest.mark.usefixtures("there")
def test_rights_of_the_site_prove_nothing(node: Inside, tell: Tell, carrier: ScriptedCarrier) -> None:
    carrier.trusting.add(B)
    tell(other())
    node.settle()

    assert codes(tell(pinned())) == ["source-failed"]
    assert readers(node) == [61001]


@pytest.mark.usefixtures("there")
def test_relays_and_mirrors_prove_nothing(node: Inside, tell: Tell, carrier: ScriptedCarrier) -> None:
    """They may have it for others, too: what the user's own address gives is read."""
    del carrier.contents[B]
    carrier.contents["http://mirror/b"] = CONTENT
    tell(fetch(uri=B, sources=("http://mirror/b", B), owner="other-1", proof=READ))
    node.settle()

    assert readers(node) == [61001]


@pytest.mark.usefixtures("there")
def test_keys_of_the_node_prove_nothing(node: Inside, tell: Tell) -> None:
    report = tell(fetch(uri="ssh://root@host/secret", sources=(), owner="other-1", proof=READ))

    assert codes(report) == ["not-allowed"]
    assert "by ssh://" in report.results[0].words


@pytest.mark.usefixtures("there")
def test_user_who_gets_it_elsewhere_is_one_more_reader(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    asked = tell(fetch(uri=B, sources=(B,), owner="other-1", readers=Readers(uids=(61002,))))
    tell(fetch(uri=B, sources=(B,), owner="other-1", readers=Readers(uids=(61002,)), proof=READ))
    node.settle()

    third = tell(fetch(uri=B, sources=(B,), owner="third-1", readers=Readers(uids=(61003,))))

    assert (codes(asked), codes(third)) == (["not-allowed"], [""])
    assert readers(node) == [61001, 61002, 61003]
    assert [uri for uri, _ in carrier.started_at].count(B) == 1, "it was read for the second"


@pytest.mark.usefixtures("there")
def test_it_is_read_once_for_all_who_have_it_there(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(B, MIB)
    for uid in (61002, 61003):
        tell(fetch(uri=B, sources=(B,), owner=f"j-{uid}", readers=Readers(uids=(uid,)), proof=READ))
    gate.set()
    node.settle()

    assert readers(node) == [61001, 61002, 61003]
    assert [uri for uri, _ in carrier.started_at].count(B) == 1


@pytest.mark.usefixtures("there")
def test_what_another_node_has_read_is_not_read_again(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    before = len(carrier.started_at)
    one = tell(fetch(uri=B, sources=(B,), owner="b-1", readers=Readers(uids=(61002,)), proof=KNOWN))
    some = readers(node)
    every = tell(fetch(uri=B, sources=(B,), owner="c-1", proof=KNOWN))

    assert (codes(one), codes(every)) == ([""], [""])
    assert (some, readers(node)) == ([61001, 61002], "all")
    assert len(carrier.started_at) == before


@pytest.mark.usefixtures("there")
def test_its_first_user_keeps_it_while_it_is_read_for_another(
    node: Inside, tell: Tell, carrier: ScriptedCarrier
) -> None:
    gate = carrier.hold(B, MIB)
    tell(other())
    own = mine()
    kept = tell(own, Pin(digest=DIGEST, owner=own.owner, until_s=own.until_s, uri=A, readers=own.readers))
    gate.set()
    node.settle()

    assert codes(kept) == ["", ""]


@pytest.mark.usefixtures("there")
def test_reading_ends_when_nobody_needs_it(node: Inside, tell: Tell, carrier: ScriptedCarrier) -> None:
    carrier.hold(B, MIB)
    tell(other())
    tell(Stop(digest=DIGEST))
    node.settle()

    assert readers(node) == [61001]


@pytest.mark.usefixtures("there")
def test_ordinary_users_have_nothing_read(node: Inside) -> None:
    user = NodeCaller(uid=61002, real_uid=61002, pid=1, is_privileged=False)

    with pytest.raises(NotAllowed, match="for root"):
        VerbTable(node.node)(user, VerbRequest("add", {"uri": B, "digest": DIGEST, "proof": True}))
