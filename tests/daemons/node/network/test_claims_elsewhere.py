"""Claims without a ticket, of an array's tasks, and on the other nodes of a job."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.errors import BadRequest, NoDaemon, NotAllowed, NotInPool
from cachemgr.daemon.network import neighbours
from cachemgr.network.client import DaemonClient
from cachemgr.network.job_tickets import JobTicket, make_job_ticket
from tests.daemons.node.daemons import (
    CLOCK,
    MIB,
    Inside,
    Outside,
    ScriptedCarrier,
    as_user,
    make_pool,
    needs_root,
    sha256,
)
from tests.repository import ROOT

A, B = "http://x/a", "http://x/b"
CONTENT, OTHER = b"a" * MIB, b"b" * MIB
DIGEST, OTHER_DIGEST = sha256(CONTENT), sha256(OTHER)
KEY = b"k" * 32
UID = 4242
PORT = 17011
SECOND, THIRD = "127.0.0.2", "127.0.0.3"
Start = Callable[..., Inside]


@pytest.fixture
def daemon(inside: Start, carrier: ScriptedCarrier, folder: Path) -> Inside:
    """One with the image, which asks its neighbours where it would listen itself."""
    carrier.contents = {A: CONTENT, B: OTHER}
    (folder / "site.key").write_bytes(KEY)
    found = inside(relay_key=str(folder / "site.key"), control_listen=f"127.0.0.1:{PORT}")
    found.ask("add", uri=A)
    found.settle()
    return found


class Neighbour:
    """The daemon of another node: a process of its own, at an address of its own."""

    def __init__(self, folder: Path, address: str) -> None:
        folder.mkdir()
        (folder / "image").write_bytes(CONTENT)
        make_pool(folder / "pool")
        listen = f"{address}:{PORT}"
        self.daemon = Outside(
            folder, relay_key=str(folder.parent / "site.key"), control_listen=listen, node=address
        )

    def bring(self) -> None:
        self.daemon.ask("add", uri=str(self.daemon.folder / "image"), digest=DIGEST, wait=True)

    def owners(self) -> list[str]:
        return [each["owner"] for each in self.daemon.ask("instances")["instances"]]


@pytest.fixture
def neighbours_of(daemon: Inside, folder: Path) -> Iterator[list[Neighbour]]:
    found: list[Neighbour] = []
    try:
        found.extend(Neighbour(folder / address, address) for address in (SECOND, THIRD))
        yield found
    finally:
        for each in found:
            each.daemon.process.kill()
            each.daemon.process.wait()


def ticket(**changes: Any) -> str:
    said = {"job": "17", "uid": UID, "digest": DIGEST, "expires_s": CLOCK.now_s() + 600, **changes}
    return make_job_ticket(KEY, JobTicket(**said))


def claim(daemon: Inside, **changes: Any) -> dict[str, Any]:
    return daemon.ask("claim", **{"job": "17", "uid": UID, **changes})


def pin(daemon: Inside, owner: str = "reservation:job-17", name: str = DIGEST) -> None:
    daemon.ask("pin", name=name, owner=owner, until_s=CLOCK.now_s() + 600)


def owners(daemon: Inside) -> list[str]:
    return sorted(each["owner"] for each in daemon.ask("instances")["instances"])


def test_pin_of_the_service_for_a_job_stands_for_a_ticket(daemon: Inside) -> None:
    pin(daemon)
    made = claim(daemon, pinned=True)

    assert (made["digest"], made["owner"], made["uid"]) == (f"sha256:{DIGEST}", "job-17", UID)


def test_job_without_a_pin_has_nothing(daemon: Inside) -> None:
    pin(daemon, "reservation:job-18")
    with pytest.raises(NotAllowed, match="no image is held on this node for job 17"):
        claim(daemon, pinned=True)

    assert owners(daemon) == []


def test_pin_of_a_user_is_none_of_the_service(daemon: Inside) -> None:
    daemon.ask("pin", name=DIGEST, owner="reservation:job-17", until_s=CLOCK.now_s() + 600, uid=UID)

    with pytest.raises(NotAllowed):
        claim(daemon, pinned=True)


def test_pinned_private_image_is_for_its_readers_only(daemon: Inside) -> None:
    daemon.ask("add", uri=B, uid=4243, private=True)
    daemon.settle()
    pin(daemon, name=OTHER_DIGEST)
    with pytest.raises(NotAllowed, match="is not among its readers"):
        claim(daemon, pinned=True)

    assert claim(daemon, pinned=True, uid=4243)["uid"] == 4243


def test_pinned_image_on_its_way_is_missing_and_not_refused(daemon: Inside, carrier: ScriptedCarrier) -> None:
    gate = carrier.hold(B, after_bytes=1000)
    held = {"owner": "reservation:job-17", "until_s": CLOCK.now_s() + 600, "kind": "hold"}
    daemon.ask("add", uri=B, digest=OTHER_DIGEST, size_bytes=MIB, pin=held)
    try:
        with pytest.raises(NotInPool, match="still on its way"):
            claim(daemon, pinned=True)
    finally:
        gate.set()
    daemon.settle()

    assert claim(daemon, pinned=True)["digest"] == f"sha256:{OTHER_DIGEST}"


def test_two_tasks_of_an_array_have_a_copy_each(daemon: Inside) -> None:
    pin(daemon)
    first = claim(daemon, task=1, pinned=True)
    second = claim(daemon, task=2, ticket=ticket(job="-"))
    Path(first["path"]).write_bytes(b"changed")

    assert owners(daemon) == ["job-17.1", "job-17.2"]
    assert Path(second["path"]).read_bytes() == CONTENT


def test_release_of_one_task_leaves_the_other(daemon: Inside) -> None:
    for task in (1, 11):
        claim(daemon, task=task, ticket=ticket(job="-"))
    daemon.ask("release", owner="job-17.1")

    assert owners(daemon) == ["job-17.11"]


@pytest.mark.parametrize("task", [0, -1, "1", 1.5])
def test_task_is_a_number_from_one_on(daemon: Inside, task: object) -> None:
    with pytest.raises(BadRequest):
        claim(daemon, task=task, ticket=ticket())


def test_claim_and_release_reach_every_other_node(daemon: Inside, neighbours_of: list[Neighbour]) -> None:
    for each in neighbours_of:
        each.bring()
    made = claim(daemon, task=3, ticket=ticket(job="-"), nodes=[SECOND, THIRD])
    held = [each.owners() for each in neighbours_of]
    here = owners(daemon)
    released = [daemon.ask("release", owner="job-17.3", nodes=[SECOND, THIRD]) for _ in range(2)]

    assert held == [["job-17.3"]] * 2
    assert here == []
    assert sorted(made["paths"]) == [SECOND, THIRD]
    assert [each["removed"] for each in released] == [2, 0]
    assert [each.owners() for each in neighbours_of] == [[], []]


def test_node_without_the_image_sends_the_job_away_from_all(
    daemon: Inside, neighbours_of: list[Neighbour]
) -> None:
    neighbours_of[0].bring()
    with pytest.raises(NotInPool, match=f"node {THIRD}: image .* is not on this node"):
        claim(daemon, ticket=ticket(), nodes=[SECOND, THIRD])

    assert neighbours_of[0].owners() == []


def test_node_without_a_daemon_is_named(daemon: Inside, neighbours_of: list[Neighbour]) -> None:
    neighbours_of[0].bring()
    neighbours_of[1].daemon.end()
    with pytest.raises(NoDaemon, match=f"node {THIRD}: no daemon answers"):
        claim(daemon, ticket=ticket(), nodes=[SECOND, THIRD])

    assert neighbours_of[0].owners() == []


def test_node_with_another_name_is_not_asked(daemon: Inside, neighbours_of: list[Neighbour]) -> None:
    assert neighbours_of[0].owners() == []

    with pytest.raises(NoDaemon, match="it is another node"):
        # Another way to write the address of the second.
        claim(daemon, ticket=ticket(), nodes=["127.2"])


def test_node_that_says_nothing_is_not_waited_for_long(
    daemon: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "ALL_S", 0.5)
    with closing(socket.create_server((SECOND, PORT))):
        begin_s = CLOCK.monotonic_s()
        with pytest.raises(NoDaemon, match=r"no answer in 0\.5 s"):
            claim(daemon, ticket=ticket(), nodes=[SECOND])
        took_s = CLOCK.monotonic_s() - begin_s

    assert took_s < 10


@pytest.mark.parametrize("verb", ["claim", "release"])
def test_users_reach_no_other_node(daemon: Inside, verb: str) -> None:
    needs_root()
    fields = {"job": "17", "ticket": ticket()} if verb == "claim" else {"owner": "job-17"}

    def ask() -> dict[str, Any]:
        with DaemonClient(daemon.socket) as client:
            return client.ask(verb, {**fields, "nodes": [SECOND]})

    assert as_user(UID, ask)["raises"] == "NotAllowed"


@pytest.mark.parametrize("node", ["", "n 2", "../n2", "n2\n", "-n", "x" * 200])
def test_name_that_is_none_of_a_node_is_refused(daemon: Inside, node: str) -> None:
    with pytest.raises(BadRequest):
        claim(daemon, ticket=ticket(), nodes=[node])


def hook(daemon: Inside, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(ROOT / "cachemgr" / "hook.py"), *arguments]
    where = ["--socket", daemon.socket]
    return subprocess.run([*command, *where], env={}, cwd="/", capture_output=True, text=True, timeout=240)


def test_hook_names_user_task_and_pin(daemon: Inside) -> None:
    pin(daemon)
    made = hook(daemon, "claim", "--job", "17", "--task", "3", "--user", "nobody", "--pinned")
    shown = hook(daemon, "where", "--owner", "job-17.3")
    other = hook(daemon, "where", "--owner", "job-17")
    nobody = hook(daemon, "claim", "--job", "17", "--user", "no such\nuser", "--pinned")

    assert (made.returncode, made.stderr) == (0, "")
    assert shown.stdout == made.stdout
    assert (other.returncode, other.stdout) == (0, "")
    assert (nobody.returncode, nobody.stdout) == (2, "")
    assert "there is no user" in nobody.stderr


def test_hook_has_many_nodes_asked(daemon: Inside, neighbours_of: list[Neighbour]) -> None:
    for each in neighbours_of:
        each.bring()
    nodes = ["--nodes", f"{SECOND},{THIRD}"]
    made = hook(daemon, "claim", "--job", "17", "--uid", str(UID), "--ticket", ticket(), *nodes)
    held = [each.owners() for each in neighbours_of]
    released = hook(daemon, "release", "--owner", "job-17", *nodes)

    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
    assert held == [["job-17"]] * 2
    assert (released.returncode, [each.owners() for each in neighbours_of]) == (0, [[], []])
