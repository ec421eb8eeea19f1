"""A running machine goes over the network to another node: it hardly stops, and runs in one place."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from random import Random

import pytest

from cachemgr.base.clock import SystemClock
from testbed.hosts import Hosts, HostsError
from tests.daemons.machines.engine import PYTHON, UID, WAIT_S, Engine, wait_until
from tests.daemons.machines.test_counting_machines import assert_counted
from tests.repository import ROOT

LINK_BITS_PER_S = 4_000_000
CUT_AFTER_S = (0.5, 1.5, 2.5, 4.0)
"""What is sent of a small guest takes longer over that link."""
CLOCK = SystemClock()
STILL_S = 1.0
"""A guest in emulation that says nothing for so long stands still while its memory is sent."""
PORT = 7300
TARGETS_KILLED = 12
LONGEST_S = 2.0


def free_address() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


def key_file(engine: Engine, name: str, text: str) -> str:
    path = engine.folder / name
    path.write_text(text)
    path.chmod(0o600)
    os.chown(path, UID, -1)
    return str(path)


class Crossing:
    """Two folders, as if they were on two nodes, and a place between them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.address = free_address()
        self.key = key_file(engine, "key", "k" * 32)

    @contextmanager
    def waiting(self, machine: str, node: str = "node") -> Iterator[subprocess.Popen[str]]:
        """Somebody who waits for a machine there."""
        folder = str(self.engine.machines / machine)
        argv = self.engine.command("receive", folder, *self.at(self.key))
        waits = self.engine.popen([*argv[:-2], "--node", node])
        host, port = self.address.split(":")

        def is_up() -> bool:
            with closing(socket.socket()) as found:
                return found.connect_ex((host, int(port))) == 0

        wait_until(is_up, lambda: f"nobody waits at {self.address}")
        try:
            yield waits
        finally:
            if waits.poll() is None:
                waits.kill()
                waits.wait()

    def at(self, key: str) -> tuple[str, ...]:
        return ("--at", self.address, "--key", key)


@pytest.fixture
def crossing(engine: Engine, counter: str) -> Crossing:
    engine("start", "a", "--wish", counter)
    engine.wait_until_counted("a", 5)
    return Crossing(engine)


def test_machine_goes_to_another_node_and_hardly_stops(crossing: Crossing) -> None:
    engine = crossing.engine
    engine("suspend", "a")
    engine("resume", "a")
    stranger = key_file(engine, "stranger", "s" * 32)
    with crossing.waiting("b", "other") as waits:
        refused = engine.refused("migrate", "a", *crossing.at(stranger))
        counted = max(engine.counted("a"))
        engine.wait_until_counted("a", counted + 3)
        done = engine("migrate", "a", *crossing.at(crossing.key))
        arrived = json.loads(waits.communicate(timeout=WAIT_S)[0])
    engine.wait_until_counted("b", max(engine.counted("b")) + 5)

    assert "use one key at both" in refused or "the other end of the migration is gone" in refused
    assert (done["state"], done["to"]) == ("moved", f"other:{engine.machines / 'b'}")
    assert done["figures"]["memory_bytes"] > 0
    assert (arrived["state"], waits.returncode) == ("running", 0)
    assert engine.qemus("a") == []
    assert "cannot be resumed" in engine.refused("resume", "a")
    assert_counted(engine, "b")
    names = os.listdir(engine.machines / "a") + os.listdir(engine.machines / "b")
    assert not {"disk.sock", "memory.sock"} & set(names)


@pytest.mark.long
def test_machine_goes_in_the_end_whichever_end_is_killed(crossing: Crossing) -> None:
    """The source's before each of its steps, then the target's at any time."""
    engine, here, there = crossing.engine, "a", "b"
    with crossing.waiting(there):
        count = engine.stepped(0, "migrate", here, *crossing.at(crossing.key))
    here, there, stayed, chance = there, here, 0, Random(1)
    for step in (*range(1, count + 1), *[0] * TARGETS_KILLED):
        engine("remove", there)
        with crossing.waiting(there) as waits:
            if step:
                engine.stepped(step, "migrate", here, *crossing.at(crossing.key))
            else:
                sends = engine.popen(
                    engine.command("migrate", str(engine.machines / here), *crossing.at(crossing.key))
                )
                time.sleep(chance.random() * LONGEST_S)
                waits.kill()
                sends.communicate(timeout=WAIT_S)
        state = engine("status", here)["state"]
        stayed += state == "running"
        with crossing.waiting(there):
            engine("migrate", here, *crossing.at(crossing.key))

        assert state in ("running", "moved")
        assert engine.qemus(here) == []
        here, there = there, here
        engine.wait_until_counted(here, max(engine.counted(here)) + 2)
        assert_counted(engine, here)
    assert 0 < stayed < count + TARGETS_KILLED


def on_host(engine: Engine, hosts: Hosts, number: int, verb: str, *arguments: str) -> subprocess.Popen[str]:
    """The engine on one of two hosts, as the machine's user."""
    user = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    argv = hosts.command(number, [*user, *engine.command(verb, *arguments)])
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        argv, env=environment, cwd=engine.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@contextmanager
def received(engine: Engine, hosts: Hosts, machine: str, at: tuple[str, ...]) -> Iterator[None]:
    waits = on_host(engine, hosts, 1, "receive", str(engine.machines / machine), *at)
    ask = f"import socket; socket.create_connection(({hosts.address(1)!r}, {PORT})).close()"

    def is_up() -> bool:
        with suppress(HostsError):
            hosts.run(0, [PYTHON, "-c", ask], 5.0)
            return True
        return False

    try:
        wait_until(is_up, lambda: "nobody waits on the other host")
        yield
    finally:
        waits.kill()
        waits.communicate(timeout=WAIT_S)


def wait_until_still(engine: Engine, machine: str, sends: subprocess.Popen[str]) -> None:
    """Until memory is being sent; disks are before."""
    counted, since_s = 0, CLOCK.monotonic_s()

    def is_still() -> bool:
        nonlocal counted, since_s
        found = max(engine.counted(machine))
        if found != counted:
            counted, since_s = found, CLOCK.monotonic_s()
        return CLOCK.monotonic_s() - since_s > STILL_S

    wait_until(is_still, lambda: f"machine {machine} never stands still")
    assert sends.poll() is None, sends.communicate()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for hosts of its own")
def test_machine_stays_where_it_is_while_the_link_is_cut(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    engine.wait_until_counted("a", 5)
    said = []
    with Hosts(2, LINK_BITS_PER_S) as hosts:
        at = ("--at", f"{hosts.address(1)}:{PORT}", "--key", key_file(engine, "key", "k" * 32))
        for after_s in (*CUT_AFTER_S, None, None):
            with received(engine, hosts, "b", at):
                sends = on_host(engine, hosts, 0, "migrate", str(engine.machines / "a"), *at)
                if after_s is None:
                    wait_until_still(engine, "a", sends)
                else:
                    time.sleep(after_s)
                hosts.cut(1)
                said.append(sends.communicate(timeout=2 * WAIT_S)[1])
                hosts.mend(1)

            assert sends.returncode != 0, after_s
            assert engine("status", "a")["state"] == "running"
            engine.wait_until_counted("a", max(engine.counted("a")) + 3)
        with received(engine, hosts, "b", at):
            sends = on_host(engine, hosts, 0, "migrate", str(engine.machines / "a"), *at)
            last = sends.communicate(timeout=WAIT_S)[1]
        # What runs on a host ends with it.
        assert sends.returncode == 0, (last, said)
        assert (engine.qemus("a"), len(engine.qemus("b"))) == ([], 1)
        engine.wait_until_counted("b", max(engine.counted("b")) + 3)
        assert_counted(engine, "b")
    assert all(text.startswith("outrider: ") for text in said), said
