"""What one user can find out of another's, do to it, or do in another's name, through the service."""

from __future__ import annotations

import json
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.daemons.node.daemons import needs_root
from tests.security.siege import (
    ALICE,
    BOB,
    CLERK,
    NAMELESS,
    Siege,
    Web,
    image_of,
    siege,
    workspace,
)

SECRET = b"what alice alone may know " * 4_000
ROUTES = (
    "/v1/reservations",
    "/v1/reservations?past=true",
    "/v1/reservations?user=games",
    "/v1/reservations/{name}",
    "/v1/reservations/{name}/explanation",
    "/v1/images",
    "/v1/nodes",
    "/v1/transfers",
    "/v1/timeline",
    "/v1/status",
    "/v1/decisions",
    "/v1/decisions?wait=1&after=999999",
    "/v1/config",
    "/metrics",
    "/healthz",
    "/readyz",
    "/openapi.json",
)


@pytest.fixture(scope="module")
def secret(service: Siege) -> tuple[str, str, str]:
    """Alice's reservation with her private image: its name, digest and path."""
    path = service.folder / "merger-plans.img"
    digest = image_of(ALICE, path, SECRET)
    decision = service.accepted(
        ALICE, workspace(f"file://{path}", name="alpha", private=True), key="alices-key"
    )
    service.await_state(decision["name"], "ready")
    return decision["name"], digest, str(path)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("who", [BOB, NAMELESS])
def test_no_answer_tells_what_a_private_image_is(
    service: Siege, secret: tuple[str, str, str], route: str, who: int
) -> None:
    name, digest, _ = secret
    _, answer = service.ask(who, "GET", route.format(name=name))

    text = json.dumps(answer)
    assert "merger-plans" not in text
    assert digest[7:19] not in text
    assert (
        service.ask(ALICE, "GET", f"/v1/reservations/{name}")[1]["reservation"]["image"]["digest"] == digest
    )


def test_no_file_of_the_service_that_others_can_read_tells_it(
    service: Siege, secret: tuple[str, str, str]
) -> None:
    _, digest, path = secret
    files = [each for each in (service.folder / "s").rglob("*") if each.is_file()]
    # Who knows the digest finds the folder of that name; nobody else can list them.
    named = [each for each in files if digest[7:] not in str(each)]

    def readable() -> list[str]:
        found = []
        for each in named:
            try:
                text = each.read_bytes()
            except OSError:
                continue
            if path.encode() in text or digest[7:19].encode() in text:
                found.append(str(each))
        return found

    assert len(named) > 10
    assert service.work(BOB, readable) == []


def test_state_is_for_nobody_else(service: Siege, secret: tuple[str, str, str]) -> None:
    modes = {
        each.relative_to(service.folder).as_posix(): stat.S_IMODE(each.stat().st_mode)
        for each in (service.folder / "s").rglob("*")
        if not stat.S_ISSOCK(each.lstat().st_mode)
    }
    names = [
        *(f"s/outriderd.sqlite{more}" for more in ("", "-wal", "-shm", ".lock")),
        *("s/embedded/jobs.json", "s/embedded/nodes/relay.key"),
        *("s/embedded/nodes/n1/log", "s/embedded/nodes/n1/conf"),
    ]

    assert {name: modes[name] & 0o077 for name in names} == dict.fromkeys(names, 0)
    assert not [name for name, mode in modes.items() if mode & 0o022]
    # Folders can be passed through and not listed.
    assert (modes["s/embedded/nodes/n1/pool"] & 0o077, modes["s/embedded/jobs"] & 0o077) == (0o011, 0o011)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/v1/reservations/{name}", None),
        ("PATCH", "/v1/reservations/{name}", {"duration": "1m"}),
        ("PATCH", "/v1/reservations/{name}?plan=true", {"duration": "1m"}),
        ("GET", "/v1/reservations/{name}/explanation", None),
        ("POST", "/v1/policies/reload", None),
        ("POST", "/v1/reconcile", None),
        ("POST", "/v1/backups", {"path": "/tmp/never.sqlite"}),
        ("GET", "/v1/config", None),
    ],
)
@pytest.mark.parametrize("who", [BOB, NAMELESS])
def test_what_is_anothers_or_administrators_is_refused(
    service: Siege, secret: tuple[str, str, str], method: str, path: str, body: Any, who: int
) -> None:
    status, answer = service.ask(who, method, path.format(name=secret[0]), body)

    assert (status, answer["code"]) == (403, "not-allowed")
    assert service.state_of(secret[0]) == "ready"


def test_workspace_name_of_another_means_nothing(service: Siege, secret: tuple[str, str, str]) -> None:
    assert service.ask(BOB, "DELETE", "/v1/reservations/alpha")[0] == 404
    assert service.ask(BOB, "GET", "/v1/reservations/alpha/explanation")[0] == 404


def test_refusal_of_one_user_is_not_told_as_one_of_anothers_reservation(
    service: Siege, secret: tuple[str, str, str]
) -> None:
    path = service.folder / "bobs.img"
    image_of(BOB, path, SECRET, 0o644)
    status, refused = service.reserve(BOB, workspace(f"file://{path}", name=secret[0]), nodes="50")
    told = service.ask(ALICE, "GET", "/v1/decisions")[1]["decisions"]
    explained = service.ask(ALICE, "GET", f"/v1/reservations/{secret[0]}/explanation")[1]["decisions"]

    assert (status, refused["result"]) == (200, "refused")
    assert [each["outcome"] for each in told if each["kind"] == "reserve"] == ["accepted"]
    assert [each["outcome"] for each in explained if each["kind"] == "reserve"] == ["accepted"]
    assert secret[0] in [each["name"] for each in service.ask(BOB, "GET", "/v1/decisions")[1]["decisions"]]


def test_job_is_not_let_into_anothers_reservation(service: Siege, secret: tuple[str, str, str]) -> None:
    status, answer = service.submit(BOB, "/bin/true", reservation=secret[0])

    assert status == 422
    assert "not for news" in answer["message"]


def test_key_of_another_is_neither_replayed_nor_noticed(service: Siege, secret: tuple[str, str, str]) -> None:
    body = workspace("nothing-there")
    with_key, without = (service.reserve(BOB, body, key=key) for key in ("alices-key", "never-used"))

    assert with_key == without
    assert with_key[0] == 422


def test_who_asks_is_not_what_headers_say(service: Siege) -> None:
    headers = {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": "root", "Authorization": "MUNGE MUNGE:AA:"}
    status, _ = service.ask(BOB, "GET", "/v1/config", headers=headers)

    assert status == 403


def test_administrators_are_root_and_those_that_are_named(service: Siege) -> None:
    assert [service.ask(uid, "GET", "/v1/config")[0] for uid in (0, CLERK, ALICE, NAMELESS)] == [
        200,
        200,
        403,
        403,
    ]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/etc/shadow", "Permission denied"),
        ("/proc/self/environ", "Permission denied"),
        ("/proc/self/fd/0", "No such device"),
        ("/dev/zero", "not a regular file"),
        ("/tmp", "not a regular file"),
        ("{folder}/pipe", "not a regular file"),
        ("{folder}/link", "Permission denied"),
        ("{folder}/s/outriderd.sqlite", "Permission denied"),
        ("{folder}/s/embedded/nodes/relay.key", "Permission denied"),
        ("{folder}/merger-plans.img", "Permission denied"),
    ],
)
def test_path_is_opened_with_its_users_rights_alone(
    service: Siege, secret: tuple[str, str, str], path: str, words: str
) -> None:
    if not (service.folder / "pipe").exists():
        os.mkfifo(service.folder / "pipe", 0o666)
        (service.folder / "link").symlink_to("/etc/shadow")
    uri = f"file://{path.format(folder=service.folder)}"
    status, answer = service.reserve(BOB, workspace(uri, private=True))

    assert status == 422
    assert words in answer["message"]


@pytest.mark.parametrize(
    "uri",
    [
        "http://user:password@127.0.0.1/x",
        "http://127.0.0.1/%0d%0aX-Injected: 1",
        "http://127.0.0.1/a\nb",
        "http://127.0.0.1/\u202egpj.img",
        "http://127.0.0.1/\x1b[2J",
        "ssh://127.0.0.1/x",
        "rsync://127.0.0.1/m/x",
        "relay://127.0.0.1:1/sha256:" + "0" * 64,
        "../../etc/shadow",
        "file:///tmp/../etc/shadow",
        "file:///tmp/%2e%2e/etc/shadow",
        "file://remote/etc/shadow",
        "-oProxyCommand=x",
        "http://127.0.0.1/" + "a" * 5_000,
    ],
)
def test_address_is_no_path_no_option_and_no_header(service: Siege, uri: str) -> None:
    status, answer = service.reserve(BOB, workspace("@").replace("'@'", json.dumps(uri)))

    assert status == 422
    assert answer["message"].isprintable()


def test_redirect_to_a_file_is_not_followed(service: Siege) -> None:
    with Web(100) as web:
        _redirecting(web, "file:///etc/shadow")
        status, answer = service.reserve(BOB, workspace(web.uri(), private=True))

    assert status == 422
    assert "redirected" in answer["message"]


def _redirecting(web: Web, target: str) -> None:
    def do_head(handler: Any) -> None:
        handler.send_response(302)
        handler.send_header("Location", target)
        handler.end_headers()

    web.handler.do_HEAD = do_head


def test_service_that_is_not_root_reads_nobody_elses_file() -> None:
    needs_root()
    with siege(NAMELESS) as service:
        own, others = service.folder / "own", service.folder / "others"
        image_of(NAMELESS, own, SECRET)
        image_of(ALICE, others, SECRET, 0o604)
        taken = service.reserve(BOB, workspace(f"file://{own}", private=True))
        store = service.reserve(BOB, workspace(f"file://{service.folder}/s/outriderd.sqlite", private=True))
        granted = service.reserve(BOB, workspace(f"file://{others}"))
        job = service.submit(BOB, "/bin/true")

    assert (taken[0], store[0]) == (422, 422)
    assert "Permission denied" in taken[1]["message"]
    assert (granted[0], granted[1]["result"]) == (201, "accepted")
    assert job[0] == 422
    assert "only a service that runs as root" in job[1]["message"]


def test_requests_over_tcp_need_munge_in_the_configuration(tmp_path: Path) -> None:
    from outrider.metadata.errors import FaultyFileError
    from outrider.service.daemon.configuration.files import load_config

    file = tmp_path / "o.yaml"
    file.write_text("version: 1\nbackend: {kind: embedded}\ntcp: {listen: '127.0.0.1:1'}\n")

    with pytest.raises(FaultyFileError, match="without MUNGE nobody knows who asks"):
        load_config([file], {})


def test_user_cannot_reach_a_private_image_through_a_nodes_own_socket(
    service: Siege, secret: tuple[str, str, str]
) -> None:
    _, digest, _ = secret
    node = service.ask(0, "GET", f"/v1/reservations/{secret[0]}")[1]["reservation"]["nodes"]
    show = service.node(BOB, node, "show", name=digest)
    instance = service.node(BOB, node, "instance", name=digest, owner="job-1", until_s=2_000_000_000)
    listed = service.node(BOB, node, "ls")
    service.node(BOB, node, "unpin", name=digest, owner=secret[0])
    stolen = service.node(BOB, node, "find", name=f"file://{secret[2]}")

    assert (show.get("raises"), stolen.get("raises")) == ("NotInPool", "NotInPool")
    assert "gives" not in instance
    assert listed["gives"]["images"] == []
    found = service.node(ALICE, node, "show", name=digest)["gives"]
    assert secret[0] in json.dumps(service.node(0, node, "show", name=digest)["gives"])
    assert found["digest"] == digest


def test_slow_senders_of_one_user_keep_nobody_else_out(service: Siege) -> None:
    lines = []
    # The kernel vouches for whoever connects, so these stay Bob's.
    os.seteuid(BOB)
    try:
        for _ in range(140):
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            line.connect(str(service.socket))
            with suppress(OSError):
                line.sendall(b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            lines.append(line)
    finally:
        os.seteuid(0)
    try:
        bobs, alices = (service.ask(uid, "GET", "/v1/status") for uid in (BOB, ALICE))
    finally:
        for line in lines:
            line.close()

    assert (bobs[0], bobs[1]["code"]) == (503, "busy")
    assert alices[0] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100_000, 400),
        (b'{"workspace":' * 5_000, 400),
        (b"x" * (1024 * 1024 + 1), 413),
        (b'{"workspace": "a", "workspace": "b"}', 400),
        (b'{"workspace": "\\ud800"}', 400),
        (b"\xff\xfe", 400),
        (b'{"workspace": "' + b"- " * 300_000 + b'"}', 422),
        (b'{"workspace": "a: &a [1,1]\\nb: &b [*a,*a]\\nc: [*b,*b]"}', 422),
        (b'{"workspace": "a: ' + b"[" * 5_000 + b'"}', 422),
        (b'{"workspace": 1}', 422),
        (b"{}", 422),
    ],
)
def test_what_is_malformed_is_refused_with_a_sentence(service: Siege, body: bytes, status: int) -> None:
    found, answer = service.ask(BOB, "POST", "/v1/plans", body)

    assert found == status
    assert answer["message"].isprintable()
    assert len(answer["message"]) < 1_000
