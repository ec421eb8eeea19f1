"""Who asks is the kernel's word, whatever a request says of itself."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from outrider.service import requests as asked
from outrider.service.settings import Administrators
from outrider.service.web.connections.server import listen_unix
from outrider.service.web.identity import KEPT_S, MOST_KEPT, Users, look_up
from outrider.service.web.limits import Limits
from tests.unit.service.web.apiserver import ScriptedFront, Server, check_error

NAMELESS_UID = 54_321

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

# What another user's program is: it becomes that user before it connects.
CLIENT = """
import http.client, json, os, socket, sys
path, uid, gid, method, target, headers, count = json.loads(sys.argv[1])
os.setgroups([]); os.setgid(gid); os.setuid(uid)
kept = []
for _ in range(count):
    connection = http.client.HTTPConnection("localhost", timeout=240)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    kept.append(connection)
kept[-1].request(method, target, None, headers)
answer = kept[-1].getresponse()
print(answer.status, answer.read().decode())
"""


def send_as(
    server: Server,
    uid: int,
    gid: int,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    *,
    count: int = 1,
) -> tuple[int, Any]:
    """A request by a process of that user, over the last of so many connections."""
    wanted = json.dumps([server.path, uid, gid, method, target, headers or {}, count])
    finished = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CLIENT, wanted], capture_output=True, text=True, timeout=240
    )
    assert finished.returncode == 0, finished.stderr
    status, _, body = finished.stdout.partition(" ")
    return int(status), json.loads(body)


def test_caller_is_the_user_of_the_connection(api: Server, front: ScriptedFront) -> None:
    api.get("/v1/status")

    caller, _ = front.asked[-1]
    assert (caller.uid, caller.user) == (os.geteuid(), pwd.getpwuid(os.geteuid()).pw_name)
    assert set(os.getgrouplist(caller.user, pwd.getpwuid(caller.uid).pw_gid)) == set(caller.gids)
    assert caller.is_admin == (caller.uid == 0)


@as_root
def test_process_of_another_user_is_that_user(api: Server, front: ScriptedFront) -> None:
    entry = pwd.getpwnam("games")
    status, _ = send_as(api, entry.pw_uid, entry.pw_gid, "GET", "/v1/status")

    caller, _ = front.asked[-1]
    assert (status, caller.uid, caller.user, caller.is_admin) == (200, entry.pw_uid, "games", False)


@as_root
def test_no_header_makes_a_user_somebody_else(api: Server, front: ScriptedFront) -> None:
    forged = {
        "X-Forwarded-For": "127.0.0.1",
        "X-Remote-User": "root",
        "Remote-User": "root",
        "X-Peer": "0",
        "peer": '{"uid": 0}',
        "uid": "0",
        "Authorization": "MUNGE MUNGE:AAAA:",
        "Forwarded": "for=root",
        "X-Forwarded-Proto": "unix",
    }
    status, _ = send_as(api, NAMELESS_UID, NAMELESS_UID, "GET", "/v1/status", forged)
    refused, _ = send_as(api, NAMELESS_UID, NAMELESS_UID, "GET", "/v1/config", forged)

    caller, _ = front.asked[-1]
    assert (status, caller.uid, refused) == (200, NAMELESS_UID, 403)


@as_root
def test_user_without_a_name_is_served_under_their_number(api: Server, front: ScriptedFront) -> None:
    send_as(api, NAMELESS_UID, 12_345, "GET", "/v1/status")

    caller, _ = front.asked[-1]
    assert (caller.user, caller.gids, caller.groups) == ("54321", (12_345,), ("12345",))


@as_root
@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/v1/config"), ("POST", "/v1/policies/reload"), ("POST", "/v1/reconcile")],
)
def test_what_is_for_administrators_is_refused_to_others(
    api: Server, front: ScriptedFront, method: str, target: str
) -> None:
    status, answer = send_as(api, NAMELESS_UID, NAMELESS_UID, method, target)

    assert (status, answer["code"]) == (403, "not-allowed")
    assert "not an administrator" in answer["message"]
    assert front.asked == []


@as_root
def test_administrator_of_the_configuration_is_one(api: Server, front: ScriptedFront) -> None:
    entry = pwd.getpwnam("daemon")
    status, _ = send_as(api, entry.pw_uid, entry.pw_gid, "POST", "/v1/reconcile")

    assert status == 200
    assert isinstance(front.last, asked.Reconcile)


@as_root
def test_one_users_connections_do_not_keep_others_out(serve: Any) -> None:
    server: Server = serve(limits=Limits(connections_per_user=3))
    held = [server.connect() for _ in range(3)]
    status, _ = send_as(server, NAMELESS_UID, NAMELESS_UID, "GET", "/v1/status", count=3)
    for each in held:
        each.close()

    assert status == 200


def test_over_tcp_nobody_is_known_without_munge(api: Server, front: ScriptedFront) -> None:
    found = check_error(api.send_tcp("GET", "/v1/status"), 403, "not-allowed")

    assert "unix socket" in found["message"]
    assert front.asked == []


def test_over_tcp_probes_are_open(api: Server) -> None:
    statuses = [
        api.send_tcp("GET", path).status for path in ("/healthz", "/readyz", "/metrics", "/openapi.json")
    ]

    assert statuses == [200] * 4


def test_groups_make_administrators() -> None:
    entry = pwd.getpwnam("games")
    by_user = look_up(entry.pw_uid, 0, Administrators(users=frozenset({"games"})))
    by_group = look_up(entry.pw_uid, 0, Administrators(groups=frozenset({by_user.groups[0]})))
    by_neither = look_up(entry.pw_uid, 0, Administrators(users=frozenset({"mia"}), groups=frozenset({"x"})))

    assert (by_user.is_admin, by_group.is_admin, by_neither.is_admin) == (True, True, False)
    # The database's groups count, not the one that the process happened to run with.
    assert 0 not in by_user.gids


def test_user_is_looked_up_again_after_a_minute() -> None:
    now_s = [0.0]
    users = Users(Administrators(), lambda: now_s[0])

    async def ask() -> list[object]:
        found: list[object] = []
        for at_s in (0.0, KEPT_S - 1, KEPT_S):
            now_s[0] = at_s
            found.append(await users.caller(1, 1))
        return found

    first, second, third = asyncio.run(ask())
    users.close()
    assert first is second
    assert third is not first


def test_only_so_many_users_are_kept() -> None:
    users = Users(Administrators(), lambda: 0.0)

    async def ask() -> bool:
        first = await users.caller(100_000, 1)
        for uid in range(100_001, 100_001 + MOST_KEPT):
            await users.caller(uid, 1)
        return await users.caller(100_000, 1) is first

    assert not asyncio.run(ask())
    users.close()


def test_socket_has_its_permissions_and_a_path_that_fits(tmp_path: Any) -> None:
    path = tmp_path / "s"
    listen_unix(str(path), mode=0o660).close()

    assert path.stat().st_mode & 0o777 == 0o660
    with pytest.raises(ValueError, match="107 bytes"):
        listen_unix("/" + "x" * 200)
    with pytest.raises(OSError, match="in use"):
        listen_unix(str(path))
