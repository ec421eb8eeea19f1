"""The relay on the loopback: who gets what, images that are still arriving, limits, and its end."""

from __future__ import annotations

import hashlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import NotInPool, SourceFailed
from cachemgr.base.rate import RateLimit
from cachemgr.fetch.engine import transfer
from cachemgr.fetch.sources.sources import SourceSettings, resolve, source_of
from cachemgr.relay.connections import RelaySettings
from cachemgr.relay.server import RelayServer
from cachemgr.relay.tickets import make_ticket
from testbed.depot import Depot, DepotFile, DepotHeld

CLOCK = SystemClock()
KEY = b"a key of thirty-two bytes or so."
DATA = Random(13).randbytes(2_000_000)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
ABSENT = "sha256:" + "00" * 32
PATIENCE_S = 60


class Node:
    """A depot with a relay, and a client of it."""

    def __init__(self, folder: Path, settings: RelaySettings, *, allows_sendfile: bool = True) -> None:
        self.folder = folder
        self.log: list[str] = []
        self.limit = RateLimit(None, CLOCK)
        self.depot = Depot(allows_sendfile=allows_sendfile)
        self.relay = RelayServer(self.depot, settings, CLOCK, self.limit, self.log.append)

    def add(self, valid_bytes: int = len(DATA), *, is_public: bool = False) -> DepotFile:
        """The image, of which only so much is there yet."""
        file = DepotFile(self.folder / f"image{len(self.depot.files)}", len(DATA))
        file.is_public = is_public
        file.write(DATA[:valid_bytes])
        self.depot.files[DIGEST] = file
        return file

    def ask(
        self, method: str = "GET", digest: str = DIGEST, **headers: str
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.relay.port, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"/v1/images/{digest}", headers=named)
        response = connection.getresponse()
        try:
            return response.status, response.read(), response.headers
        finally:
            connection.close()

    def uri(self) -> str:
        return f"relay://127.0.0.1:{self.relay.port}/{DIGEST}"

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.relay.port), timeout=PATIENCE_S)

    def close(self) -> None:
        self.relay.close()
        self.depot.close()


Start = Callable[..., Node]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    nodes: list[Node] = []

    def begin(*, allows_sendfile: bool = True, **settings: object) -> Node:
        folder = tmp_path / str(len(nodes))
        folder.mkdir()
        chosen = RelaySettings(**{"host": "127.0.0.1", "keys": (KEY,), **settings})  # type: ignore[arg-type]
        nodes.append(Node(folder, chosen, allows_sendfile=allows_sendfile))
        return nodes[-1]

    yield begin
    for node in nodes:
        node.close()


def ticket(digest: str = DIGEST, lasts_s: int = 60) -> str:
    return f"Outrider {make_ticket(KEY, digest, CLOCK.now_s() + lasts_s)}"


def until(is_done: Callable[[], bool], what: str, evidence: Callable[[], object] = str) -> None:
    for _ in range(PATIENCE_S * 100):
        if is_done():
            return
        time.sleep(0.01)
    pytest.fail(f"not within {PATIENCE_S} s: {what} {evidence()}")


@pytest.mark.parametrize("allows_sendfile", [True, False])
def test_image_is_sent_whole_and_in_parts(start: Start, allows_sendfile: bool) -> None:
    node = start(allows_sendfile=allows_sendfile)
    node.add()

    whole = node.ask(Authorization=ticket())
    part = node.ask(Authorization=ticket(), Range="bytes=1000000-1000999")

    assert (whole[0], whole[1]) == (200, DATA)
    assert (part[0], part[1]) == (206, DATA[1_000_000:1_001_000])
    assert part[2]["Content-Range"] == "bytes 1000000-1000999/2000000"


def test_head_tells_how_much_is_there(start: Start) -> None:
    node = start()
    node.add(valid_bytes=123_456)

    status, body, headers = node.ask("HEAD", Authorization=ticket())

    assert (status, body) == (200, b"")
    assert (headers["Content-Length"], headers["X-Outrider-Have"]) == ("2000000", "123456")


def test_image_that_is_arriving_is_sent_as_it_arrives(start: Start) -> None:
    node = start()
    file = node.add(valid_bytes=300_000)
    with node.dial() as sock:
        request = (
            f"GET /v1/images/{DIGEST} HTTP/1.1\r\nAuthorization: {ticket()}\r\nConnection: close\r\n\r\n"
        )
        sock.sendall(request.encode())
        received = b""
        while len(received.partition(b"\r\n\r\n")[2]) < 300_000:
            received += sock.recv(65_536)
        sock.settimeout(0.05)
        with pytest.raises(OSError, match="timed out"):
            sock.recv(1)
        file.write(DATA[300_000:])
        sock.settimeout(PATIENCE_S)
        while more := sock.recv(65_536):
            received += more

    assert received.partition(b"\r\n\r\n")[2] == DATA


def test_ingest_that_is_given_up_ends_the_answer_early(start: Start) -> None:
    node = start()
    file = node.add(valid_bytes=300_000)
    threading.Timer(0.1, file.give_up).start()

    with pytest.raises(http.client.IncompleteRead) as caught:
        node.ask(Authorization=ticket())

    assert caught.value.partial == DATA[:300_000]
    until(lambda: any("stopped arriving" in line for line in node.log), "the reason is logged")


def test_ingest_that_starves_is_not_waited_for_forever(start: Start) -> None:
    node = start(starved_s=1)
    node.add(valid_bytes=300_000)

    with pytest.raises(http.client.IncompleteRead):
        node.ask(Authorization=ticket())

    until(lambda: any("nothing arrived for 1 s" in line for line in node.log), "the reason is logged")


def test_client_that_leaves_is_not_waited_for(start: Start) -> None:
    node = start()
    node.add(valid_bytes=300_000)
    with node.dial() as sock:
        sock.sendall(f"GET /v1/images/{DIGEST} HTTP/1.1\r\nAuthorization: {ticket()}\r\n\r\n".encode())
        assert sock.recv(12) == b"HTTP/1.1 200"

    until(lambda: node.relay.connections == 0, "the connection is gone")


@pytest.mark.parametrize(
    ("authorization", "reason"),
    [
        ("", b"a ticket is missing\n"),
        (ticket(ABSENT), b"the ticket is not for this image\n"),
        (ticket(lasts_s=0), b"the ticket has expired\n"),
        ("Outrider nonsense", b"a ticket is missing\n"),
    ],
    ids=["none", "of another image", "expired", "nonsense"],
)
def test_without_a_good_ticket_nothing_is_sent(start: Start, authorization: str, reason: bytes) -> None:
    node = start(serves_public=True)
    node.add()

    status, body, headers = node.ask(Authorization=authorization) if authorization else node.ask()

    assert (status, body, headers["WWW-Authenticate"]) == (401, reason, "Outrider")


def test_without_a_ticket_nobody_learns_which_images_are_here(start: Start) -> None:
    node = start(serves_public=True)
    node.add()

    assert node.ask()[:2] == node.ask(digest=ABSENT)[:2]


@pytest.mark.parametrize(
    ("serves_public", "is_public", "status"), [(True, True, 200), (True, False, 401), (False, True, 401)]
)
def test_public_image_needs_no_ticket_where_the_site_allows_that(
    start: Start, serves_public: bool, is_public: bool, status: int
) -> None:
    node = start(serves_public=serves_public)
    node.add(is_public=is_public)

    assert node.ask()[0] == status


def test_bad_ticket_is_refused_even_where_none_is_needed(start: Start) -> None:
    node = start(serves_public=True)
    node.add(is_public=True)

    assert node.ask(Authorization=ticket(lasts_s=0))[:2] == (401, b"the ticket has expired\n")


def test_image_that_is_not_here_is_missing_for_whoever_has_a_ticket(start: Start) -> None:
    node = start()

    assert node.ask(digest=ABSENT, Authorization=ticket(ABSENT))[0] == 404


def test_several_requests_go_over_one_connection(start: Start) -> None:
    node = start()
    node.add()
    connection = http.client.HTTPConnection("127.0.0.1", node.relay.port, timeout=PATIENCE_S)
    statuses = []
    for headers in ({"Range": "bytes=5-9"}, {"Range": "bytes=9999999-"}, {}):
        connection.request("GET", f"/v1/images/{DIGEST}", headers={"Authorization": ticket(), **headers})
        response = connection.getresponse()
        statuses.append((response.status, len(response.read())))
    connection.close()

    assert statuses == [(206, 5), (416, 28), (200, len(DATA))]


def test_head_that_is_too_long_is_refused(start: Start) -> None:
    node = start()
    with node.dial() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nX: " + b"y" * 9000)

        assert sock.recv(12) == b"HTTP/1.1 431"


def test_client_that_dawdles_over_its_head_is_sent_away(start: Start) -> None:
    node = start(head_s=1)
    with node.dial() as sock:
        sock.sendall(b"GET / HT")

        assert sock.recv(12) == b"HTTP/1.1 408"


def test_silent_client_is_forgotten(start: Start) -> None:
    node = start(head_s=1)
    with node.dial() as sock:
        assert sock.recv(1) == b""

    until(lambda: node.relay.connections == 0, "the connection is gone")
    assert node.relay.connections == 0


def test_client_that_takes_nothing_is_sent_away(start: Start) -> None:
    node = start(idle_s=1)
    data = bytes(50_000_000)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    file = DepotFile(node.folder / "large", len(data))
    file.write(data)
    node.depot.files[digest] = file
    with node.dial() as sock:
        sock.sendall(f"GET /v1/images/{digest} HTTP/1.1\r\nAuthorization: {ticket(digest)}\r\n\r\n".encode())

        until(lambda: any("took nothing for 1 s" in line for line in node.log), "the reason is logged")
    until(lambda: node.relay.connections == 0, "the connection is gone")

    assert node.relay.connections == 0


def test_more_connections_with_a_ticket_than_allowed_are_turned_away_at_once(start: Start) -> None:
    node = start(most_connections_a_host=2)
    node.add(valid_bytes=300_000)
    with node.dial() as one, node.dial() as other:
        for sock in (one, other):
            sock.sendall(f"GET /v1/images/{DIGEST} HTTP/1.1\r\nAuthorization: {ticket()}\r\n\r\n".encode())
            assert sock.recv(12) == b"HTTP/1.1 200"
        assert node.ask(Authorization=ticket())[0] == 503

    until(lambda: node.relay.connections == 0, "the connections are gone")
    assert node.ask("HEAD", Authorization=ticket())[0] == 200


def test_rate_of_all_streams_together_is_limited_and_can_be_changed_under_way(start: Start) -> None:
    node = start()
    node.add()
    node.limit.set(1_000_000)
    results: list[bytes] = []
    readers = [
        threading.Thread(target=lambda: results.append(node.ask(Authorization=ticket())[1])) for _ in range(2)
    ]
    begin_s = CLOCK.monotonic_s()
    for reader in readers:
        reader.start()
    # Four megabytes: a quarter of a second's worth at the first rate, the rest without one.
    threading.Timer(0.5, node.limit.set, [None]).start()
    for reader in readers:
        reader.join(PATIENCE_S)

    assert 0.45 < CLOCK.monotonic_s() - begin_s < 2
    assert results == [DATA, DATA]


def test_each_request_is_one_line_in_the_log(start: Start) -> None:
    node = start()
    node.add()
    node.ask(Authorization=ticket(), Range="bytes=0-999")

    until(lambda: bool(node.log), "there is a line")
    assert node.log[0].startswith(
        f"relay answered node=127.0.0.1 method=GET target='/v1/images/{DIGEST}' status=206 sent_bytes=1000 "
    )
    assert "\n" not in node.log[0]


def test_shutdown_breaks_streams_and_leaves_no_thread(start: Start) -> None:
    node = start()
    node.add(valid_bytes=300_000)
    before = threading.active_count()
    with node.dial() as sock:
        sock.sendall(f"GET /v1/images/{DIGEST} HTTP/1.1\r\nAuthorization: {ticket()}\r\n\r\n".encode())
        assert sock.recv(12) == b"HTTP/1.1 200"
        node.relay.close()

    assert threading.active_count() == before - 1
    with pytest.raises(ConnectionRefusedError):
        node.dial()


def chained(nodes: list[Node], *, kill: Node | None = None) -> list[DepotFile]:
    """Let every node but the first fetch from those before it, all at the same time."""
    files = [DepotFile(node.folder / "copy", len(DATA)) for node in nodes[1:]]
    for node, file in zip(nodes[1:], files, strict=True):
        node.depot.files[DIGEST] = file

    def fetch(place: int) -> None:
        admits = ticket().partition(" ")[2]
        above = [
            source_of(node.uri(), SourceSettings(), CLOCK, ticket=admits) for node in reversed(nodes[:place])
        ]
        transfer(files[place - 1], above, clock=CLOCK, random=Random(place))

    threads = [threading.Thread(target=fetch, args=(place,)) for place in range(1, len(nodes))]
    for thread in threads:
        thread.start()
    if kill is not None:
        until(lambda: kill.depot.files[DIGEST].offset > 0, "the victim has begun")
        kill.relay.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    return files


def test_image_goes_down_a_chain_of_nodes(start: Start) -> None:
    nodes = [start() for _ in range(5)]
    nodes[0].add()

    files = chained(nodes)

    assert [file.path.read_bytes() == DATA for file in files] == [True] * 4
    # The receiver may be done before the sender has written its line.
    for node in nodes:
        node.relay.close()
    # Each sent it once: nobody went past the node before.
    sent = [sum("method=GET" in line and "status=20" in line for line in node.log) for node in nodes]
    assert sent == [1, 1, 1, 1, 0]


def test_chain_survives_a_relay_that_dies_in_the_middle(start: Start) -> None:
    nodes = [start() for _ in range(4)]
    nodes[0].add()
    nodes[0].limit.set(4_000_000)

    files = chained(nodes, kill=nodes[2])

    assert [file.path.read_bytes() == DATA for file in files] == [True] * 3


def test_relay_is_looked_up_and_refuses_in_words(start: Start) -> None:
    node = start()
    node.add()

    assert resolve(node.uri(), SourceSettings(), CLOCK, ticket=ticket().partition(" ")[2]).size_bytes == len(
        DATA
    )
    with pytest.raises(SourceFailed, match="the node says 401 Unauthorized"):
        resolve(node.uri(), SourceSettings(), CLOCK)


def test_image_that_goes_before_its_head_is_sent_is_refused_in_words(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(held: DepotHeld) -> int:
        raise NotInPool("image 0123456789ab is not arriving any more")

    node = start()
    node.add()
    with monkeypatch.context() as patched:
        patched.setattr(DepotHeld, "valid_bytes", gone)
        refused = node.ask(Authorization=ticket())

    assert (refused[0], refused[1]) == (404, b"image 0123456789ab is not arriving any more\n")
    assert node.ask(Authorization=ticket())[0] == 200
