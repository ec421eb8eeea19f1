"""A suspended job's machine goes on at another node: two folders and a relay between them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.rate import RateLimit
from cachemgr.machines.batch import kept
from cachemgr.machines.qemu.process import LOCK, holders
from cachemgr.relay.connections import RelaySettings
from cachemgr.relay.machines import NodeConversation, machine_path, thing_of
from cachemgr.relay.server import RelayServer
from cachemgr.relay.tickets import make_ticket
from testbed.depot import Depot
from testbed.linux_guest import LinuxGuest
from tests.amount import first
from tests.daemons.machines.engine import PYTHON, UID, WAIT_S, Engine
from tests.daemons.machines.test_batch_jobs import LAST, PROGRAM, StandIn
from tests.repository import ROOT

CLOCK = SystemClock()
KEY = b"a key of thirty-two bytes or so."
JOB = "7"


ARRIVES = """
import shutil
import sys
from cachemgr.machines.keeper import PROGRAM, real_site
from cachemgr.machines.live.arriving import MachineOffer, receive
from cachemgr.machines.machine import Machine
from cachemgr.machines.record import read_record
here, there = (Machine(folder, real_site("node", PROGRAM)) for folder in sys.argv[1:])
known = read_record(here.site.disk, here.folder)
there.make_folder()
for name in ("job.iso", "work.tar"):
    shutil.copy(f"{here.folder}/{name}", there.folder)
offer = MachineOffer(known.wish, 1, 1, known.qemu, known.place, there.place, "0" * 64, {})
receive(there, offer, {})
"""
"""A QEMU that waits for a running machine, and that nobody has told that it will not come."""


class TwoPlaces:
    """The machine of a job that was suspended, its node's relay, and another place for it."""

    def __init__(self, job: StandIn) -> None:
        self.job = job
        self.here, self.there = job.engine.machines, job.engine.folder / "there"
        self.there.mkdir(mode=0o1777)
        self.there.chmod(0o1777)
        self.depot = Depot()
        settings = RelaySettings(host="127.0.0.1", keys=(KEY,))
        self.relay = RelayServer(
            self.depot, settings, CLOCK, RateLimit(None, CLOCK), print, talk=NodeConversation
        )

    @property
    def folder(self) -> Path:
        return self.there / f"outrider-{UID}" / f"job-{JOB}"

    def step(self, name: str, machines: Path, **given: object) -> tuple[int, dict[str, str], str]:
        argv = [PYTHON, "-c", PROGRAM, str(machines), "", "", "", "move", name, JOB]
        environment = {
            "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(self.job.home),
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        done = self.as_user(argv, environment, json.dumps(given))
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    def as_user(
        self, argv: list[str], environment: dict[str, str], given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        user = {"user": UID, "group": UID, "extra_groups": []} if os.geteuid() == 0 else {}
        return subprocess.run(  # type: ignore[no-any-return, call-overload]
            argv,
            input=given,
            capture_output=True,
            text=True,
            env=environment,
            timeout=WAIT_S,
            cwd="/",
            **user,
        )

    def arrive(self) -> tuple[int, dict[str, str], str]:
        return self.step(
            "arrive", self.there, source=f"127.0.0.1:{self.relay.port}", path=machine_path(UID, JOB),
            ticket=make_ticket(KEY, thing_of(UID, JOB), CLOCK.now_s() + 600),
        )  # fmt: skip


@pytest.fixture
def places(engine: Engine, linux: LinuxGuest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoPlaces]:
    engine.machines.chmod(0o1777)
    made = TwoPlaces(StandIn(engine, linux))
    monkeypatch.setattr(kept, "FOLDER", str(made.here))
    process = made.job.start()
    made.job.wait_until_said(5)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(WAIT_S) == 0, made.job.output.read_text()
    yield made
    for pid in holders(str(made.folder / LOCK)):
        os.kill(pid, signal.SIGKILL)
    made.relay.close()
    made.depot.close()


def test_machine_goes_on_at_another_place_and_nowhere_else(places: TwoPlaces) -> None:
    job = places.job
    fetched = places.arrive()
    again = places.arrive()
    place = fetched[1]["place"]
    given = [places.step("give", places.here, place=place) for _ in range(2)]
    # Whoever starts the job where it was meanwhile begins nothing anew, and takes nothing away.
    asked = job.asked.read_text()
    back = job.start().wait(WAIT_S)
    asked_again, void = job.asked.read_text(), job.record()["state"]
    taken = [places.arrive() for _ in range(2)]
    dropped = [places.step("drop", places.here) for _ in range(2)]
    late = job.start().wait(WAIT_S)
    job.engine.machines = places.there
    last = job.start().wait(WAIT_S)

    assert (fetched[1]["state"], again[1]["state"]) == ("fetched", "fetched"), fetched[2] + again[2]
    assert [each[1].get("state") for each in given] == ["given"] * 2, given[0][2]
    assert (back, late, void) == (0, 0, "moved")
    assert asked_again == asked + "requeuehold 7\n"
    assert [each[1].get("state") for each in taken] == ["taken"] * 2, taken[0][2]
    assert [each[1].get("state") for each in dropped] == ["dropped"] * 2, dropped[0][2]
    assert last == 0, job.output.read_text()
    numbers = [word for word in job.said() if word.isdigit()]
    assert numbers == [str(number) for number in range(1, LAST + 1)]
    assert not places.folder.exists()


@pytest.mark.parametrize("is_cut", first([True, False]))
def test_file_that_came_in_part_or_wrong_is_fetched_again(places: TwoPlaces, is_cut: bool) -> None:
    places.folder.parent.mkdir(mode=0o700)
    places.folder.mkdir(mode=0o700)
    path = places.folder / "state.1"
    data = (places.job.folder / "state.1").read_bytes()
    path.write_bytes(data[: len(data) // 2] if is_cut else b"x" + data[1 : len(data) // 2])
    for each in (places.folder.parent, places.folder, path):
        os.chown(each, UID, -1)

    first, second = places.arrive(), places.arrive()

    assert first[1].get("state") == ("fetched" if is_cut else None), first[2]
    assert is_cut or "another digest" in first[2]
    assert second[1].get("state") == "fetched", second[2]
    assert path.read_bytes() == data


def test_machine_that_was_saved_while_it_came_alive_is_brought_where_that_still_waits(
    places: TwoPlaces,
) -> None:
    places.folder.parent.mkdir(mode=0o700)
    os.chown(places.folder.parent, UID, -1)
    argv = [PYTHON, "-c", ARRIVES, str(places.job.folder), str(places.folder)]
    waits = places.as_user(argv, {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)})
    before = holders(str(places.folder / LOCK))
    fetched = places.arrive()

    assert waits.returncode == 0, waits.stderr
    assert len(before) == 1
    assert fetched[1].get("state") == "fetched", fetched[2]
    assert holders(str(places.folder / LOCK)) == []
