"""Several users of one daemon: what each sees, may do, and cannot do to the others."""

from __future__ import annotations

import os
import socket
import stat
import threading
from base64 import b64encode
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import (
    CLOCK,
    MIB,
    Inside,
    ScriptedCarrier,
    add_file,
    as_user,
    eventually,
    needs_root,
    sha256,
)

Start = Callable[..., Inside]
ALICE, BOB = 2001, 2002
A, B = "http://x/a", "http://x/b"


@pytest.fixture(autouse=True)
def root() -> None:
    needs_root()


@pytest.fixture
def daemon(inside: Start, carrier: ScriptedCarrier) -> Inside:
    carrier.contents = {uri: uri[-1:].encode() * MIB for uri in (A, B)}
    return inside(user_images="3", user_bytes="8MiB", user_instances="2")


def asks(daemon: Inside, who: int, verb: str, /, gids: tuple[int, ...] = (), **fields: Any) -> Any:
    """The result, or the error's name."""
    path = daemon.socket

    def work() -> Any:
        with DaemonClient(path) as client:
            on_progress = (lambda progress: None) if verb == "add" else None
            return client.ask(verb, fields, on_progress=on_progress)

    found = as_user(who, work, gids)
    return found["gives"] if "gives" in found else found["raises"]


def lease_s() -> int:
    return CLOCK.now_s() + 600


def test_kernel_says_who_calls_and_the_request_cannot(daemon: Inside) -> None:
    assert asks(daemon, ALICE, "find", name=A, uid=0) == "NotAllowed"
    assert asks(daemon, ALICE, "find", name=A, uid=ALICE) == "NotInPool"


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("evict", {"need_bytes": 1}),
        ("check", {}),
        ("limits", {"rate_bytes_per_s": 1}),
        ("forget", {"alias": A}),
        ("add", {"uri": A, "sources": [B]}),
        ("add", {"uri": A, "expires_s": 5_000_000_000}),
        ("add", {"uri": "file:///etc/shadow"}),
        ("add", {"uri": "ssh://h/etc/shadow"}),
        ("add", {"uri": "relay://h:1/sha256:" + "0" * 64}),
        ("pin", {"name": A, "owner": "o", "until_s": 4_000_000_000}),
    ],
)
def test_what_is_the_administrators_is_refused_to_users(
    daemon: Inside, verb: str, fields: dict[str, Any]
) -> None:
    assert asks(daemon, ALICE, verb, **fields) == "NotAllowed"


def test_owner_names_of_users_never_meet(daemon: Inside) -> None:
    daemon.ask("add", uri=A)
    daemon.settle()
    for uid in (ALICE, BOB):
        assert asks(daemon, uid, "pin", name=A, owner="job:1", until_s=lease_s())["size_bytes"] == MIB
    daemon.ask("pin", name=A, owner="job:1", until_s=lease_s())

    assert asks(daemon, ALICE, "unpin", name=A, owner="job:1") == {"was_pinned": True}
    assert asks(daemon, ALICE, "unpin", name=A, owner=f"uid:{BOB}:job:1") == {"was_pinned": False}
    assert asks(daemon, ALICE, "release", owner=f"uid:{BOB}:job:1") == {"removed": 0, "pins": 0}
    owners = [pin["owner"] for pin in daemon.ask("show", name=A)["pin_list"]]
    assert owners == ["job:1", f"uid:{BOB}:job:1"]


def test_private_image_is_invisible_to_others(daemon: Inside) -> None:
    mine = asks(daemon, ALICE, "add", uri=A, private=True)
    digest = mine["digest"]

    assert mine["is_public"] is False
    assert asks(daemon, BOB, "find", name=digest) == "NotInPool"
    assert asks(daemon, BOB, "show", name=A) == "NotInPool"
    assert asks(daemon, BOB, "ls")["images"] == []
    assert asks(daemon, BOB, "pin", name=digest, owner="o", until_s=lease_s()) == "NotInPool"
    assert asks(daemon, BOB, "instance", name=digest, owner="o", until_s=lease_s()) == "NotInPool"
    assert asks(daemon, ALICE, "find", name=digest)["path"] == mine["path"]
    assert daemon.ask("find", name=digest)["digest"] == digest


def test_private_images_bytes_can_be_read_by_their_readers_alone(daemon: Inside) -> None:
    path = asks(daemon, ALICE, "add", uri=A, private=True)["path"]

    def read() -> int:
        with open(path, "rb") as file:
            return len(file.read())

    assert as_user(ALICE, read)["gives"] == MIB
    assert as_user(BOB, read)["raises"] == "PermissionError"
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o007 == 0


def test_named_readers_and_groups_may_use_a_private_image(daemon: Inside) -> None:
    digest = asks(daemon, ALICE, "add", uri=A, readers={"uids": [BOB], "gids": [77]})["digest"]

    assert asks(daemon, BOB, "find", name=digest)["digest"] == digest
    assert asks(daemon, 2003, "find", gids=(77,), name=digest)["digest"] == digest
    assert asks(daemon, 2003, "find", gids=(78,), name=digest) == "NotInPool"
    assert asks(daemon, ALICE, "ls")["images"][0]["readers"] == {"uids": [BOB], "gids": [77]}
    assert "readers" not in asks(daemon, BOB, "ls")["images"][0], "whose else it is its owner knows"


def test_root_acting_for_a_user_may_what_the_user_may(daemon: Inside) -> None:
    digest = asks(daemon, ALICE, "add", uri=A, private=True)["digest"]

    made = daemon.ask("instance", name=digest, owner="job:1", until_s=lease_s(), uid=ALICE)
    assert made["uid"] == ALICE
    with pytest.raises(Exception, match="not in the pool"):
        daemon.ask("instance", name=digest, owner="job:2", until_s=lease_s(), uid=BOB)


def test_second_user_proves_a_right_to_the_source(daemon: Inside, carrier: ScriptedCarrier) -> None:
    digest = asks(daemon, ALICE, "add", uri=A, private=True)["digest"]
    asked = len(carrier.asked)

    found = asks(daemon, BOB, "add", uri=A)

    assert found["digest"] == digest
    assert len(carrier.asked) == asked + 1
    assert asks(daemon, BOB, "find", name=digest)["digest"] == digest
    assert asks(daemon, 2003, "find", name=digest) == "NotInPool"


def test_without_a_right_to_the_source_nobody_becomes_a_reader(
    daemon: Inside, carrier: ScriptedCarrier
) -> None:
    digest = asks(daemon, ALICE, "add", uri=A, private=True)["digest"]
    carrier.contents[B] = carrier.contents[A]
    del carrier.contents[A]

    assert asks(daemon, BOB, "add", uri=A) == "NotAllowed"
    assert asks(daemon, BOB, "add", uri=A, digest=digest) == "NotAllowed"
    assert asks(daemon, BOB, "add", uri=B, digest=digest) == "NotAllowed"
    assert asks(daemon, BOB, "find", name=digest) == "NotInPool"


def test_user_cannot_join_what_arrives_privately(daemon: Inside, carrier: ScriptedCarrier) -> None:
    gate = carrier.hold(A)
    digest = sha256(carrier.contents[A])
    path = daemon.socket

    def begin() -> Any:
        with DaemonClient(path) as client:
            return client.ask("add", {"uri": A, "digest": digest, "private": True})

    name = as_user(ALICE, begin)["gives"]["transfer"]
    seen = asks(daemon, BOB, "ls")["arriving"], asks(daemon, BOB, "transfers")["transfers"]
    joined = asks(daemon, BOB, "add", uri=B, digest=digest)
    cancelled = asks(daemon, BOB, "transfer-set", transfer=name, cancel=True)
    gate.set()

    assert seen == ([], [])
    assert (joined, cancelled) == ("WrongBytes", "NotInPool")


def test_address_is_not_believed_because_a_user_says_so(daemon: Inside, carrier: ScriptedCarrier) -> None:
    """Nobody gets B for the address of A because somebody has paired the two."""
    digest = sha256(carrier.contents[B])
    before = asks(daemon, ALICE, "add", uri=A, digest=digest)
    asks(daemon, ALICE, "add", uri=B, digest=digest)

    paired = asks(daemon, ALICE, "add", uri=A, digest=digest)

    assert before == "WrongBytes"
    assert paired["digest"] == f"sha256:{digest}"
    assert asks(daemon, BOB, "find", name=A) == "NotInPool"
    assert asks(daemon, BOB, "add", uri=A)["digest"] == f"sha256:{sha256(carrier.contents[A])}"


def test_finishing_what_came_from_elsewhere_does_not_make_the_address_stand_for_it(
    daemon: Inside, carrier: ScriptedCarrier
) -> None:
    """Else a user could let all but the end come from an own server, and the end from the vendor's."""
    carrier.contents[B] = b"evil" + bytes(MIB)
    carrier.contents[A] = b"good" + bytes(MIB)
    digest = sha256(carrier.contents[B])
    carrier.broken[B] = MIB
    first = asks(daemon, ALICE, "add", uri=B, digest=digest)
    finished = asks(daemon, ALICE, "add", uri=A, digest=digest)

    assert (first, finished["digest"]) == ("SourceFailed", f"sha256:{digest}")
    assert asks(daemon, BOB, "find", name=A) == "NotInPool"
    assert asks(daemon, BOB, "add", uri=A)["digest"] == f"sha256:{sha256(carrier.contents[A])}"


def test_quota_of_images_bytes_and_instances_is_each_users_own(
    daemon: Inside, carrier: ScriptedCarrier
) -> None:
    uris = [f"http://x/{number}" for number in range(5)]
    carrier.contents = {uri: uri.encode() * 1000 for uri in uris}
    carrier.contents[B] = bytes(9 * MIB)
    added = [asks(daemon, ALICE, "add", uri=uri) for uri in uris[:4]]
    large = asks(daemon, BOB, "add", uri=B)
    name = added[0]["digest"]
    made = [asks(daemon, ALICE, "instance", name=name, owner=f"o{n}", until_s=lease_s()) for n in range(3)]
    again = asks(daemon, ALICE, "instance", name=name, owner="o0", until_s=lease_s())

    assert [each == "NotAllowed" for each in added] == [False, False, False, True]
    assert large == "NotAllowed"
    assert asks(daemon, BOB, "add", uri=uris[4])["size_bytes"] == len(uris[4]) * 1000
    assert [each == "NotAllowed" for each in made] == [False, False, True]
    assert again["path"] == made[0]["path"]


def test_instance_is_for_its_user_and_the_image_stays_as_it_was(daemon: Inside) -> None:
    digest = asks(daemon, ALICE, "add", uri=A)["digest"]
    path = asks(daemon, ALICE, "instance", name=digest, owner="o", until_s=lease_s())["path"]

    def write() -> int:
        with open(path, "r+b") as file:
            return file.write(b"mine")

    assert as_user(ALICE, write)["gives"] == 4
    assert as_user(BOB, write)["raises"] == "PermissionError"
    assert asks(daemon, BOB, "instances") == {"instances": []}
    with open(daemon.ask("find", name=digest)["path"], "rb") as file:
        assert sha256(file.read()) == digest.partition(":")[2]


class TestOpenFiles:
    """A user's own file, handed over open."""

    @pytest.fixture
    def file(self, folder: Path) -> Path:
        path = folder / "home" / "my image"
        path.parent.mkdir(mode=0o700)
        path.write_bytes(b"m" * MIB)
        path.chmod(0o600)
        for each in (path.parent, path):
            os.chown(each, ALICE, ALICE)
        return path

    def add(self, daemon: Inside, uid: int, path: Path, **fields: object) -> Any:
        where = daemon.socket

        def work() -> Any:
            with DaemonClient(where) as client:
                return add_file(client, path, fields, on_progress=lambda progress: None)

        found = as_user(uid, work)
        return found["gives"] if "gives" in found else found["raises"]

    @pytest.fixture
    def daemon(self, inside: Start, folder: Path) -> Inside:
        """With the real carrier, which reads descriptors."""
        return inside(real_carrier=True)

    def test_owner_adds_and_finds_it_by_its_path(self, daemon: Inside, file: Path) -> None:
        added = self.add(daemon, ALICE, file, private=True)

        assert added["digest"] == f"sha256:{sha256(b'm' * MIB)}"
        assert asks(daemon, ALICE, "find", name=str(file))["digest"] == added["digest"]

    def test_who_cannot_open_it_cannot_add_it(self, daemon: Inside, file: Path) -> None:
        assert self.add(daemon, BOB, file) == "PermissionError"
        assert asks(daemon, BOB, "add", uri=file.as_uri()) == "NotAllowed"

    def test_path_means_nothing_to_others(self, daemon: Inside, file: Path) -> None:
        """A file that somebody claims to have opened there must not become everybody's file of that name."""
        self.add(daemon, ALICE, file)

        assert asks(daemon, BOB, "find", name=file.as_uri()) == "NotInPool"

    def test_changed_file_is_another_image(self, daemon: Inside, file: Path) -> None:
        before = self.add(daemon, ALICE, file)["digest"]
        file.write_bytes(b"n" * MIB)
        after = self.add(daemon, ALICE, file)["digest"]

        assert before != after
        assert after == f"sha256:{sha256(b'n' * MIB)}"

    def test_descriptor_that_only_points_at_a_file_proves_nothing(
        self, daemon: Inside, file: Path, folder: Path
    ) -> None:
        secret = folder / "secret"
        secret.write_bytes(b"s" * MIB)
        secret.chmod(0o600)
        where = daemon.socket

        def work() -> Any:
            descriptor = os.open(secret, os.O_PATH)
            with DaemonClient(where) as client:
                return client.ask("add", {"uri": f"file://{secret}"}, descriptors=[descriptor])

        assert as_user(BOB, work)["raises"] == "NotAllowed"

    def test_what_is_no_plain_file_is_refused(self, daemon: Inside) -> None:
        where = daemon.socket

        def work() -> Any:
            left, right = socket.socketpair()
            with DaemonClient(where) as client, left, right:
                return client.ask("add", {"uri": "file:///x"}, descriptors=[left.fileno()])

        assert as_user(BOB, work)["raises"] in ("NotAllowed", "BadRequest")

    def test_file_is_closed_when_its_transfer_has_ended(self, daemon: Inside, file: Path) -> None:
        self.add(daemon, ALICE, file)
        links = Path("/proc/self/fd")

        def still_open() -> list[str]:
            return [str(each) for each in links.iterdir() if each.is_symlink() and target(each) == str(file)]

        def target(link: Path) -> str:
            try:
                return os.readlink(link)
            except FileNotFoundError:
                return ""

        eventually("it is closed", lambda: still_open() == [], daemon.log)
        assert daemon.ask("ls")["arriving"] == []


class Guarded(BaseHTTPRequestHandler):
    """An image for whoever has the site's password."""

    def do_HEAD(self) -> None:
        is_known = self.headers.get("Authorization") == "Basic " + b64encode(b"site:word").decode()
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", "4" if is_known else "0")
        self.end_headers()
        if is_known and self.command == "GET":
            self.wfile.write(b"data")

    do_GET = do_HEAD

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


def test_sites_password_serves_nobody_but_the_privileged(inside: Start, folder: Path) -> None:
    netrc = folder / "netrc"
    netrc.write_text("machine 127.0.0.1 login site password word\n")
    netrc.chmod(0o600)
    daemon = inside(real_carrier=True, netrc=str(netrc))
    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        where = f"127.0.0.1:{server.server_address[1]}/image"
        refused = asks(daemon, ALICE, "add", uri=f"http://{where}")
        own = asks(daemon, ALICE, "add", uri=f"http://site:word@{where}", private=True)
        daemon.ask("add", uri=f"http://{where}?for=root")
        daemon.settle()
        server.shutdown()
        thread.join()

    assert refused == "SourceFailed"
    assert own["size_bytes"] == 4
    assert "word" not in str(daemon.ask("ls")) + str(daemon.ask("transfers")) + daemon.log()
    assert [each["state"] for each in daemon.ask("transfers")["transfers"]] == ["done", "done"]
