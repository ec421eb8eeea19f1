"""Nodes over the network: the same orders and reports, by real daemons that listen on TCP."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.network.client import DaemonClient
from cachemgr.network.job_tickets import JobTicket, make_job_ticket
from outrider.service.nodes.remote import Addresses, RemoteNodes
from outrider.service.ports import (
    Fetch,
    NodeReport,
    NodeTrouble,
    Order,
    Pin,
    Relay,
    Release,
    TellNode,
    Unpin,
)
from tests.daemons.node.daemons import (
    MIB,
    Inside,
    Outside,
    ScriptedCarrier,
    as_user,
    eventually,
    make_pool,
    needs_root,
    sha256,
)

CLOCK = SystemClock()
KEY = b"k" * 32
A = "http://images/a"
CONTENT = b"0123456789abcdef" * (2 * MIB // 16)
DIGEST = f"sha256:{sha256(CONTENT)}"
USER = 4242
Tell = Callable[..., NodeReport]
Daemons = Callable[..., Inside]


class Places:
    """Each node's daemon at a port of its own."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}

    def control_of(self, node: str) -> tuple[str, int]:
        return "127.0.0.1", self.ports[node]

    def relay_of(self, node: str) -> str | None:
        return f"127.0.0.1:{self.ports[node]}"


@pytest.fixture
def places() -> Places:
    return Places()


@pytest.fixture
def start(inside: Daemons, carrier: ScriptedCarrier, folder: Path, places: Places) -> Callable[..., Inside]:
    (folder / "key").write_bytes(KEY)
    carrier.contents = {A: CONTENT}

    def begin(name: str = "n1", port: int = 0) -> Inside:
        found = inside(name, control_listen=f"127.0.0.1:{port}", relay_key=str(folder / "key"), node=name)
        told = re.search(r"control serves .*port=(\d+)", found.log())
        assert told is not None
        places.ports[name] = int(told[1])
        return found

    return begin


@pytest.fixture
def nodes(places: Places) -> Iterator[RemoteNodes]:
    found = RemoteNodes(places, [KEY], clock=CLOCK)
    yield found
    found.close()


@pytest.fixture
def tell(nodes: RemoteNodes) -> Tell:
    def ask(*orders: Order, node: str = "n1", wants_images: bool = True) -> NodeReport:
        return nodes.tell(TellNode(node=node, orders=orders, wants_images=wants_images))

    return ask


def is_alone(daemon: Inside) -> bool:
    return bool(daemon.node.connections() == 0)


def fetch() -> Fetch:
    return Fetch(
        digest=DIGEST,
        uri=A,
        size_bytes=len(CONTENT),
        sources=(A,),
        owner="render-17",
        until_s=CLOCK.now_s() + 3600,
    )


def test_image_is_fetched_pinned_and_given_up(start: Daemons, tell: Tell) -> None:
    node = start()
    ordered = tell(fetch())
    eventually("the image is there", lambda: tell().images, node.log)
    there = tell().images
    given_up = tell(Unpin(digest=DIGEST, owner="render-17"))

    assert [result.code for result in ordered.results] == [""]
    assert there is not None
    assert [image.owners for image in there] == [("render-17",)]
    assert given_up.images is not None
    assert [image.owners for image in given_up.images] == [()]


def test_one_connection_serves_many_calls(start: Daemons, nodes: RemoteNodes, tell: Tell) -> None:
    node = start()
    for _ in range(20):
        tell()

    assert nodes.kept == 1
    assert node.node.connections() == 1


def test_few_connections_are_kept_for_many_nodes(start: Daemons, places: Places) -> None:
    begun = [start(name) for name in ("n1", "n2", "n3")]
    nodes = RemoteNodes(places, [KEY], clock=CLOCK, most_kept=2)
    reports = [nodes.tell(TellNode(node=name)) for name in ("n1", "n2", "n3", "n1")]
    kept = nodes.kept
    nodes.close()

    assert [report.node for report in reports] == ["n1", "n2", "n3", "n1"]
    assert kept == 2
    for each in begun:
        eventually("nobody is connected", partial(is_alone, each), each.log)


def test_daemon_that_began_anew_is_found_again(start: Daemons, places: Places, tell: Tell) -> None:
    first = start()
    tell()
    first.stop()
    start(port=places.ports["n1"])

    assert tell().node == "n1"


def test_killed_daemon_is_found_again(folder: Path, places: Places, tell: Tell) -> None:
    (folder / "key").write_bytes(KEY)
    make_pool(folder / "pool")
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        places.ports["n1"] = probe.getsockname()[1]
    address, key = f"127.0.0.1:{places.ports['n1']}", str(folder / "key")
    first = Outside(folder, control_listen=address, relay_key=key)
    try:
        tell()
        first.process.kill()
        first.process.wait()
        with pytest.raises(NodeTrouble, match="nothing listens there") as silent:
            tell()
    finally:
        first.process.kill()
    second = Outside(folder, control_listen=address, relay_key=key)
    try:
        found = tell()
    finally:
        second.end()

    assert silent.value.is_away
    assert found.node == "n1"


def test_node_with_another_key_is_away_with_words(start: Daemons, places: Places) -> None:
    start()
    nodes = RemoteNodes(places, [b"o" * 32], clock=CLOCK)
    with pytest.raises(NodeTrouble, match=r"node n1 cannot be reached: .* it has another key") as trouble:
        nodes.tell(TellNode(node="n1"))

    assert trouble.value.is_away


def test_node_that_is_another_is_not_believed(start: Daemons, places: Places, tell: Tell) -> None:
    start()
    places.ports["n2"] = places.ports["n1"]

    with pytest.raises(NodeTrouble, match="it is another node"):
        tell(node="n2")


def test_daemon_that_hangs_is_away(
    places: Places, nodes: RemoteNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outrider.service.nodes.remote.CONNECT_S", 0.3)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        places.ports["n1"] = silent.getsockname()[1]
        with pytest.raises(NodeTrouble, match="did not greet"):
            nodes.tell(TellNode(node="n1"))

    assert nodes.kept == 0


@pytest.mark.parametrize("name", ["", "../n1", "n 1", "n1|n2", "-"])
def test_name_that_is_none_is_not_looked_up(nodes: RemoteNodes, name: str) -> None:
    with pytest.raises(NodeTrouble, match="is not the name of a node") as trouble:
        nodes.tell(TellNode(node=name))

    assert not trouble.value.is_away


def test_two_services_speak_to_one_node_at_once(start: Daemons, places: Places, nodes: RemoteNodes) -> None:
    node = start()
    other = RemoteNodes(places, [KEY], clock=CLOCK)
    failed: list[BaseException] = []

    def ask(which: RemoteNodes) -> None:
        try:
            for _ in range(20):
                which.tell(TellNode(node="n1", orders=(fetch(),), wants_images=True))
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(which,)) for which in (nodes, other, nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    node.settle()

    assert failed == []
    assert [image["digest"] for image in node.ask("ls")["images"]] == [DIGEST]


def test_service_is_the_pools_user_wherever_it_runs(folder: Path, places: Places) -> None:
    """The service's own number on its machine says nothing about the pool's user on the node."""
    needs_root()
    (folder / "key").write_bytes(KEY)
    make_pool(folder / "pool")
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        places.ports["n1"] = probe.getsockname()[1]
    node = Outside(folder, control_listen=f"127.0.0.1:{places.ports['n1']}", relay_key=str(folder / "key"))
    source = folder / "image"
    source.write_bytes(CONTENT)
    source.chmod(0o644)
    with DaemonClient(node.socket) as client:
        client.ask("add", {"uri": str(source), "digest": DIGEST}, on_progress=lambda told: None)
    pin = Pin(digest=DIGEST, owner="render-17", until_s=CLOCK.now_s() + 600)

    def ask() -> list[list[str]]:
        nodes = RemoteNodes(places, [KEY], clock=CLOCK)
        report = nodes.tell(TellNode(node="n1", orders=(pin,), wants_images=True))
        return [list(image.owners) for image in report.images or ()]

    try:
        seen = as_user(USER, ask)
    finally:
        node.end()

    assert os.geteuid() != USER
    assert seen == {"gives": [["render-17"]]}


def test_jobs_with_instances_are_reported_and_released(start: Daemons, tell: Tell) -> None:
    node = start()
    tell(fetch())
    node.settle()
    for job in ("17", "18"):
        ticket = JobTicket(job, USER, DIGEST.removeprefix("sha256:"), CLOCK.now_s() + 60)
        node.ask("claim", job=job, uid=USER, ticket=make_job_ticket(KEY, ticket))
    node.ask("instance", name=DIGEST, owner="by hand", until_s=CLOCK.now_s() + 60)
    before = tell()
    unasked = tell(wants_images=False)
    released = tell(Release(owner="job-17"), Release(owner="job-17"), Release(owner="job-99"))

    assert before.jobs == ("job-17", "job-18")
    assert unasked.jobs == ()
    assert [result.code for result in released.results] == ["", "", ""]
    assert released.jobs == ("job-18",)


def test_nodes_pass_images_on_at_their_names() -> None:
    places = Addresses(hosts={"n2": "10.0.0.2", "n3": "fd00::3"}, control_port=1, relay_port=2)

    assert [places.control_of(node) for node in ("n1", "n2")] == [("n1", 1), ("10.0.0.2", 1)]
    assert [places.relay_of(node) for node in ("n1", "n2", "n3")] == ["n1:2", "10.0.0.2:2", "[fd00::3]:2"]
    assert Addresses(relay_port=None).relay_of("n1") is None


def test_relay_of_another_node_is_named_as_a_source(start: Daemons, tell: Tell, places: Places) -> None:
    node = start()
    places.ports["n2"] = 9
    chained = Fetch(
        digest=DIGEST,
        uri="http://images/none",
        size_bytes=len(CONTENT),
        sources=(Relay(node="n2", digest=DIGEST), A),
        owner="render-17",
        until_s=CLOCK.now_s() + 3600,
    )
    tell(chained)
    node.settle()
    images = tell().images

    assert images is not None
    assert [image.digest for image in images] == [DIGEST]
