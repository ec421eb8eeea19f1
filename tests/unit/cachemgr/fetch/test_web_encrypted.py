"""Web servers over TLS on the loopback: authorities, tunnels of a proxy, redirects."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from cachemgr.base.errors import SourceFailed
from cachemgr.fetch.sources.connect import WebSettings
from cachemgr.fetch.sources.sources import SourceSettings, resolve
from tests.unit.cachemgr.fetch.servers import Answer, Asked, Server, file_server, head, serving
from tests.unit.cachemgr.fetch.test_web import CLOCK, DATA, fetch, sink_with


class Encrypted:
    """A server's answers over TLS, with a certificate made for the test."""

    def __init__(self, folder: Path) -> None:
        self.certificate, key = folder / "cert.pem", folder / "key.pem"
        command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test"
        command += " -addext subjectAltName=IP:127.0.0.1"
        subprocess.run(
            [*command.split(), "-keyout", str(key), "-out", str(self.certificate)],
            check=True, capture_output=True, timeout=240,
        )  # fmt: skip
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate, key)

    def server(self, answer: Answer) -> Server:
        encrypted = self

        class TlsServer(Server):
            def _serve(self, sock: socket.socket) -> None:
                try:
                    wrapped = encrypted.context.wrap_socket(sock, server_side=True)
                except OSError:
                    sock.close()
                    return
                super()._serve(wrapped)

        return TlsServer(answer)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Encrypted:
    return Encrypted(tmp_path_factory.mktemp("tls"))


def test_file_arrives_over_tls_from_a_server_whose_authority_is_configured(encrypted: Encrypted) -> None:
    server = encrypted.server(file_server(DATA))
    sink = sink_with(10)
    try:
        uri = server.uri().replace("http:", "https:")
        fetch(sink, uri, settings=SourceSettings(web=WebSettings(ca_file=str(encrypted.certificate))))
    finally:
        server.close()

    assert sink.data == DATA


def test_server_whose_certificate_nobody_knows_is_refused(encrypted: Encrypted) -> None:
    server = encrypted.server(file_server(DATA))
    try:
        with pytest.raises(SourceFailed, match=r"certificate of 127\.0\.0\.1 is not trusted"):
            resolve(server.uri().replace("http:", "https:"), SourceSettings(), CLOCK)
    finally:
        server.close()

    assert server.asked == []


def test_file_arrives_over_tls_through_a_tunnel_of_the_proxy(encrypted: Encrypted) -> None:
    server = encrypted.server(file_server(DATA))

    def tunnel(asked: Asked, sock: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as far:
            sock.sendall(head("200 Connection established"))
            back = threading.Thread(target=carry, args=(far, sock))
            back.start()
            carry(sock, far)
            back.join()

    sink = sink_with(10)
    try:
        with serving(tunnel) as proxy:
            environment = {"https_proxy": f"http://me:pw@127.0.0.1:{proxy.port}"}
            web = WebSettings(ca_file=str(encrypted.certificate), environment=environment)
            fetch(sink, server.uri().replace("http:", "https:"), settings=SourceSettings(web=web))
    finally:
        server.close()

    assert sink.data == DATA
    assert (proxy.asked[0].method, proxy.asked[0].target) == ("CONNECT", f"127.0.0.1:{server.port}")
    assert proxy.asked[0].headers["proxy-authorization"] == "Basic bWU6cHc="
    assert "authorization" not in proxy.asked[0].headers


def carry(source: socket.socket, target: socket.socket) -> None:
    """Copy until either side has enough."""
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_proxy_that_refuses_is_quoted(encrypted: Encrypted) -> None:
    with serving(lambda asked, sock: sock.sendall(head("403 Forbidden by policy"))) as proxy:
        web = WebSettings(environment={"https_proxy": f"127.0.0.1:{proxy.port}"})
        with pytest.raises(SourceFailed, match=r"opens no way to far\.example:443: 403 Forbidden by policy"):
            resolve("https://far.example/x", SourceSettings(web=web), CLOCK)

    assert proxy.asked[0].method == "CONNECT"


def test_redirect_from_https_to_http_is_not_followed(encrypted: Encrypted) -> None:
    with serving(file_server(DATA)) as plain:
        server = encrypted.server(lambda asked, sock: sock.sendall(head("302 Found", Location=plain.uri())))
        try:
            web = WebSettings(ca_file=str(encrypted.certificate))
            with pytest.raises(SourceFailed, match="redirected from https to http"):
                resolve(server.uri().replace("http:", "https:"), SourceSettings(web=web), CLOCK)
        finally:
            server.close()

    assert plain.asked == []
