"""Files of machines over the relay: with a ticket for that machine, and only if they are its user's."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.rate import RateLimit
from cachemgr.machines.batch import kept
from cachemgr.relay.connections import RelaySettings
from cachemgr.relay.machines import NodeConversation, machine_path, thing_of
from cachemgr.relay.server import RelayServer
from cachemgr.relay.tickets import make_ticket
from testbed.depot import Depot

CLOCK = SystemClock()
KEY = b"a key of thirty-two bytes or so."
UID, JOB = 1000 if os.geteuid() == 0 else os.geteuid(), "17"
DATA = bytes(range(256)) * 5
WAIT_S = 60


class MachineRelay:
    """A relay beside the folder of one machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / f"outrider-{UID}" / f"job-{JOB}"
        self.folder.mkdir(parents=True)
        self.add("state.1")
        for each in (self.folder.parent, self.folder):
            os.chown(each, UID, -1)
        self.depot = Depot()
        settings = RelaySettings(host="127.0.0.1", keys=(KEY,))
        self.server = RelayServer(
            self.depot, settings, CLOCK, RateLimit(None, CLOCK), print, talk=NodeConversation
        )

    def add(self, name: str, uid: int = UID) -> None:
        (self.folder / name).write_bytes(DATA)
        os.chown(self.folder / name, uid, -1)

    def ask(self, path: str, thing: str = "", first: int = 0) -> tuple[int, bytes]:
        headers = {"Range": f"bytes={first}-"} if first else {}
        if thing:
            headers["Authorization"] = f"Outrider {make_ticket(KEY, thing, CLOCK.now_s() + 60)}"
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=WAIT_S)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def of(self, name: str, **options: int) -> tuple[int, bytes]:
        return self.ask(f"{machine_path(UID, JOB)}/{name}", thing_of(UID, JOB), **options)


@pytest.fixture
def relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MachineRelay]:
    monkeypatch.setattr(kept, "FOLDER", str(tmp_path))
    made = MachineRelay(tmp_path)
    yield made
    made.server.close()
    made.depot.close()


def test_file_comes_whole_and_from_where_an_earlier_attempt_ended(relay: MachineRelay) -> None:
    assert relay.of("state.1") == (200, DATA)
    assert relay.of("state.1", first=1000) == (206, DATA[1000:])


def test_ticket_is_for_one_machine(relay: MachineRelay) -> None:
    path = f"{machine_path(UID, JOB)}/state.1"

    assert relay.ask(path)[0] == 401
    assert relay.ask(path, thing_of(UID, "18"))[0] == 401
    assert relay.ask(path, thing_of(UID + 1, JOB))[0] == 401
    assert relay.ask(f"/v1/images/sha256:{'0' * 64}", thing_of(UID, JOB))[0] == 401


@pytest.mark.parametrize("name", ["missing", "../job-17/state.1", "link", "folder"])
def test_what_is_no_file_of_the_machine_is_not_there(relay: MachineRelay, name: str) -> None:
    (relay.folder / "link").symlink_to("state.1")
    (relay.folder / "folder").mkdir()
    os.chown(relay.folder / "folder", UID, -1)

    assert relay.of(name)[0] == 404


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of several users")
def test_files_of_others_are_not_given(relay: MachineRelay) -> None:
    relay.add("foreign", uid=UID + 1)
    before = relay.of("foreign")[0]
    os.chown(relay.folder, UID + 1, -1)

    assert before == 404
    assert relay.of("state.1")[0] == 404
