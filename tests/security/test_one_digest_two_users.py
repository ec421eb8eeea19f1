"""The same bytes for two users on one node: nobody is told ready who is then not let in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemons.node.daemons import needs_root
from tests.security.siege import ALICE, BOB, Siege, Web, image_of, siege, workspace

CONTENT = b"the same bytes " * 5_000


@pytest.fixture(scope="module")
def node() -> Iterator[Siege]:
    """A service with one node."""
    needs_root()
    with siege(nodes="n1") as made:
        yield made


def why_of(service: Siege, name: str) -> str:
    return str(service.ask(0, "GET", f"/v1/reservations/{name}")[1]["reservation"]["why"])


def test_public_image_that_lies_there_for_another_alone_is_not_told_ready(node: Siege) -> None:
    """Bob knows its digest and its size, and names them at a server of his own."""
    own = node.folder / "own.img"
    digest = image_of(ALICE, own, CONTENT, 0o600)
    alices = node.accepted(ALICE, workspace(f"file://{own}", name="a", private=True, start="now+1h"))
    node.await_state(alices["name"], "ready")
    with Web(len(CONTENT), get=200, body=b"?" * len(CONTENT)) as web:
        bobs = node.accepted(BOB, workspace(web.uri(), name="b", digest=digest, start="now+3h"))
        node.await_state(bobs["name"], "endangered")

    assert "is another than" in why_of(node, bobs["name"])
    assert node.state_of(alices["name"]) == "ready"
    assert node.node(0, "n1", "show", name=digest)["gives"]["is_public"] is False


def test_public_image_that_lies_there_for_another_is_for_whoever_has_it_elsewhere(node: Siege) -> None:
    content = b"what both have " * 5_000
    path, own = node.folder / "shared.img", node.folder / "hers.img"
    digest = image_of(ALICE, path, content, 0o644)
    image_of(ALICE, own, content, 0o600)
    alices = node.accepted(ALICE, workspace(f"file://{own}", name="hers", private=True, start="now+17h"))
    node.await_state(alices["name"], "ready")
    bobs = node.accepted(BOB, workspace(f"file://{path}", name="his", start="now+19h"))

    node.await_state(bobs["name"], "ready")
    assert node.node(0, "n1", "show", name=digest)["gives"]["is_public"] is True


@pytest.mark.parametrize(("source", "first_h", "second_h"), [("file", 9, 11), ("web", 13, 15)])
def test_nobody_keeps_a_public_image_from_others_by_calling_it_private(
    node: Siege, source: str, first_h: int, second_h: int
) -> None:
    content = f"everybody's {source} ".encode() * 5_000
    path = node.folder / f"{source}.img"
    digest = image_of(ALICE, path, content, 0o644)
    with Web(len(content), get=200, body=content) as web:
        uri = web.uri() if source == "web" else f"file://{path}"
        named = digest if source == "web" else ""
        first = workspace(uri, name=f"a{source}", private=True, digest=named, start=f"now+{first_h}h")
        alices = node.accepted(ALICE, first)
        node.await_state(alices["name"], "ready")
        second = workspace(uri, name=f"b{source}", digest=named, start=f"now+{second_h}h")
        bobs = node.accepted(BOB, second)
        node.await_state(bobs["name"], "ready")

    assert node.node(0, "n1", "show", name=digest)["gives"]["is_public"] is True


def test_private_image_of_one_address_is_for_both_who_named_it(node: Siege) -> None:
    with Web(len(CONTENT), get=200, body=CONTENT[::-1]) as web:
        digest = image_of(ALICE, node.folder / "never-named.img", CONTENT[::-1])
        text = workspace(web.uri(), name="w", private=True, digest=digest, start="now+5h")
        alices = node.accepted(ALICE, text)
        node.await_state(alices["name"], "ready")
        bobs = node.accepted(BOB, text.replace("now+5h", "now+7h"))
        node.await_state(bobs["name"], "ready")

    readers = node.node(0, "n1", "show", name=digest)["gives"]["readers"]["uids"]
    assert {ALICE, BOB} <= set(readers)
