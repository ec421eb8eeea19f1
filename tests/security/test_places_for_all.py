"""Users who hold all that they can get, one or ten of them: another, root and probes still get answers."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.security.siege import ALICE, PATIENCE_S, Siege, Web, crowd, workspace

ONE, TEN = [4_200], list(range(4_200, 4_210))
BOUND_S = 10.0
"""An answer that takes longer has waited for somebody; without them it takes some milliseconds."""
DIGEST = f"sha256:{'3' * 64}"


def timed(ask: Callable[[], Any]) -> tuple[float, Any]:
    began_s = time.monotonic()  # noqa: TID251 - what is measured
    found = ask()
    return time.monotonic() - began_s, found  # noqa: TID251


@pytest.mark.parametrize("uids", [ONE, TEN], ids=["one", "ten"])
@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/status HTTP/1.1\r\nHo",
        b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
        b"GET /v1/decisions?wait=30&after=9999999 HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["heads", "bodies", "polls"],
)
def test_connections_of_many_users_shut_nobody_out(service: Siege, uids: list[int], sent: bytes) -> None:
    with crowd(service, uids, lambda uid: [sent] * 140):
        for uid, path in ((0, "/v1/status"), (ALICE, "/v1/status"), (uids[0], "/healthz")):
            took_s, (status, _) = timed(partial(service.ask, uid, "GET", path))
            assert status == 200, (uid, path)
            assert took_s < BOUND_S


class Tarpit:
    """A server to which everybody is connected by its kernel, and that never answers."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("", 0), backlog=512)

    def uri(self, number: int) -> str:
        return f"http://127.0.0.{number % 100 + 1}:{self._listener.getsockname()[1]}/{number}"

    def close(self) -> None:
        self._listener.close()


def plan_of(uri: str) -> bytes:
    """A request for a plan with an image that has to be looked up."""
    body = json.dumps({"workspace": workspace(uri), "zone": "UTC", "options": {}}).encode()
    head = "POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("uids", [ONE, TEN], ids=["one", "ten"])
def test_servers_that_never_answer_delay_no_look_up_of_others(service: Siege, uids: list[int]) -> None:
    tarpit = Tarpit()
    try:
        requests = [plan_of(tarpit.uri(number)) for number in range(200)]
        with (
            Web(50_000) as web,
            crowd(service, uids, lambda uid: requests[8 * (uid - ONE[0]) :][:8]),
        ):
            body = {"workspace": workspace(web.uri(), digest=DIGEST), "zone": "UTC", "options": {}}
            took_s, (status, answer) = timed(lambda: service.ask(ALICE, "POST", "/v1/plans", body))
    finally:
        tarpit.close()

    assert (status, answer["result"]) == (200, "accepted")
    assert took_s < BOUND_S


def test_file_that_no_pool_could_hold_is_refused_at_once(service: Siege) -> None:
    path = service.folder / "terabytes"
    with path.open("wb") as file:
        file.truncate(8 << 40)
    path.chmod(0o644)
    try:
        took_s, (status, answer) = timed(lambda: service.reserve(ALICE, workspace(f"file://{path}")))
    finally:
        path.unlink()

    assert status == 422
    assert "at most 47.7 MiB are staged here" in str(answer)
    assert took_s < BOUND_S


assert PATIENCE_S > BOUND_S
