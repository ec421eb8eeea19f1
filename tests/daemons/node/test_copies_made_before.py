"""Full copies that the service has made before their jobs start: whose they are, and when they go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import NoRoom, NotAllowed
from cachemgr.network.client import DaemonClient
from cachemgr.network.job_tickets import JobTicket, make_job_ticket
from tests.daemons.node.daemons import (
    CLOCK,
    MIB,
    Inside,
    ScriptedCarrier,
    as_user,
    eventually,
    needs_root,
    sha256,
)

FILE, SIF = "http://x/file", "http://x/tools.sif"
CONTENT = b"a" * 2 * MIB
SIF_CONTENT = (b"\0" * 32 + b"SIF_MAGIC").ljust(MIB, b"s")
DIGEST, SIF_DIGEST = sha256(CONTENT), sha256(SIF_CONTENT)
KEY = b"k" * 32
UID = 4242
OWNER = "reservation:job-17"
Start = Callable[..., Inside]


class LaterClock(SystemClock):
    """The machine's, and so much later."""

    later_s = 0

    def now_s(self) -> int:
        return super().now_s() + self.later_s


class Gated:
    """The daemon's own maker, by the site's file system without reflinks; its copies wait for a gate."""

    def __init__(self, maker: Any) -> None:
        self._maker = maker
        self.gate = threading.Event()
        self.gate.set()
        self.copies: list[str] = []
        self.choose, self.taken_bytes, self.remove = self._choose, maker.taken_bytes, maker.remove

    def _choose(self, image: Any, wanted: str | None, *, is_writable: bool) -> str:
        # Also where the tests' own disk has reflinks.
        found: str = self._maker.choose(image, wanted, is_writable=is_writable)
        return "copy" if found == "reflink" else found

    def hand_over(self, folder: str, other: str) -> None:
        self._maker.hand_over(folder, other)

    def make(self, wish: Any, image_path: str, folder: str) -> Any:
        if wish.method == "copy" and not Path(f"{folder}/.disk.made").exists():
            self.copies.append(folder.rpartition("/")[2])
            while not self.gate.wait(0.01):
                wish.watch(0)
        return self._maker.make(wish, image_path, folder)


@pytest.fixture
def daemon(inside: Start, carrier: ScriptedCarrier, folder: Path) -> Inside:
    return started(inside, carrier, folder)


def started(inside: Start, carrier: ScriptedCarrier, folder: Path, **texts: Any) -> Inside:
    carrier.contents = {FILE: CONTENT, SIF: SIF_CONTENT}
    (folder / "site.key").write_bytes(KEY)
    found = inside(relay_key=str(folder / "site.key"), **texts)
    found.node.maker = Gated(found.node.maker)
    for uri in (FILE, SIF):
        found.ask("add", uri=uri)
    found.settle()
    return found


def order(daemon: Inside, owner: str = OWNER, name: str = DIGEST, until_s: int = 600) -> dict[str, Any]:
    return daemon.ask("copy", name=name, owner=owner, until_s=CLOCK.now_s() + until_s)


def made(daemon: Inside, owner: str = OWNER) -> None:
    eventually("the copy is made", lambda: order(daemon, owner)["state"] == "ready", daemon.log)


def claim(daemon: Inside, job: str = "17", **changes: Any) -> dict[str, Any]:
    ticket = JobTicket(job=job, uid=UID, digest=DIGEST, expires_s=CLOCK.now_s() + 600)
    fields = {"job": job, "uid": UID, "ticket": make_job_ticket(KEY, ticket), **changes}
    return daemon.ask("claim", **{name: value for name, value in fields.items() if value is not None})


def owners(daemon: Inside) -> list[str]:
    return sorted(each["owner"] for each in daemon.ask("instances")["instances"])


def used_bytes(daemon: Inside) -> int:
    return int(daemon.ask("stats")["outrider_pool_used_bytes"])


def test_claim_takes_the_copy_that_was_made_before(daemon: Inside) -> None:
    before_bytes = used_bytes(daemon)
    made(daemon)
    made(daemon)
    between = owners(daemon), used_bytes(daemon)
    found = claim(daemon)

    assert len(daemon.node.maker.copies) == 1
    assert between == ([OWNER], before_bytes + len(CONTENT))
    assert Path(found["path"]).read_bytes() == CONTENT
    assert (found["method"], found["uid"]) == ("copy", UID)
    assert owners(daemon) == ["job-17"]
    assert used_bytes(daemon) == before_bytes + len(CONTENT)
    assert Path(found["path"]).stat().st_mode & 0o077 in (0, 0o060)


def test_image_stays_as_it_is_when_the_job_writes(daemon: Inside) -> None:
    made(daemon)
    first = claim(daemon)
    Path(first["path"]).write_bytes(b"changed")
    made(daemon)
    second = claim(daemon, attempt=1)

    assert Path(second["path"]).read_bytes() == CONTENT
    assert Path(daemon.ask("find", name=DIGEST)["path"]).read_bytes() == CONTENT


def test_copy_of_another_job_is_left_alone(daemon: Inside) -> None:
    made(daemon, "reservation:job-18")
    claim(daemon)

    assert owners(daemon) == ["job-17", "reservation:job-18"]
    assert len(daemon.node.maker.copies) == 2


def test_job_in_a_reservation_takes_its_copy(daemon: Inside) -> None:
    owner = "reservation:night-1"
    daemon.ask("pin", name=DIGEST, owner=owner, until_s=CLOCK.now_s() + 600, kind="hold")
    made(daemon, owner)
    claim(daemon, ticket=None, reservation="night-1")

    assert len(daemon.node.maker.copies) == 1
    assert owners(daemon) == ["job-17"]


def test_job_waits_for_a_copy_that_is_just_being_made(daemon: Inside) -> None:
    maker = daemon.node.maker
    maker.gate.clear()
    order(daemon)
    eventually("it is under way", lambda: maker.copies, daemon.log)
    copyist, asked = daemon.node.copyist, threading.Event()
    wait = copyist.wait

    def told_of(key: str, tell: Any) -> None:
        asked.set()
        wait(key, tell)

    copyist.wait = told_of
    found: list[dict[str, Any]] = []
    job = threading.Thread(target=lambda: found.append(claim(daemon)))
    job.start()
    assert asked.wait(60)
    maker.gate.set()
    job.join(60)

    assert Path(found[0]["path"]).read_bytes() == CONTENT
    assert len(maker.copies) == 1
    assert owners(daemon) == ["job-17"]


@pytest.mark.parametrize("verb", ["unpin", "release"])
def test_copy_goes_with_its_pin(daemon: Inside, verb: str) -> None:
    before_bytes = used_bytes(daemon)
    daemon.ask("pin", name=DIGEST, owner=OWNER, until_s=CLOCK.now_s() + 600, kind="hold")
    made(daemon)
    daemon.ask(verb, owner=OWNER, **({"name": DIGEST} if verb == "unpin" else {}))

    assert owners(daemon) == []
    assert used_bytes(daemon) == before_bytes
    assert daemon.ask("find", name=DIGEST)["pins"] == 0


def test_copy_that_nobody_wants_any_more_is_given_up_while_it_is_made(daemon: Inside) -> None:
    maker = daemon.node.maker
    maker.gate.clear()
    order(daemon)
    eventually("it is under way", lambda: maker.copies, daemon.log)
    daemon.ask("unpin", name=DIGEST, owner=OWNER)

    # The gate stays shut: nothing but giving it up ends it.
    eventually("nothing is held", lambda: daemon.node.pending == [], daemon.log)

    assert owners(daemon) == []


def test_copy_ends_by_itself_if_the_service_is_gone(
    inside: Start, carrier: ScriptedCarrier, folder: Path
) -> None:
    clock = LaterClock()
    daemon = started(inside, carrier, folder, sweep_interval="1s", clock=clock)
    made(daemon)
    clock.later_s = 601

    eventually("it has expired", lambda: owners(daemon) == [], daemon.log)
    assert used_bytes(daemon) == len(CONTENT) + len(SIF_CONTENT)


def test_sif_needs_no_copy_and_cannot_be_changed_through_its_instance(daemon: Inside) -> None:
    told = order(daemon, name=SIF_DIGEST)
    ticket = make_job_ticket(
        KEY, JobTicket(job="17", uid=UID, digest=SIF_DIGEST, expires_s=CLOCK.now_s() + 600)
    )
    found = claim(daemon, ticket=ticket)
    wanted = daemon.ask("instance", name=SIF_DIGEST, owner="w", until_s=CLOCK.now_s() + 60, is_writable=True)

    assert told["state"] == "needless"
    assert (found["method"], found["is_writable"]) == ("shared", False)
    assert Path(found["path"]).read_bytes() == SIF_CONTENT
    assert Path(found["path"]).stat().st_mode & 0o222 == 0
    assert (wanted["method"], wanted["is_writable"]) == ("copy", True)


def test_node_says_of_which_formats_it_makes_copies(daemon: Inside) -> None:
    assert daemon.ask("promise")["copied_formats"] == ["file"]


def test_copy_is_refused_where_promised_bytes_would_give_way(
    inside: Start, carrier: ScriptedCarrier, folder: Path
) -> None:
    daemon = started(inside, carrier, folder, limit_bytes=8 * MIB)
    daemon.ask("promise", size_bytes=7 * MIB, until_s=CLOCK.now_s() + 600)
    daemon.ask("pin", name=DIGEST, owner=OWNER, until_s=CLOCK.now_s() + 600, kind="hold")
    # Of 7 MiB that are promised the image is 2, and so may be the copy.
    within = order(daemon)["state"]
    eventually("it is made", lambda: order(daemon)["state"] == "ready", daemon.log)
    claim(daemon)
    with pytest.raises(NoRoom, match=r"a full copy of image .* needs 2\.0 MiB, and the pool lacks 1\.0 MiB"):
        order(daemon)

    assert within in ("copying", "ready")


def test_failed_copy_is_told_once_and_tried_again(daemon: Inside) -> None:
    maker = daemon.node.maker

    def fail(wish: Any, image_path: str, folder: str) -> Any:
        raise NoRoom("the disk is full")

    whole, maker.make = maker.make, fail
    order(daemon)
    eventually("it has failed", lambda: "copy not made" in daemon.log(), daemon.log)
    with pytest.raises(NoRoom, match="the disk is full"):
        order(daemon)
    maker.make = whole
    made(daemon)

    assert owners(daemon) == [OWNER]


def test_users_neither_order_copies_nor_take_them(daemon: Inside) -> None:
    needs_root()
    made(daemon)

    def ask() -> list[str]:
        told = []
        for verb, more in (("copy", {}), ("instance", {"made_for": [OWNER]})):
            with closing(DaemonClient(daemon.socket)) as client:
                fields = {"name": FILE, "owner": OWNER, "until_s": CLOCK.now_s() + 60, **more}
                try:
                    told.append(str(client.ask(verb, fields)))
                except NotAllowed as error:
                    told.append(error.code)
        return told

    assert as_user(UID, ask)["gives"] == ["not-allowed", "not-allowed"]
    assert owners(daemon) == [OWNER]


def test_claim_tells_how_far_a_copy_is(daemon: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cachemgr.daemon.copies.TELL_S", 0.0)
    told: list[dict[str, Any]] = []
    ticket = make_job_ticket(KEY, JobTicket(job="17", uid=UID, digest=DIGEST, expires_s=CLOCK.now_s() + 600))
    with DaemonClient(daemon.socket) as client:
        line = b'{"v":1,"do":"claim","job":"17","uid":%d,"ticket":"%s"}\n' % (UID, ticket.encode())
        client._send(line, ())
        while "ok" not in (answer := client._receive(20)):
            told.append(answer["progress"])

    assert told[-1] == {"copied_bytes": len(CONTENT), "size_bytes": len(CONTENT)}
    assert answer["ok"] is True
