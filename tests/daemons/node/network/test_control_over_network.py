"""Control over the network: who has the site's key is obeyed, and nobody else is, whatever they send."""

from __future__ import annotations

import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.errors import BadRequest, CacheError, NoDaemon, NotInPool
from cachemgr.base.shares import Shares
from cachemgr.network import channel
from cachemgr.network.client import DaemonClient
from cachemgr.network.remote import RemoteClient
from tests.daemons.node.daemons import MIB, Inside, ScriptedCarrier, add_file, eventually

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
A = "http://x/a"
Start = Callable[..., Inside]


@pytest.fixture
def key_file(folder: Path) -> str:
    path = folder / "site.key"
    path.write_bytes(KEY + b"\n")
    return str(path)


@pytest.fixture
def daemon(inside: Start, key_file: str) -> Inside:
    return inside(control_listen="127.0.0.1:0", relay_key=key_file, node="n1")


def port_of(daemon: Inside) -> int:
    found = re.search(r"control serves .*port=(\d+)", daemon.log())
    assert found is not None, daemon.log()
    return int(found[1])


def remote(daemon: Inside, key: bytes = KEY, node: str = "") -> RemoteClient:
    return RemoteClient("127.0.0.1", port_of(daemon), [key], node=node)


def name_told(daemon: Inside, key: bytes = KEY, node: str = "") -> object:
    """What the daemon says its node is called."""
    with remote(daemon, key, node) as client:
        return client.ask("ping")["node"]


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=240)


def everything(connection: socket.socket) -> bytes:
    """What comes until the other side hangs up."""
    received = b""
    while True:
        try:
            data = connection.recv(65_536)
        except ConnectionResetError:
            return received
        if not data:
            return received
        received += data


def line_of(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        data = connection.recv(1)
        if not data:
            return received
        received += data
    return received


def introduced(connection: socket.socket) -> tuple[channel.Seal, channel.Seal]:
    """The way in, by hand: what the daemon signs with, and what the caller does."""
    nonce = channel.read_greeting(line_of(connection))
    transcript = channel.Transcript(nonce, secrets.token_hex(32), channel.ANYBODY)
    connection.sendall(channel.introduction(transcript, KEY))
    assert channel.check_welcome(line_of(connection), transcript, KEY) == ""
    return transcript.daemon_seals(KEY)


class Tap:
    """A machine between caller and daemon: it passes on what it may change, and keeps what it saw."""

    def __init__(self, port: int, change: Callable[[bytes, int], bytes] = lambda data, number: data) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.seen: list[bytes] = []
        self._change = change
        self._to = port
        self._ends: list[socket.socket] = []
        self._thread = threading.Thread(target=self._pass_on)
        self._thread.start()

    def _pass_on(self) -> None:
        near, _ = self._listener.accept()
        far = dial(self._to)
        near.settimeout(20)
        self._ends = [near, far]
        answers = threading.Thread(target=self._copy, args=(far, near, None))
        answers.start()
        self._copy(near, far, self.seen)
        answers.join()
        near.close()
        far.close()

    def _copy(self, source: socket.socket, target: socket.socket, seen: list[bytes] | None) -> None:
        number = 0
        try:
            while data := line_of(source):
                if seen is not None:
                    seen.append(data)
                    data = self._change(data, number)
                    number += 1
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            """One side has hung up, and the other one sees it."""

    def close(self) -> None:
        for each in self._ends:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                """It is closed already."""
        self._thread.join(60)
        self._listener.close()


@pytest.fixture
def tap(daemon: Inside) -> Iterator[Callable[..., Tap]]:
    made: list[Tap] = []

    def make(**changes: Any) -> Tap:
        made.append(Tap(port_of(daemon), **changes))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_holder_of_the_key_counts_as_the_pools_own_user(daemon: Inside, carrier: ScriptedCarrier) -> None:
    carrier.contents = {A: b"a" * MIB}
    with remote(daemon) as client:
        me = client.ask("ping")
        client.ask("add", {"uri": A, "private": True, "uid": 4242}, on_progress=lambda told: None)
        found = client.ask("find", {"name": A, "uid": 4242})
        with pytest.raises(NotInPool):
            client.ask("find", {"name": A, "uid": 4243})

    assert me["caller_uid"] == daemon.ask("ping")["caller_uid"]
    assert found["owner_uid"] == 4242


def test_long_answers_and_many_requests_pass_one_connection(daemon: Inside) -> None:
    with remote(daemon) as client:
        texts = [client.ask("metrics")["text"] for _ in range(50)]

    assert len(texts[0]) > 2000
    assert len(texts) == 50


def test_caller_with_another_key_is_refused_with_words(daemon: Inside) -> None:
    with pytest.raises(NoDaemon, match="it has another key"):
        remote(daemon, OTHER_KEY)

    assert "it has another key than this node" in daemon.log()


def test_each_of_several_keys_admits(inside: Start, folder: Path) -> None:
    (folder / "keys").write_bytes(OTHER_KEY + b"\n" + KEY + b"\n")
    daemon = inside(control_listen="127.0.0.1:0", relay_key=str(folder / "keys"))

    assert [name_told(daemon, key) for key in (KEY, OTHER_KEY)] == ["", ""]


def test_caller_who_means_another_node_is_refused(daemon: Inside) -> None:
    with pytest.raises(NoDaemon, match="it is another node"):
        remote(daemon, node="n2")

    assert name_told(daemon, node="n1") == "n1"


def test_recorded_conversation_is_of_no_use_later(daemon: Inside, tap: Callable[..., Tap]) -> None:
    between = tap()
    with RemoteClient("127.0.0.1", between.port, [KEY]) as client:
        client.ask("limits", {"rate_bytes_per_s": 1000})
    with remote(daemon) as client:
        client.ask("limits", {"rate_bytes_per_s": 2000})
    with closing(dial(port_of(daemon))) as again:
        line_of(again)
        again.sendall(between.seen[0])
        told = line_of(again)
        again.sendall(b"".join(between.seen[1:]))
        told += everything(again)

    assert told == b"refused key\n"
    assert daemon.ask("limits")["rate_bytes_per_s"] == 2000


MEDDLED: dict[str, Callable[[bytes], bytes]] = {
    "changed": lambda data: data.replace(b"1000", b"9999"),
    "doubled": lambda data: data + data,
    "left out": lambda data: b"",
    "unsigned": lambda data: data[65:],
    "cut short": lambda data: data[:40] + b"\n",
}


@pytest.mark.parametrize("kind", sorted(MEDDLED))
def test_line_that_is_meddled_with_ends_the_connection(
    daemon: Inside, tap: Callable[..., Tap], kind: str
) -> None:
    def change(data: bytes, number: int) -> bytes:
        """Of the second request; the introduction is number 0."""
        return data if number != 2 else MEDDLED[kind](data)

    between = tap(change=change)
    with RemoteClient("127.0.0.1", between.port, [KEY]) as client:
        client.ask("ping")
        client._send(b'{"v":1,"do":"limits","rate_bytes_per_s":1000}\n', ())
        with pytest.raises(NoDaemon):
            # One answer may come: to what was sent twice.
            [client.ask("ping") for _ in range(3)]

    eventually("the daemon has said so", lambda: "somebody meddles" in daemon.log(), daemon.log)
    assert daemon.ask("limits")["rate_bytes_per_s"] == (1000 if kind == "doubled" else 0)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600) + b"\n",
        b"0" * 64 + b" - " + b"0" * 64 + b"\n",
        b"0" * 64 + b" ../x " + b"0" * 64 + b"\n",
        b"a" * 5000,
        b'{"v":1,"do":"ping"}\n',
    ],
)
def test_whatever_strangers_say_they_are_shown_the_door(daemon: Inside, text: bytes) -> None:
    with closing(dial(port_of(daemon))) as stranger:
        line_of(stranger)
        with suppress(OSError):
            stranger.sendall(text)
            stranger.shutdown(socket.SHUT_WR)
        told = everything(stranger)

    assert told in (b"", b"refused key\n")
    assert name_told(daemon) == "n1"


def test_who_says_nothing_is_not_waited_for_long(inside: Start, key_file: str) -> None:
    daemon = inside(control_listen="127.0.0.1:0", relay_key=key_file, stranger_timeout="1s")
    with closing(dial(port_of(daemon))) as silent:
        line_of(silent)
        told = everything(silent)

    assert told == b""


def test_who_speaks_letter_by_letter_gets_no_more_time(inside: Start, key_file: str) -> None:
    daemon = inside(control_listen="127.0.0.1:0", relay_key=key_file, stranger_timeout="1s")
    sent = 0
    with closing(dial(port_of(daemon))) as slow:
        line_of(slow)
        slow.settimeout(0.02)
        for _ in range(1000):
            try:
                slow.sendall(b"0")
                sent += 1
                if not slow.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break

    assert 0 < sent < 300


def test_strangers_do_not_shut_others_out(inside: Start, key_file: str) -> None:
    daemon = inside(control_listen="0.0.0.0:0", relay_key=key_file, node="n1")
    port = port_of(daemon)
    # From the address of the service itself, and from ten others: the loopback network has many hosts.
    crowd = [dial(port) for _ in range(150)]
    for number in range(150):
        host = (f"127.0.0.{10 + number % 10}", 0)
        crowd.append(socket.create_connection(("127.0.0.1", port), source_address=host, timeout=240))
    told = [name_told(daemon) for _ in range(3)]
    for each in crowd:
        each.close()

    assert told == ["n1"] * 3
    assert daemon.ask("ping")["node"] == "n1"


def test_caller_for_whom_there_is_no_room_is_told_so(daemon: Inside) -> None:
    assert daemon.daemon is not None
    assert daemon.daemon.control is not None
    daemon.daemon.control.places = Shares("control connections", most=1, most_of_one=1)
    with remote(daemon), pytest.raises(NoDaemon, match="it has too many connections"):
        remote(daemon)
    eventually("the place is free", lambda: daemon.node.connections() == 0, daemon.log)

    assert name_told(daemon) == "n1"


def test_places_of_strangers_are_given_back(daemon: Inside) -> None:
    for _ in range(3 * daemon.config.strangers):
        with pytest.raises(NoDaemon):
            remote(daemon, OTHER_KEY)

    assert name_told(daemon) == "n1"


def test_half_a_request_is_not_carried_out(daemon: Inside) -> None:
    with closing(dial(port_of(daemon))) as caller:
        _, mine = introduced(caller)
        caller.sendall(mine.seal(b'{"v":1,"do":"limits","rate_bytes_per_s":5}')[:-1])

    eventually("the connection has ended", lambda: daemon.node.connections() == 0, daemon.log)
    assert daemon.ask("limits")["rate_bytes_per_s"] == 0


def test_request_that_never_ends_is_cut(daemon: Inside) -> None:
    with closing(dial(port_of(daemon))) as caller:
        introduced(caller)
        try:
            caller.sendall(b"a" * (1 << 20))
        except OSError:
            """The daemon stopped listening in the middle, as it should."""
        told = everything(caller)

    assert b'"ok":true' not in told
    assert name_told(daemon) == "n1"


def test_two_services_are_served_at_once(daemon: Inside) -> None:
    first, second = remote(daemon), remote(daemon)
    answers = [each.ask("limits", {"rate_bytes_per_s": rate}) for each, rate in ((first, 10), (second, 20))]
    seen = [each.ask("limits")["rate_bytes_per_s"] for each in (first, second)]
    first.close()
    second.close()

    assert [each["rate_bytes_per_s"] for each in answers] == [10, 20]
    assert seen == [20, 20]


def test_open_files_do_not_travel(daemon: Inside, folder: Path) -> None:
    path = folder / "image"
    path.write_bytes(b"x")
    with remote(daemon) as client, pytest.raises(BadRequest, match="cannot be handed over a network"):
        add_file(client, path)


def test_end_of_the_daemon_ends_its_conversations(inside: Start, key_file: str) -> None:
    daemon = inside(control_listen="127.0.0.1:0", relay_key=key_file)
    client = remote(daemon)
    client.ask("ping")
    daemon.stop()

    with client, pytest.raises(NoDaemon, match="hung up"):
        client.ask("ping")
    with pytest.raises(NoDaemon, match="nothing listens there"):
        remote(daemon)


def test_kept_connection_knows_when_the_daemon_has_gone(inside: Start, key_file: str) -> None:
    daemon = inside(control_listen="127.0.0.1:0", relay_key=key_file)
    client = remote(daemon)
    client.ask("ping")
    was_lively = client.is_lively
    daemon.stop()

    with client:
        assert was_lively
        assert not client.is_lively


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"relay_key": ""}, "control_listen without relay_key admits nobody"),
        ({"control_listen": "192.0.2.1:7011"}, "control cannot listen at 192.0.2.1:7011"),
    ],
)
def test_control_that_cannot_be_had_keeps_the_daemon_from_starting(
    inside: Start, key_file: str, texts: dict[str, str], said: str
) -> None:
    with pytest.raises(CacheError, match=re.escape(said)):
        inside(**{"control_listen": "127.0.0.1:0", "relay_key": key_file, **texts})


@pytest.mark.parametrize(("content", "said"), [(b"", "has 0 keys"), (b"short\n", "can be guessed")])
def test_key_that_is_none_is_refused(inside: Start, folder: Path, content: bytes, said: str) -> None:
    (folder / "bad").write_bytes(content)

    with pytest.raises(CacheError, match=said):
        inside(control_listen="127.0.0.1:0", relay_key=str(folder / "bad"))


@pytest.mark.parametrize(("mode", "is_said"), [(0o644, True), (0o640, False), (0o600, False)])
def test_key_that_everybody_can_read_is_complained_of(
    inside: Start, key_file: str, mode: int, is_said: bool
) -> None:
    Path(key_file).chmod(mode)
    daemon = inside(control_listen="127.0.0.1:0", relay_key=key_file)

    assert ("every user can read the site's key" in daemon.log()) is is_said


def test_socket_of_this_machine_is_served_beside_it(daemon: Inside) -> None:
    with DaemonClient(daemon.socket) as local, remote(daemon) as far:
        pids = {client.ask("ping")["pid"] for client in (local, far)}

    assert len(pids) == 1
