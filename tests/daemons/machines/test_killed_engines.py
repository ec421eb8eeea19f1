"""The engine killed before any of its steps: the guest misses and repeats nothing, and runs in one place."""

from __future__ import annotations

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random

import pytest

from cachemgr.machines.qemu.layers import MOST_LAYERS
from tests.amount import LONG
from tests.daemons.machines.engine import Engine, wait_until

LONGEST_VERB_S = 1.5
ROUNDS_OF_A_MACHINE = MOST_LAYERS // 2
SHORT = 5
"""In the short form so many steps of a verb are tried, from the first to the last."""


def steps_to_try(count: int) -> list[int]:
    if os.environ.get(LONG):
        return list(range(1, count + 1))
    return sorted({1 + number * (count - 1) // (SHORT - 1) for number in range(SHORT)})


def settled(engine: Engine, machine: str) -> str:
    """What is true once somebody looks again; at most one QEMU is alive."""
    assert len(engine.qemus(machine)) <= 1
    found = engine("status", machine)
    assert len(engine.qemus(machine)) == (1 if found["state"] == "running" else 0)
    return str(found["state"])


def goes_on(engine: Engine, machine: str) -> None:
    engine.wait_until_counted(machine, max(engine.counted(machine), default=0) + 3)
    found = engine.counted(machine)
    assert found == list(range(1, len(found) + 1))


def test_engine_killed_while_it_suspends(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    engine.wait_until_counted("a", 3)
    count = engine.stepped(0, "suspend", "a")
    engine("resume", "a")
    states = set()
    for step in steps_to_try(count):
        goes_on(engine, "a")
        engine.stepped(step, "suspend", "a")
        state = settled(engine, "a")
        states.add(state)
        if state == "suspended":
            engine("resume", "a")
    goes_on(engine, "a")

    # Killed early it runs on, killed late it is suspended: nothing between.
    assert states == {"running", "suspended"}
    assert [name for name in os.listdir(engine.machines / "a") if name.startswith("state")] == []


@pytest.mark.long
def test_engine_killed_while_it_resumes(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    goes_on(engine, "a")
    engine("suspend", "a")
    count = engine.stepped(0, "resume", "a")
    states = set()
    for step in steps_to_try(count):
        goes_on(engine, "a")
        engine("suspend", "a")
        engine.stepped(step, "resume", "a")
        state = settled(engine, "a")
        states.add(state)
        if state == "suspended":
            engine("resume", "a")
    goes_on(engine, "a")

    assert states == {"running", "suspended"}


@pytest.mark.long
def test_engine_killed_while_it_starts(engine: Engine, counter: str) -> None:
    count = engine.stepped(0, "start", "a", "--wish", counter)
    engine("stop", "a", "--grace", "0")
    for step in steps_to_try(count):
        name = f"a{step}"
        engine.stepped(step, "start", name, "--wish", counter)
        assert len(engine.qemus(name)) <= 1
        assert engine("start", name, "--wish", counter)["state"] == "running"
        assert len(engine.qemus(name)) == 1
        goes_on(engine, name)
        engine("stop", name, "--grace", "0")
        engine("remove", name)
        assert os.listdir(engine.machines / name) == ["busy"]


@pytest.mark.long
def test_engine_killed_while_it_migrates(engine: Engine, counter: str) -> None:
    engine("start", "m0", "--wish", counter)
    goes_on(engine, "m0")
    count = engine.stepped(0, "migrate", "m0", "--to-folder", str(engine.machines / "m1"))
    engine("remove", "m0")
    number = 1
    for step in steps_to_try(count):
        here, there = f"m{number}", f"m{number + 1}"
        goes_on(engine, here)
        target = str(engine.machines / there)
        engine.stepped(step, "migrate", here, "--to-folder", target)
        is_over = engine("status", here)["state"] == "moved"
        assert not (is_over and engine.qemus(here))
        assert is_over or engine("status", here)["state"] == "running"

        # Asked again, it is brought to its end, wherever it was.
        engine("migrate", here, "--to-folder", target)
        assert engine.qemus(here) == []
        assert len(engine.qemus(there)) == 1
        goes_on(engine, there)
        engine("remove", here)
        assert os.listdir(engine.machines / here) == ["busy"]
        number += 1


@pytest.mark.long
@pytest.mark.parametrize("verb", ["stop", "remove"])
def test_engine_killed_while_it_ends_a_machine(engine: Engine, counter: str, verb: str) -> None:
    more = ("--grace", "0") if verb == "stop" else ()

    def made() -> None:
        engine("start", "a", "--wish", counter)
        if verb == "remove":
            engine("stop", "a", "--grace", "0")

    made()
    count = engine.stepped(0, verb, "a", *more)
    engine("remove", "a")
    for step in steps_to_try(count):
        made()
        engine.stepped(step, verb, "a", *more)
        engine(verb, "a", *more)
        assert engine.qemus("a") == []
        engine("remove", "a")
        assert os.listdir(engine.machines / "a") == ["busy"]


def test_qemu_killed_while_it_saves_is_lost_and_leaves_nothing(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    goes_on(engine, "a")
    count = engine.stepped(0, "suspend", "a")
    engine("resume", "a")
    # Half-way: the record says that the guest's memory is being written.
    engine.stepped(count // 3, "suspend", "a")
    for pid in engine.qemus("a"):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: engine.qemus("a") == [], lambda: "QEMU does not end")
    found = engine("status", "a")

    assert found["state"] == "lost"
    assert "QEMU died while the machine was" in found["reason"]
    assert [name for name in os.listdir(engine.machines / "a") if ".qcow2" in name or "state" in name] == []


def test_qemu_killed_while_it_is_asked_is_lost(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    goes_on(engine, "a")
    (pid,) = engine.qemus("a")
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(engine, "status", "a")
        wait_until(lambda: is_asked(pid), lambda: "nobody asks QEMU")
        os.kill(pid, signal.SIGKILL)
        told = found.result()

    assert (told["state"], told["reason"]) == ("lost", "QEMU died while the machine was running")


def is_asked(pid: int) -> bool:
    """Whether somebody is connected to a socket of QEMU's that it has not accepted yet, for it is stopped."""
    listed = subprocess.run(["ss", "-xlnp"], check=True, capture_output=True, text=True).stdout
    return any(f"pid={pid}," in line and line.split()[2] != "0" for line in listed.splitlines())


def kill_at_random(engine: Engine, counter: str, rounds: int) -> set[str]:
    """Kill the engine at any moment of a verb, again and again; in which states that left the machine."""
    chance, found, machine = Random(17), set(), ""
    for number in range(rounds):
        if number % ROUNDS_OF_A_MACHINE == 0:
            # Each suspension adds a layer, of which a machine may have so many.
            if machine:
                engine("stop", machine, "--grace", "0")
            machine = f"m{number}"
            engine("start", machine, "--wish", counter)
        goes_on(engine, machine)
        verb = chance.choice(["suspend", "resume", "migrate"])
        there = f"m{number}-moved"
        more = ("--to-folder", str(engine.machines / there)) if verb == "migrate" else ()
        if verb == "resume":
            engine("suspend", machine)
        process = engine.popen(engine.command(verb, str(engine.machines / machine), *more))
        with suppress(subprocess.TimeoutExpired):
            # As long as a verb takes on an idle machine, and a little more.
            process.wait(timeout=chance.random() * LONGEST_VERB_S)
        process.kill()
        process.communicate()
        state = settled(engine, machine)
        found.add(f"{verb}: {state}")
        if verb == "migrate":
            engine("migrate", machine, *more)
            engine("remove", machine)
            machine = there
        elif state == "suspended":
            engine("resume", machine)
    goes_on(engine, machine)
    return found


def test_engine_killed_at_any_moment(engine: Engine, counter: str) -> None:
    assert kill_at_random(engine, counter, 3)


@pytest.mark.long
def test_engine_killed_at_any_moment_two_hundred_times(engine: Engine, counter: str) -> None:
    found = kill_at_random(engine, counter, 200)

    assert {"suspend: running", "suspend: suspended", "resume: running", "resume: suspended"} <= found
    assert {"migrate: running", "migrate: moved"} <= found
