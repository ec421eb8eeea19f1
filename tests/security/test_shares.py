"""One user's share of what all need: threads, the desk's time, the journal, names of the catalogue."""

from __future__ import annotations

import os
import tempfile
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import Unsuitable
from outrider.core.model import Resources
from outrider.rms.base import Refused, RmsNode, Submission
from outrider.rms.embedded import EmbeddedSystem, ProcessLauncher, journal
from outrider.rms.embedded.launching import Command
from outrider.rms.embedded.system import MOST_BYTES_OF_ONE, MOST_JOBS_OF_ONE
from outrider.service.daemon.threads.backups import copy_asked_for
from outrider.service.daemon.threads.inbox import Inbox
from outrider.service.daemon.threads.reception import MOST_KEYS, Reception
from outrider.service.front import Busy, NotDone, Submit
from outrider.service.images.catalogue import Catalogue, CatalogueImage
from outrider.service.ports import ImageTrouble, Readers
from outrider.service.requests import Caller
from outrider.service.task_threads import TaskThreads
from tests.daemons.node.daemons import needs_root
from tests.unit.service.daemon.fakes import eventually

MALLORY, ALICE = 1_002, 1_001


class Slow:
    """A task that lasts until it may end."""

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate
        self.has_begun = threading.Event()

    def run(self) -> None:
        self.has_begun.set()
        self.gate.wait(20)

    def give_up(self, words: str) -> None:
        self.gate.set()


def test_slow_lookups_of_one_user_leave_threads_to_others() -> None:
    gate = threading.Event()
    threads = TaskThreads(
        "lookups", 4, clock=SystemClock(), most_waiting=64, most_of_one=8, most_running_of_one=1
    )
    tarpits = [Slow(gate) for _ in range(8)]
    quick = Slow(gate)
    for each in tarpits:
        threads.add(each, MALLORY)
    threads.add(quick, ALICE)
    try:
        assert quick.has_begun.wait(60)
        eventually(lambda: sum(each.has_begun.is_set() for each in tarpits) == 1, "the first of them")
    finally:
        gate.set()
    eventually(lambda: all(each.has_begun.is_set() for each in tarpits), "the others' turn")
    threads.close()


def test_user_with_many_requests_waits_for_those_of_others() -> None:
    inbox: Inbox[str] = Inbox(100)
    for number in range(64):
        inbox.put_request(f"mallory {number}", MALLORY)
    inbox.put_request("alice 0", ALICE)
    inbox.put_request("alice 1", ALICE)

    taken = [inbox.take(0) for _ in range(5)]

    assert taken == ["mallory 0", "alice 0", "mallory 1", "alice 1", "mallory 2"]
    assert len(inbox) == 61


def test_request_of_who_asks_for_little_is_next_after_the_one_in_hand() -> None:
    inbox: Inbox[str] = Inbox(1_000)
    hostile = range(2_000, 2_010)
    for uid in hostile:
        for _ in range(20):
            inbox.put_request(str(uid), uid)
    for _ in range(35):
        inbox.charge(int(inbox.take(0) or 0), 0.128)
    inbox.put_request("alice", ALICE)
    before = []
    while (taken := inbox.take(0)) != "alice":
        before.append(taken)
        inbox.charge(int(taken or 0), 0.128)

    assert len(before) <= 5, "those who have had one search less than the others"


def test_users_with_most_give_way_where_all_places_of_the_desk_are_taken() -> None:
    inbox: Inbox[str] = Inbox(100)
    for uid in (2_000, 2_001):
        for number in range(64):
            with suppress(Busy):
                inbox.put_request(f"{uid} {number}", uid)
    displaced = inbox.put_request("alice", ALICE)
    for _ in range(25):
        inbox.put_request("root", 0, is_privileged=True)

    # The second has already got as many of the 75 as the first, but for one.
    assert displaced == "2000 37"
    assert len(inbox) == 100
    assert {share.user: share.held for share in inbox.shares()}["1001"] == 1
    assert [inbox.take(0) for _ in range(4)] == ["2000 0", "2001 0", "alice", "root"]


def test_site_program_asks_of_one_user_leave_threads_to_others() -> None:
    gate = threading.Event()
    threads = TaskThreads(
        "the program", 4, clock=SystemClock(), most_of_one=16, most_running_of_one=1, kept_threads=1
    )
    tasks = {uid: Slow(gate) for uid in (*range(2_000, 2_010), 0)}
    for uid, each in tasks.items():
        threads.add(each, uid)
    try:
        assert tasks[0].has_begun.wait(60)
        # One of the four is kept for root, whenever it comes.
        eventually(lambda: sum(each.has_begun.is_set() for each in tasks.values()) >= 3, "the threads")
    finally:
        gate.set()
    eventually(lambda: all(each.has_begun.is_set() for each in tasks.values()), "the others' turn")
    threads.close()


def test_batch_system_is_asked_for_the_service_between_submissions_of_users() -> None:
    order: list[str] = []
    first = Slow(threading.Event())

    class Noting:
        def __init__(self, name: str) -> None:
            self.name = name

        def run(self) -> None:
            order.append(self.name)

        def give_up(self, words: str) -> None: ...

    threads = TaskThreads("the batch system", 1, clock=SystemClock(), most_of_one=16)
    threads.add(first, MALLORY)
    assert first.has_begun.wait(60)
    for uid in range(2_000, 2_010):
        for _ in range(16):
            threads.add(Noting("submission"), uid)
    for _ in range(3):
        threads.add(Noting("service"))
    first.gate.set()
    eventually(lambda: len(order) == 163, "all of them")
    threads.close()

    assert [at for at, name in enumerate(order) if name == "service"] == [0, 2, 4]


class Door:
    """Workers that hand a job over at once, and count."""

    def __init__(self) -> None:
        self.jobs = 0

    def submitting(self, hand_over: object, uid: int) -> Future[str]:
        self.jobs += 1
        future: Future[str] = Future()
        future.set_result(str(self.jobs))
        return future


def test_keys_of_one_user_do_not_push_out_those_of_others() -> None:
    door = Door()
    nothing: Any = None
    workers: Any = door
    reception = Reception(
        loop=nothing,
        workers=workers,
        config=nothing,
        policies=nothing,
        metrics=nothing,
        log=nothing,
        shares=nothing,
        recent=nothing,
    )

    def submitted(uid: int, key: str) -> str:
        caller = Caller(uid=uid, user=str(uid))
        return reception.submit(caller, Submit(argv=("/bin/true",), key=key, request_hash="h")).result()

    first = submitted(ALICE, "mine")
    for number in range(MOST_KEYS + 1):
        submitted(MALLORY, f"k{number}")

    assert submitted(ALICE, "mine") == first
    assert submitted(MALLORY, "k0") == str(MOST_KEYS + 3)


class Silent:
    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...


def system_in(folder: Path) -> EmbeddedSystem:
    folder.mkdir(exist_ok=True)
    node = RmsNode(name="n1", capacity=Resources.of(cpus=1))
    launcher = ProcessLauncher(folder / "jobs")
    return EmbeddedSystem([node], folder / "jobs.json", clock=SystemClock(), launcher=launcher, log=Silent())


def job(*argv: str, metadata: str | None = None) -> Submission:
    return Submission(
        user="me",
        uid=os.geteuid(),
        argv=argv,
        nodes_wanted=1,
        resources=Resources.of(cpus=1),
        limit_s=60,
        metadata=metadata,
        reservation=None,
    )


def held(system: EmbeddedSystem) -> EmbeddedSystem:
    """A system on which nothing starts."""
    system.outside.drain("n1")
    return system


def test_long_commands_of_one_user_do_not_outgrow_the_journal(tmp_path: Path) -> None:
    system = held(system_in(tmp_path / "e"))
    # A control character takes six bytes of JSON.
    long = job("/bin/true", "\x01" * 99_000)
    taken = 0
    with suppress(Refused):
        while taken < 100:
            system.submit(long)
            taken += 1

    written = (tmp_path / "e" / "jobs.json").stat().st_size
    assert 1 < taken < 10
    assert written < MOST_BYTES_OF_ONE + 100_000 < journal.MOST_BYTES
    assert journal.read(tmp_path / "e" / "jobs.json") is not None


def test_one_user_has_only_so_many_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.rms.embedded.system.MOST_JOBS_OF_ONE", 3)
    system = held(system_in(tmp_path / "e"))
    for _ in range(3):
        system.submit(job("/bin/true"))

    assert MOST_JOBS_OF_ONE == 1_000
    with pytest.raises(Refused, match="the most that one user may have"):
        system.submit(job("/bin/true"))


def test_named_pipe_in_the_place_of_an_image_keeps_no_transfer_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "image")

    with pytest.raises(Unsuitable, match="not a regular file"):
        RealDisk().reflink(str(tmp_path / "image"), str(tmp_path / "copy"), 0o600)


def test_private_names_of_the_catalogue_cannot_be_guessed() -> None:
    digest = f"sha256:{'0' * 64}"
    catalogue = Catalogue(
        (
            CatalogueImage(name="debian", uri="http://x/debian", digest=digest, size_bytes=1),
            CatalogueImage(
                name="merger", uri="http://x/m", digest=digest, size_bytes=1, readers=Readers(uids=(ALICE,))
            ),
        )
    )

    def words(name: str, uid: int) -> str:
        with pytest.raises(ImageTrouble) as caught:
            catalogue.find(name, is_private=True, uid=uid, gids=())
        return str(caught.value)

    assert words("merger", MALLORY).replace("merger", "marger") == words("marger", MALLORY)
    assert "did you mean merger" in words("merge", ALICE)
    assert catalogue.find("merger", is_private=True, uid=ALICE, gids=()).size_bytes == 1


@pytest.mark.parametrize("name", ["ld.so.preload", "cron.d/outrider", "profile.d/x.sh", "authorized_keys"])
def test_copy_of_the_store_cannot_pass_for_a_file_that_others_obey(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)

    with pytest.raises(NotDone, match="let its name end with"):
        copy_asked_for(tmp_path / "store", str(path))


def test_output_of_another_users_job_is_not_written_on() -> None:
    needs_root()
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="sec") as name:
        folder = Path(name)
        left = folder / "1.out"
        left.write_text("of mallory's\n")
        os.chown(left, 5, 5)
        reading = left.open()
        handle = ProcessLauncher(folder).launch(
            Command(job="1", uid=9, argv=("/bin/echo", "of alice's"), variables={})
        )
        handle.begin()
        eventually(handle.is_over, "the job's end")

        assert left.read_text() == "of alice's\n"
        assert left.stat().st_uid == 9
        assert reading.read() == "of mallory's\n"
        reading.close()
