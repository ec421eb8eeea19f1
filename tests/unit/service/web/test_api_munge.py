"""Over TCP, a credential of MUNGE vouches for one user and one request; a real munged decides."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from outrider.service.web.connections.munge import Munge, NotVouched
from outrider.service.web.limits import Limits
from outrider_client.munge import hash_request
from tests.unit.service.web.apiserver import WORKSPACE, Reply, Server, check_error, wait_until
from tests.unit.service.web.munging import UID, Munged, running_munged
from tests.unit.service.web.siteanswers import STATUS


@pytest.fixture(scope="module")
def munged() -> Iterator[Munged]:
    with running_munged() as found:
        yield found


@pytest.fixture(scope="module")
def only_server(munged: Munged) -> Iterator[Server]:
    server = Server(munged.folder, munge=Munge(socket=munged.socket))
    yield server
    server.stop()


@pytest.fixture
def remote(only_server: Server) -> Server:
    only_server.front.reset()
    return only_server


def send(
    server: Server, credential: str, method: str, target: str, body: bytes = b"", key: str = ""
) -> Reply:
    headers = {"Authorization": f"MUNGE {credential}", **({"Idempotency_Key": key} if key else {})}
    return server.send_tcp(method, target, body or None, **headers)


def test_hash_is_of_the_line_the_key_and_the_body() -> None:
    sent = b"PATCH /v1/reservations/render-17?plan=true\nk1\n" + b'{"nodes": 3}'

    assert (
        hash_request("PATCH", "/v1/reservations/render-17?plan=true", "k1", b'{"nodes": 3}')
        == hashlib.sha256(sent).hexdigest()
    )


def test_user_of_another_host_is_who_munge_says(remote: Server, munged: Munged) -> None:
    body = b'{"nodes": 3}'
    target = "/v1/reservations/render-17?plan=true"
    credential = munged.encode(hash_request("PATCH", target, "k1", body))
    reply = send(remote, credential, "PATCH", target, body, "k1")

    assert reply.status == 200, reply.body
    caller, _ = remote.front.asked[-1]
    assert (caller.uid, caller.gids, caller.is_admin) == (UID, (UID,), False)


def test_credential_serves_once(remote: Server, munged: Munged) -> None:
    credential = munged.encode(hash_request("GET", "/v1/status", "", b""))
    first = send(remote, credential, "GET", "/v1/status")
    second = send(remote, credential, "GET", "/v1/status")

    assert first.status == 200
    assert "used before" in check_error(second, 401, "not-allowed")["message"]
    assert second.headers["www-authenticate"] == "MUNGE"
    assert len(remote.front.asked) == 1


@pytest.mark.parametrize(
    ("method", "target", "key", "body"),
    [
        ("DELETE", "/v1/reservations/render-17", "", b""),
        ("GET", "/v1/reservations/render-18", "", b""),
        ("GET", "/v1/reservations/render-17?x=1", "", b""),
        ("GET", "/v1/reservations/render-17", "other", b""),
        ("POST", "/v1/reservations/render-17", "", b"{}"),
    ],
)
def test_credential_for_one_request_serves_for_no_other(
    remote: Server, munged: Munged, method: str, target: str, key: str, body: bytes
) -> None:
    stolen = munged.encode(hash_request("GET", "/v1/reservations/render-17", "", b""))
    reply = send(remote, stolen, method, target, body, key)

    assert "another request" in check_error(reply, 401, "not-allowed")["message"]
    assert remote.front.asked == []


def test_body_that_was_changed_on_the_way_is_noticed(remote: Server, munged: Munged) -> None:
    credential = munged.encode(hash_request("POST", "/v1/plans", "", WORKSPACE.encode()))
    reply = send(remote, credential, "POST", "/v1/plans", WORKSPACE.encode() + b" ")

    assert check_error(reply, 401, "not-allowed")


def test_user_of_several_hosts_has_one_users_share(serve: Callable[..., Server], munged: Munged) -> None:
    server = serve(munge=Munge(socket=munged.socket), limits=Limits(requests_per_user=1))
    server.front.answers["ShowStatus"] = pending = Future[Any]()

    def ask(path: str, uid: int) -> Reply:
        return send(server, munged.encode(hash_request("GET", path, "", b""), uid=uid), "GET", path)

    waiting = threading.Thread(target=ask, args=("/v1/status", UID))
    waiting.start()
    wait_until(lambda: len(server.front.asked) == 1)
    own, others = ask("/v1/images", UID), ask("/v1/images", UID + 1)
    pending.set_result(STATUS)
    waiting.join()

    assert check_error(own, 503, "busy")
    assert others.status == 200


def test_credential_that_has_expired_is_refused(remote: Server, munged: Munged) -> None:
    credential = munged.encode(hash_request("GET", "/v1/status", "", b""), "--ttl", "1")
    decoded = Munge(socket=munged.socket)

    # munged looks at the time first, so that one that was used before can still be seen to expire.
    def is_over() -> bool:
        with pytest.raises(NotVouched) as caught:
            decoded.vouch(credential, "0" * 64)
        return "expired" in str(caught.value)

    wait_until(is_over)
    reply = send(remote, credential, "GET", "/v1/status")

    assert "expired" in check_error(reply, 401, "not-allowed")["message"]


def test_credential_of_another_payload_is_refused(remote: Server, munged: Munged) -> None:
    wanted = hash_request("GET", "/v1/status", "", b"")
    for payload in ("", "hello", f"{wanted}\n{wanted}", f"UID: 0\nGID: 0\n\n{wanted}"):
        reply = send(remote, munged.encode(payload), "GET", "/v1/status")
        assert "not a hash" in check_error(reply, 401, "not-allowed")["message"]


@pytest.mark.parametrize(
    "credential",
    ["", "MUNGE:AAAA:", "MUNGE:" + "A" * 9000 + ":", "--socket=/tmp/x", "MUNGE:../../x:", "MUNGE:$(id):"],
)
def test_what_is_no_credential_is_refused(remote: Server, credential: str) -> None:
    assert check_error(send(remote, credential, "GET", "/v1/status"), 401, "not-allowed")


def test_request_without_credential_is_told_what_to_send(remote: Server) -> None:
    for headers in ({}, {"Authorization": "Basic cm9vdDpyb290"}, {"Authorization": "Bearer MUNGE:AAAA:"}):
        reply = remote.send_tcp("GET", "/v1/status", None, **headers)
        assert "Authorization: MUNGE" in check_error(reply, 401, "not-allowed")["message"]


def test_munge_header_changes_nothing_on_the_unix_socket(remote: Server, munged: Munged) -> None:
    credential = munged.encode(hash_request("GET", "/v1/status", "", b""))
    assert remote.get("/v1/status", Authorization=f"MUNGE {credential}").status == 200

    caller, _ = remote.front.asked[-1]
    assert caller.uid == os.geteuid()


@pytest.mark.parametrize(
    "munge",
    [Munge(socket="/nonexistent/munge"), Munge(program="/nonexistent/unmunge"), Munge(program="slow")],
)
def test_decoder_that_fails_is_the_services_trouble(
    serve: Callable[..., Server], munged: Munged, tmp_path: Path, munge: Munge
) -> None:
    if munge.program == "slow":
        slow = tmp_path / "slow"
        slow.write_text("#!/bin/sh\nexec sleep 60\n")
        slow.chmod(0o755)
        munge = Munge(program=str(slow), timeout_s=0.2)
    server = serve(munge=munge)
    credential = munged.encode(hash_request("GET", "/v1/status", "", b""))
    reply = send(server, credential, "GET", "/v1/status")

    assert check_error(reply, 503, "unavailable")
    assert [event for _, event, _ in server.tally.lines] == ["credential not decoded"]
    assert server.front.asked == []


def test_nobody_logs_in_over_the_network(remote: Server, munged: Munged) -> None:
    body = b'{"host": "registry.example.org", "user": "ada", "password": "x"}'
    credential = munged.encode(hash_request("POST", "/v1/logins", "", body))
    reply = send(remote, credential, "POST", "/v1/logins", body)

    assert "on the service's own machine" in check_error(reply, 403, "not-allowed")["message"]
