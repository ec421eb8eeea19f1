"""A service whose images come over several links: promised, carried out and named apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.core.links.network import Network
from outrider.core.model import Image
from outrider.service.answers.site import Status
from outrider.service.daemon.configuration.files import load_config
from outrider.service.daemon.configuration.model import settings_of
from outrider.service.requests import ListTransfers, ShowStatus
from outrider.service.settings import Settings
from tests.unit.service.daemon.fakes import written
from tests.unit.service.desk.sandbox import ADMIN, ALICE, BOB, RATE, Sandbox, reserve, show

CONFIG = """
version: 1
backend: {kind: embedded}
link:
  rate: 100MB
  best_effort_rate: 10MB
  reserve: 60s
  sources:
    far: {hosts: [far.example.org], rate: 50MB}
  groups:
    one: {nodes: "n[1-2]", rate: 100MB}
    two: {nodes: "n[3-4]", rate: 200MB}
"""


MIRROR = """
  sources:
    far: {hosts: [far.example.org], rate: 50MB}
    twin: {hosts: ["twin.example.org:8000"], rate: 50MB, mirror_of: far}
"""
MIRRORED = CONFIG.replace(CONFIG[CONFIG.index("  sources:") : CONFIG.index("  groups:")], MIRROR[1:])


def settings(folder: Path, text: str = CONFIG) -> Settings:
    return settings_of(load_config([written(folder / "outriderd.yaml", text)], {}))


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path, settings=settings(tmp_path))
    yield made
    made.close()


def network(folder: Path, text: str = CONFIG) -> Network:
    found = settings(folder, text).network
    assert found is not None
    return found


def image_at(uri: str, *, is_private: bool = False) -> Image:
    return Image(uri=uri, size_bytes=1, is_private=is_private)


def state(sandbox: Sandbox, name: str) -> str:
    return show(sandbox, name).reservation.state


def moving(sandbox: Sandbox) -> dict[str, tuple[str, int]]:
    """By image, how its transfer stands, and when it has begun or is expected to."""
    answer: Any = sandbox.ask(ListTransfers(most=100), ADMIN)
    return {each.image.uri.rpartition("/")[2]: (each.state, each.begin_s) for each in answer.transfers}


def test_links_of_the_file_are_those_that_transfers_cross(tmp_path: Path) -> None:
    """A tenth of each is best effort's, as of link.rate."""
    found = network(tmp_path)

    assert [link.name for link in found.route(image_at("https://far.example.org/x"), ("n3", "n1"))] == [
        "far",
        "two",
        "one",
    ]
    assert found.rate(image_at("https://far.example.org/x"), ("n3",)) == 45_000_000
    assert found.rate(image_at("https://else.example.org/x"), ("n3", "n5")) == 90_000_000
    assert found.key_of(found.source("https://far.example.org/x")) == "link.sources.far.rate"
    assert found.key_of(found.groups["n1"]) == "link.groups.one.rate"
    assert found.key_of(found.source("https://x/")) == "link.rate"


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("https://far.example.org/a/b", "https://twin.example.org:8000/a/b"),
        ("http://far.example.org/a", "http://twin.example.org:8000/a"),
        # A signature is for one host, and other schemes have tokens of their own.
        ("https://far.example.org/a?signed=x", ""),
        ("docker://far.example.org/a", ""),
    ],
)
def test_public_web_addresses_are_those_that_a_mirror_has(tmp_path: Path, uri: str, address: str) -> None:
    found = network(tmp_path, MIRRORED)

    assert [link.name for link in found.sources_for(image_at(uri))] == (
        ["far", "twin"] if address else ["far"]
    )
    assert found.address(image_at(uri), ("twin/1",)) == address or not address
    assert found.address(image_at(uri), ("far/1",)) == uri
    assert [link.name for link in found.sources_for(image_at("https://twin.example.org:8000/a"))] == ["twin"]
    private = image_at(uri, is_private=True)
    assert [link.name for link in found.sources_for(private)] == ["far"]
    assert found.address(private, ("twin/1",)) == uri


def test_links_carry_as_many_at_a_time_as_the_rate_of_one_allows(tmp_path: Path) -> None:
    found = network(tmp_path, CONFIG + "  transfer_rate: 50MB\n  node_rate: 30MB\n")

    assert (found.site.lanes, found.groups["n3"].lanes, found.source("https://far.example.org/").lanes) == (
        2,
        4,
        1,
    )
    # A tenth of what a node takes is best effort's, too.
    assert found.rate(image_at("https://x/"), ("n3",)) == 27_000_000


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("    three: {nodes: n2, rate: 1MB}\n", "link.groups: n2 is given twice: a node has one link"),
        ("    far: {nodes: n9, rate: 1MB}\n", "link.groups: has a name that is one of sources"),
        ("    three: {nodes: 'n[1-', rate: 1MB}\n", "link.groups.three.nodes: "),
        ("    three: {nodes: n9, rate: 0}\n", "link.groups.three.rate: "),
        (
            MIRROR.replace("mirror_of: far", "mirror_of: fra"),
            "link.sources: twin is a mirror of fra, which is",
        ),
        (
            MIRROR.replace("mirror_of: far", "mirror_of: twin"),
            "link.sources: twin is a mirror of twin, which",
        ),
    ],
)
def test_links_that_contradict_each_other_are_refused_with_their_place(
    tmp_path: Path, more: str, words: str
) -> None:
    with pytest.raises(Exception, match=r"outriderd\.yaml") as caught:
        settings(tmp_path, MIRRORED.replace(MIRROR, more) if "sources" in more else CONFIG + more)

    assert words in str(caught.value)


def test_images_for_two_racks_from_two_servers_come_at_the_same_time(sandbox: Sandbox) -> None:
    """On one link of 100 MB/s the second would have to wait for the first."""
    near = reserve(sandbox, name="near", image="near", nodes=2, size_bytes=40 * RATE, start="now+90seconds")
    far = reserve(
        sandbox,
        name="far",
        image="far",
        server="far.example.org",
        nodes=2,
        size_bytes=20 * RATE,
        start="now+90seconds",
    )
    sandbox.sleep(5)
    begun = moving(sandbox)
    sandbox.sleep(80)

    assert (near.result, far.result) == ("accepted", "accepted")
    assert {state for state, _ in begun.values()} == {"running"}
    assert {state(sandbox, name) for name in ("near-1", "far-2")} <= {"ready", "active"}


def test_rack_whose_link_has_no_time_is_left_out(sandbox: Sandbox) -> None:
    """All of what comes to n1 and n2 takes the link of their rack until the start."""
    first = reserve(sandbox, name="first", image="first", size_bytes=60 * RATE, start="now+90seconds")
    second = reserve(
        sandbox,
        name="second",
        image="second",
        server="far.example.org",
        size_bytes=20 * RATE,
        start="now+90seconds",
    )

    assert (first.result, second.result) == ("accepted", "accepted")
    assert first.nodes in ("n1", "n2")
    assert second.nodes in ("n3", "n4")


def test_refusal_names_an_earliest_start_that_is_accepted(sandbox: Sandbox) -> None:
    reserve(sandbox, name="first", image="first", nodes=4, size_bytes=60 * RATE, start="now+90seconds")

    refused = reserve(sandbox, name="second", image="second", size_bytes=30 * RATE, start="now+95seconds")

    assert refused.result == "refused"
    assert refused.earliest_start_s is not None
    start = f"now+{refused.earliest_start_s - sandbox.now_s}seconds"
    again = reserve(sandbox, name="second", image="second", size_bytes=30 * RATE, start=start)
    assert again.reason == ""
    assert again.result == "accepted"


def test_transfers_stand_on_the_same_links_after_a_restart(sandbox: Sandbox) -> None:
    for number in range(4):
        server = "far.example.org" if number % 2 else "near.example.org"
        made = reserve(
            sandbox,
            name=f"r{number}",
            image=f"i{number}",
            server=server,
            size_bytes=10 * RATE,
            start="now+10minutes",
        )
        assert made.result == "accepted"
    before = moving(sandbox)

    sandbox.restart()

    assert moving(sandbox) == before
    sandbox.sleep(600)
    assert {state(sandbox, f"r{number}-{number + 1}") for number in range(4)} <= {"ready", "active"}


def test_slow_link_is_named_by_its_key_and_the_others_are_not(sandbox: Sandbox) -> None:
    """The far server sends half of what it should, to both racks."""
    for pool in sandbox.pools.values():
        pool.rate_bytes_per_s = 22_500_000
    for number in range(3):
        made = reserve(
            sandbox,
            image=f"far{number}",
            server="far.example.org",
            size_bytes=20 * RATE,
            start="now+1hours",
            duration="5m",
        )
        assert made.result == "accepted"
        sandbox.sleep(2 * 3600)
    for pool in sandbox.pools.values():
        pool.rate_bytes_per_s = RATE
    made = reserve(sandbox, image="near", nodes=4, size_bytes=40 * RATE, start="now+1hours", duration="5m")
    sandbox.sleep(2 * 3600)

    status = sandbox.ask(ShowStatus(), ADMIN)
    assert isinstance(status, Status)
    assert "link.sources.far.rate" in status.link_words
    assert "link.groups" not in status.link_words
    assert status.is_link_doubted


def test_slow_nodes_are_named_by_their_key_and_a_mirror_that_was_not_asked_is_not(tmp_path: Path) -> None:
    """Nodes take half of what they should, of which a link carries two at a time."""
    text = MIRRORED + "  transfer_rate: 50MB\n  node_rate: 50MB\n"
    sandbox = Sandbox(tmp_path, settings=settings(tmp_path, text))
    for pool in sandbox.pools.values():
        pool.rate_bytes_per_s = 22_500_000
    for number in range(4):
        server = ("far", "near")[number % 2] + ".example.org"
        asked: dict[str, Any] = {"server": server, "size_bytes": 20 * RATE, "duration": "5m"}
        made = reserve(sandbox, image=f"i{number}", start="now+1hours", **asked)
        assert made.result == "accepted"
        sandbox.sleep(2 * 3600)
    status = sandbox.ask(ShowStatus(), ADMIN)
    sandbox.close()

    assert isinstance(status, Status)
    assert "set link.node_rate to 2" in status.link_words
    assert "twin" not in status.link_words
    # The link of their rack carries two such transfers.
    assert "set link.groups.one.rate to 4" in status.link_words
    assert status.is_link_doubted


def test_two_images_of_one_source_come_from_it_and_its_mirror_at_once(tmp_path: Path) -> None:
    """Each takes 40 s, and both have to be there in 60; one of them is fetched at the mirror, and at the
    image's own address should that fail."""
    sandbox = Sandbox(tmp_path, settings=settings(tmp_path, MIRRORED))
    asked: dict[str, Any] = {
        "server": "far.example.org",
        "size_bytes": 18 * RATE,
        "start": "now+60seconds",
        "nodes": 1,
    }
    answers = [reserve(sandbox, name=name, image=name, **asked).result for name in ("a", "b")]
    sandbox.sleep(5)
    begun = moving(sandbox)
    sandbox.sleep(50)
    states = [state(sandbox, name) for name in ("a-1", "b-2")]
    sandbox.close()

    assert answers == ["accepted", "accepted"]
    assert {state for state, _ in begun.values()} == {"running"}
    fetches = [pool.fetches[0].sources for pool in sandbox.pools.values() if pool.fetches]
    own = "https://far.example.org/"
    assert sorted(fetches, key=len) == [(f"{own}a",), ("https://twin.example.org:8000/b", f"{own}b")]
    assert set(states) <= {"ready", "active"}


def test_private_images_are_promised_by_their_own_server_alone(tmp_path: Path) -> None:
    """A mirror is not asked for them: with what it could give, the second would be promised and late."""
    sandbox = Sandbox(tmp_path, settings=settings(tmp_path, MIRRORED))
    asked: dict[str, Any] = {
        "server": "far.example.org",
        "size_bytes": 18 * RATE,
        "start": "now+60seconds",
        "is_private": True,
    }
    first, second = (reserve(sandbox, name=name, image=name, **asked) for name in ("a", "b"))
    sandbox.sleep(55)
    found = state(sandbox, "a-1")
    sandbox.close()

    assert (first.result, second.result) == ("accepted", "refused")
    assert found in ("ready", "active")


@pytest.mark.parametrize("is_private", [False, True])
def test_best_effort_asks_a_mirror_first_and_the_images_own_server_next(
    tmp_path: Path, is_private: bool
) -> None:
    """Two images at once: what the mirror does not give, or may not, is to be had all the same."""
    sandbox = Sandbox(
        tmp_path, settings=settings(tmp_path, MIRRORED.replace("far.example", "images.example"))
    )
    own = "https://images.example.org/"
    for caller, image, node in ((ALICE, "a", "n1"), (BOB, "b", "n3")):
        sandbox.sizes[own + image] = 1_000 * RATE
        more = "private: true" if is_private else ""
        sandbox.submit(image, caller=caller, more=more, eligible=(node,))
    sandbox.sleep(40)
    fetches = {fetch.sources for pool in sandbox.pools.values() for fetch in pool.fetches}
    sandbox.close()

    if is_private:
        # They have the one link in turn.
        assert (f"{own}a",) in fetches <= {(f"{own}a",), (f"{own}b",)}
    else:
        assert fetches == {(f"{own}a",), ("https://twin.example.org:8000/b", f"{own}b")}


def rates(sandbox: Sandbox, image: str) -> set[int | None]:
    """With what an image may come to nodes now."""
    coming = [each.fetch for pool in sandbox.pools.values() for each in pool.arriving.values()]
    return {each.rate_bytes_per_s for each in coming if str(each.sources[-1]).endswith(f"/{image}")}


def test_best_effort_takes_of_a_slow_link_what_no_deadline_was_promised(tmp_path: Path) -> None:
    """All that its server's link has, half of link.rate, while nothing with a deadline needs the same links;
    then a tenth of that, and not of link.rate, which would be missing elsewhere."""
    text = CONFIG.replace("far.example.org", "images.example.org")
    sandbox = Sandbox(tmp_path, settings=settings(tmp_path, text))
    sandbox.sizes["https://images.example.org/job"] = 1_000 * RATE
    sandbox.submit("job", eligible=("n3",))
    sandbox.sleep(40)
    alone = rates(sandbox, "job")
    asked: dict[str, Any] = {"server": "near.example.org", "size_bytes": 30 * RATE}
    elsewhere = reserve(sandbox, name="e", image="e", nodes=1, start="now+2minutes", **asked)
    sandbox.sleep(30)
    assert moving(sandbox)["e"][0] == "running"
    beside_another_rack = rates(sandbox, "job")
    sandbox.sleep(200)
    everywhere = reserve(sandbox, name="w", image="w", nodes=3, start="now+2minutes", **asked)
    sandbox.sleep(30)
    on_the_same_nodes = rates(sandbox, "job")
    sandbox.close()

    # The job's is n3, in the other rack than the first two.
    assert elsewhere.nodes in ("n1", "n2")
    assert everywhere.nodes not in ("n[1-2]", "n1", "n2")
    assert (alone, beside_another_rack, on_the_same_nodes) == ({50_000_000}, {50_000_000}, {5_000_000})
