"""Registries that want a token, or a name and a password; tokens that are over."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.fetch.registry.entry import Demand, read_demand
from cachemgr.fetch.registry.references import read_reference
from cachemgr.fetch.registry.session import RegistrySettings, Session
from cachemgr.fetch.sources.connect import WebSettings
from outrider.service.ports import ImageTrouble
from tests.daemons.registries.conftest import Ask
from tests.daemons.registries.registry_server import Registry, digest_of, running
from tests.daemons.registries.test_looking_at_registries import DATA, Front, certified, refusal
from tests.daemons.registries.token_server import TokenServer
from tests.unit.cachemgr.fetch.servers import Asked, Server, head, serving

# "secret" by bcrypt, as htpasswd -B writes it.
HTPASSWD = "ada:$2b$04$6/W/fb3unrej.Im/ShnB2uN0pN4epaCB2Sva681p.l4ZO6OCClrZm\n"


def test_registry_that_wants_a_token_is_asked_with_one_that_anybody_gets(
    tmp_path: Path, asks: Callable[..., Ask]
) -> None:
    certificate, key = certified(tmp_path)
    tokens = TokenServer(certificate, key)
    with running(tmp_path / "data") as plain:
        plain.push("team/open", "v1", DATA)
    with (
        serving(tokens.answer) as server,
        running(tmp_path / "data", tokens.section(server.port, certificate)) as registry,
    ):
        ask = asks(registry.address, f"127.0.0.1:{server.port}")
        uri = f"oras://{registry.address}/team/open:v1"

        assert ask(uri).digest == digest_of(DATA)
        assert "scope=repository%3Ateam%2Fopen%3Apull" in tokens.asked[0].target
        assert "authorization" not in tokens.asked[0].headers
        # The server of tokens is a host like any other: without TLS the site has to name it.
        assert "no token from" in refusal(asks(registry.address), uri)
        tokens.allows = False
        assert "lets nobody read team/open without a name and a password" in refusal(ask, uri)


def test_registry_that_wants_a_password_lets_nobody_else_read(
    tmp_path: Path, asks: Callable[..., Ask]
) -> None:
    with running(tmp_path / "data") as plain:
        plain.push("team/closed", "v1", DATA)
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    section = {"auth": {"htpasswd": {"realm": "test", "path": str(tmp_path / "htpasswd")}}}
    with running(tmp_path / "data", section) as registry:
        uri = f"oras://{registry.address}/team/closed:v1"
        words = refusal(asks(registry.address), uri)
        # The port for credentials, of which nothing is configured yet.
        known = RegistrySettings(
            frozenset([registry.address]),
            credentials=lambda _: ("ada", "secret"),
            allows_plain_logins=True,
        )
        found = Session(read_reference(uri), known, WebSettings(), SystemClock()).look(10)

    assert "lets nobody read team/closed without a name and a password" in words
    assert found.blob.digest == digest_of(DATA)


class Gate:
    """Wants a token, gives t1, t2, … and takes only the last; sends half of a blob for the first."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.given = 0
        self.is_over = False
        self.authorizations: list[str] = []
        self.server: Server | None = None

    def answer(self, asked: Asked, sock: socket.socket) -> None:
        assert self.server is not None
        if asked.target.startswith("/token"):
            self.given += 1
            body = json.dumps({"access_token": f"t{self.given}"}).encode()
            sock.sendall(head("200 OK", Content_Length=str(len(body))) + body)
            return
        shown = asked.headers.get("authorization", "")
        self.authorizations.append(shown)
        if shown != f"Bearer t{self.given}" or self.is_over:
            self.is_over = False
            demand = f'Bearer realm="{self.server.uri("/token")}",service="s"'
            sock.sendall(head("401 Unauthorized", WWW_Authenticate=demand, Content_Length="0"))
            return
        start = asked.start()
        size = len(self.data)
        if start:
            part = f"bytes {start}-{size - 1}/{size}"
            sock.sendall(head("206 Partial", Content_Range=part, Content_Length=str(size - start)))
            sock.sendall(self.data[start:])
        else:
            sock.sendall(head("200 OK", Content_Length=str(size)) + self.data[: size // 2])


def test_token_that_is_over_midway_is_fetched_anew() -> None:
    gate = Gate(DATA)
    with serving(gate.answer) as server:
        gate.server = server
        address = f"127.0.0.1:{server.port}"
        settings = RegistrySettings(frozenset([address]))
        reference = read_reference(f"oras://{address}/team/long:v1")
        session = Session(reference, settings, WebSettings(), SystemClock())
        got = bytearray()
        for _ in range(2):
            stream = session.open(digest_of(DATA), len(got), len(DATA), 10)
            assert stream.start_bytes == len(got)
            room = memoryview(bytearray(len(DATA)))
            while count := stream.read_into(room, 5):
                got += room[:count]
            stream.close()
            gate.is_over = True

    assert bytes(got) == DATA
    assert gate.authorizations == ["", "Bearer t1", "Bearer t1", "Bearer t2"]


def test_token_is_for_the_registry_and_not_for_where_it_sends_on(registry: Registry) -> None:
    registry.push("team/blob", "v1", DATA)
    gate, store = Gate(DATA), Front(registry)

    def answer(asked: Asked, sock: socket.socket) -> None:
        if asked.headers.get("authorization") == "Bearer t1":
            target = far.uri(asked.target)
            sock.sendall(head("307 Temporary Redirect", Location=target, Content_Length="0"))
        else:
            gate.answer(asked, sock)

    with serving(store.answer) as far, serving(answer) as near:
        gate.server = near
        address = f"127.0.0.1:{near.port}"
        plain = frozenset([address, f"127.0.0.1:{far.port}", registry.address])
        reference = read_reference(f"oras://{address}/team/blob:v1")
        session = Session(reference, RegistrySettings(plain), WebSettings(), SystemClock())

        assert session.look(10).blob.digest == digest_of(DATA)
        stream = session.open(digest_of(DATA), 4, len(DATA), 10)
        stream.close()

    assert stream.start_bytes == 4
    assert gate.given == 1
    assert store.asked
    assert not any("authorization" in asked.headers for asked in store.asked)


@pytest.mark.parametrize(
    ("header", "demand"),
    [
        ('Bearer realm="https://a/t",service="s",scope="x:y:pull,push"', Demand("https://a/t", "s")),
        ('bearer service="s", realm="https://a/t"', Demand("https://a/t", "s")),
        ('Basic realm="x", Bearer realm="https://a/t"', Demand("https://a/t")),
        ('Bearer realm="https://a/t", Basic realm="x"', Demand("https://a/t")),
        ('Basic realm="x"', Demand()),
        ("Basic", Demand()),
        ("Bearer", None),
        ('Digest realm="x"', None),
        ("", None),
        ('"' * 999, None),
    ],
)
def test_demand_is_read(header: str, demand: Demand | None) -> None:
    assert read_demand(header) == demand


@pytest.mark.parametrize("body", [b"", b"[]", b'{"token": 5}', b'{"token": ""}', b'{"token": "a\\r\\nX: y"}'])
def test_what_is_no_token_is_not_sent(asks: Callable[..., Ask], body: bytes) -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        if asked.target.startswith("/token"):
            sock.sendall(head("200 OK", Content_Length=str(len(body))) + body)
        else:
            demand = f'Bearer realm="http://{address}/token"'
            sock.sendall(head("401 Unauthorized", WWW_Authenticate=demand, Content_Length="0"))

    with serving(answer) as server:
        address = f"127.0.0.1:{server.port}"
        with pytest.raises(ImageTrouble, match="the server of tokens"):
            asks(address)(f"oras://{address}/team/any:v1")
