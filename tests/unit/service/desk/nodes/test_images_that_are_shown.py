"""Which images are shown to whom: everybody's to all, private ones to those who may use them."""

from __future__ import annotations

from dataclasses import replace

from outrider.service.answers.images import ImageList, ImageOnNodes
from outrider.service.ports import NodeImage, Readers
from outrider.service.requests import Caller, ListImages
from tests.unit.service.desk.sandbox import ADMIN, ALICE, BOB, RATE, Sandbox, digest_of, reserve

CAROL = Caller(uid=1003, user="carol", gids=(500,))


def listed(sandbox: Sandbox, caller: Caller) -> dict[str, ImageOnNodes]:
    answer = sandbox.ask(ListImages(), caller)
    assert isinstance(answer, ImageList)
    return {each.uri.rpartition("/")[2]: each for each in answer.images}


def put(sandbox: Sandbox, node: str, name: str, **values: object) -> None:
    """An image that is in a node's pool already, and that it has told of."""
    uri = f"https://images.example.org/{name}"
    image = NodeImage(digest=digest_of(name), size_bytes=10 * RATE, uri=uri)
    sandbox.pools[node].images[image.digest] = replace(image, **values)  # type: ignore[arg-type]
    sandbox.sleep(sandbox.settings.reconcile_every_s + 1)


def reserve_private(sandbox: Sandbox, caller: Caller, name: str = "own") -> None:
    assert reserve(sandbox, caller, image=name, is_private=True).result == "accepted"


def test_image_for_everybody_is_shown_to_everybody(sandbox: Sandbox) -> None:
    put(sandbox, "n1", "ubuntu")
    put(sandbox, "n2", "ubuntu")

    for caller in (ALICE, BOB, ADMIN):
        found = listed(sandbox, caller)["ubuntu"]
        assert (found.nodes, found.node_count) == ("n[1-2]", 2)
        assert (found.is_private, found.owners) == (False, ())


def test_private_image_in_a_pool_is_its_owners_and_its_readers(sandbox: Sandbox) -> None:
    readers = Readers(uids=(BOB.uid,), gids=(500,))
    put(sandbox, "n1", "secret", is_public=False, owner_uid=ALICE.uid, readers=readers)
    put(sandbox, "n2", "unknown", is_public=False)

    assert set(listed(sandbox, ALICE)) == {"secret"}
    assert listed(sandbox, ALICE)["secret"].owners == ("alice",)
    assert set(listed(sandbox, BOB)) == {"secret"}
    assert listed(sandbox, BOB)["secret"].owners == ()
    assert set(listed(sandbox, CAROL)) == {"secret"}
    assert listed(sandbox, Caller(uid=1004, user="dave")) == {}
    seen = listed(sandbox, ADMIN)
    assert {name: each.is_private for name, each in seen.items()} == {"secret": True, "unknown": True}
    assert seen["secret"].owners == (str(ALICE.uid),), "nobody has told the service who that is"


def test_image_that_the_service_has_brought_is_its_readers(sandbox: Sandbox) -> None:
    put(sandbox, "n1", "brought", is_public=False, readers=Readers(uids=(ALICE.uid,)))
    reserve(sandbox)

    assert listed(sandbox, ADMIN)["brought"].owners == ("alice",)
    assert "brought" in listed(sandbox, ALICE)
    assert "brought" not in listed(sandbox, BOB)


def test_reservations_private_image_is_shown_to_its_user_and_to_administrators(sandbox: Sandbox) -> None:
    reserve_private(sandbox, ALICE)
    sandbox.sleep(595)

    for caller in (ALICE, ADMIN):
        found = listed(sandbox, caller)["own"]
        assert (found.is_private, found.owners, found.reservations) == (True, ("alice",), 1)
        assert found.nodes
    assert "own" not in listed(sandbox, BOB)


def test_image_of_a_job_is_shown_as_soon_as_it_is_there(sandbox: Sandbox) -> None:
    sandbox.sizes["https://images.example.org/night"] = 10 * RATE
    sandbox.submit("night", more="private: true\n")
    sandbox.sleep(60)

    for caller in (ALICE, ADMIN):
        found = listed(sandbox, caller)["night"]
        assert (found.is_private, found.owners, found.jobs, found.node_count) == (True, ("alice",), 1, 1)
    assert listed(sandbox, BOB) == {}


def test_nobody_makes_anothers_image_look_public(sandbox: Sandbox) -> None:
    put(sandbox, "n1", "secret", is_public=False, owner_uid=ALICE.uid)
    for pool in sandbox.pools.values():
        pool.broken, pool.broken_code = "it is its owner's", "not-allowed"
    reserve(sandbox, BOB, image="secret", start="now+5minutes", nodes=4)

    assert listed(sandbox, ALICE)["secret"].is_private
    assert listed(sandbox, ADMIN)["secret"].is_private
    own = listed(sandbox, BOB)["secret"]
    assert (own.nodes, own.owners) == ("", ()), "whether and where another's is there is not shown"


def test_copy_for_everybody_is_shown_beside_a_private_one(sandbox: Sandbox) -> None:
    put(sandbox, "n1", "both", is_public=False, owner_uid=ALICE.uid)
    put(sandbox, "n2", "both")

    assert listed(sandbox, BOB)["both"].nodes == "n2"
    assert listed(sandbox, ALICE)["both"].nodes == "n[1-2]"
    assert not listed(sandbox, ADMIN)["both"].is_private
