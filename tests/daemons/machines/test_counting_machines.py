"""A guest that counts in memory and on its disk misses and repeats nothing, whatever is done to it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cachemgr.machines.qemu.process import BLOCKED
from tests.daemons.machines.counter import DISK_BYTES
from tests.daemons.machines.engine import MIB, UID, Engine, wait_until

FEW_LAYERS = str(Path(__file__).with_name("few_layers.py"))
OLDER = str(Path(__file__).with_name("older_version.py"))


def test_suspended_machine_goes_on_where_it_was(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    for round_number in range(1, 4):
        engine.wait_until_counted("a", max(engine.counted("a"), default=0) + 3)
        saved = engine("suspend", "a")

        assert saved["state"] == "suspended"
        assert engine.qemus("a") == []
        assert engine("suspend", "a") == saved

        engine("resume", "a")
        assert engine("resume", "a")["generation"] == round_number + 1
    engine.wait_until_counted("a", max(engine.counted("a")) + 3)
    engine("suspend", "a")

    assert_counted(engine, "a")


@pytest.mark.long
def test_machine_is_suspended_more_often_than_its_disks_may_have_layers(engine: Engine, counter: str) -> None:
    def said(verb: str, *arguments: str) -> dict[str, Any]:
        code, output, errors = engine.attempt(
            verb, str(engine.machines / "a"), *arguments, module=(FEW_LAYERS,)
        )
        assert code == 0, errors
        found: dict[str, Any] = json.loads(output)
        return found

    said("start", "--wish", counter)
    layers = []
    for _ in range(9):
        engine.wait_until_counted("a", max(engine.counted("a"), default=0) + 3)
        saved = said("suspend")["saved"]
        layers.append(sum(name.endswith(".qcow2") for name in saved))
        there = {path.name for path in (engine.machines / "a").glob("*.qcow2")}
        assert there == {name for name in saved if name.endswith(".qcow2")}
        said("resume")
    engine.wait_until_counted("a", max(engine.counted("a")) + 3)
    said("suspend")

    assert max(layers) <= 4
    assert layers != sorted(layers)
    assert_counted(engine, "a")


@pytest.mark.long
def test_machine_with_all_that_can_be_asked_for_is_saved_and_moves(engine: Engine, counter: str) -> None:
    root = {"name": "root", "path": str(engine.folder / "counter.img")}
    data = {"name": "data", "path": str(engine.folder / "counter.img"), "is_writable": False}
    scratch = {"name": "scratch", "size_bytes": 16 * MIB}
    wish = engine.wish(
        name="all", memory_bytes=48 * MIB, cpus=2, disks=[root, data, scratch], network="user",
        context={"hostname": "n1", "user_data": "#cloud-config\n"},
    )  # fmt: skip
    engine("start", "a", "--wish", wish)
    engine.wait_until_counted("a", 5)
    engine("suspend", "a")
    engine("resume", "a")
    engine.wait_until_counted("a", max(engine.counted("a")) + 5)
    engine("migrate", "a", "--to-folder", str(engine.machines / "b"))
    engine.wait_until_counted("b", max(engine.counted("b")) + 5)
    saved = engine("suspend", "b")["saved"]

    layers = {f"{name}.{number}.qcow2" for name in ("root", "scratch") for number in (1, 2)}
    assert set(saved) == {*layers, "console.log", "seed.iso", "state.2"}
    assert_counted(engine, "b")


def test_machine_that_an_older_version_began_is_saved_and_goes_on(engine: Engine, counter: str) -> None:
    started = engine.attempt("start", str(engine.machines / "a"), "--wish", counter, module=(OLDER,))
    (pid,) = engine.qemus("a")
    line = Path(f"/proc/{pid}/cmdline").read_text()
    engine.wait_until_counted("a", 5)
    engine("suspend", "a")
    engine("resume", "a")
    engine.wait_until_counted("a", max(engine.counted("a")) + 5)
    engine("suspend", "a")
    engine("resume", "a")
    engine.wait_until_counted("a", max(engine.counted("a")) + 5)

    assert started[0] == 0
    assert "memory-backend" not in line
    assert_counted(engine, "a")


def test_machine_that_is_handed_over_goes_on_elsewhere_and_nowhere_else(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    engine.wait_until_counted("a", 5)
    saved = engine("suspend", "a")["saved"]
    carry(engine, "a", "b", saved)
    refused = engine.refused("take", "b", "--parcel", parcel(engine, {}))
    place = f"node:{engine.machines / 'b'}"
    given = engine("give", "a", "--to", place)

    assert "describes no machine" in refused
    assert engine("give", "a", "--to", place) == given
    assert "was given to" in engine.refused("give", "a", "--to", "node:/elsewhere")
    assert "cannot be resumed" in engine.refused("resume", "a")
    assert "was given to" in engine.refused("take", "c", "--parcel", parcel(engine, given))

    assert engine("take", "b", "--parcel", parcel(engine, given))["state"] == "suspended"
    engine("resume", "b")
    assert engine("take", "b", "--parcel", parcel(engine, given))["state"] == "running"
    engine.wait_until_counted("b", max(engine.counted("a")) + 5)
    engine("suspend", "b")
    engine("remove", "a")

    assert_counted(engine, "b")


def test_copy_of_a_suspended_machine_never_runs(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    engine.wait_until_counted("a", 3)
    engine("suspend", "a")
    subprocess.run(["cp", "-a", engine.machines / "a", engine.machines / "b"], check=True, timeout=240)

    assert "is a copy of the machine at node:" in engine.refused("resume", "b")
    assert "is a copy" in engine.refused("give", "b", "--to", "node:/elsewhere")
    assert engine("resume", "a")["state"] == "running"


def test_machine_that_migrates_hardly_stops(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    engine.wait_until_counted("a", 5)
    engine("suspend", "a")
    engine("resume", "a")
    engine.wait_until_counted("a", max(engine.counted("a")) + 5)
    done = engine("migrate", "a", "--to-folder", str(engine.machines / "b"))

    assert done["state"] == "running"
    assert done["figures"]["memory_bytes"] > 0
    assert engine.qemus("a") == []
    assert engine("status", "a")["state"] == "moved"
    assert engine("migrate", "a", "--to-folder", str(engine.machines / "b"))["figures"] is None
    assert "cannot be resumed" in engine.refused("resume", "a")

    engine.wait_until_counted("b", max(engine.counted("b")) + 5)
    engine("suspend", "b")
    engine("resume", "b")
    engine.wait_until_counted("b", max(engine.counted("b")) + 5)
    assert_counted(engine, "b")
    assert [name for name in os.listdir(engine.machines / "a") if ".qcow2" in name or "state" in name] == []


@pytest.mark.parametrize("damage", ["half", "last-byte", "bit", "missing", "layer", "layer-older"])
def test_damaged_state_is_found_before_the_guest_runs(engine: Engine, counter: str, damage: str) -> None:
    engine("start", "a", "--wish", counter)
    engine.wait_until_counted("a", 5)
    older = (engine.machines / "a" / "root.1.qcow2").read_bytes()
    engine.wait_until_counted("a", 40)
    engine("suspend", "a")
    state, layer = engine.machines / "a" / "state.1", engine.machines / "a" / "root.1.qcow2"
    path = layer if damage.startswith("layer") else state
    whole = path.read_bytes()
    path.chmod(0o600)
    if damage == "missing":
        path.unlink()
    else:
        at = len(whole) // 2
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        found = {"half": whole[:at], "last-byte": whole[:-1], "layer-older": older}
        path.write_bytes(found.get(damage, flipped))
    refused = engine.refused("resume", "a")

    assert f"{path} is not what was saved" in refused
    assert engine("status", "a")["state"] == "suspended"
    assert engine.qemus("a") == []

    path.write_bytes(whole)
    os.chown(path, UID, -1)
    engine("resume", "a")
    engine.wait_until_counted("a", max(engine.counted("a")) + 3)
    assert_counted(engine, "a")


def test_machine_whose_qemu_is_killed_is_lost_and_says_so(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    (pid,) = engine.qemus("a")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: engine.qemus("a") == [], lambda: "QEMU does not end")
    found = engine("status", "a")

    assert (found["state"], found["reason"]) == ("lost", "QEMU died while the machine was running")
    assert "cannot be suspended" in engine.refused("suspend", "a")
    assert [name for name in os.listdir(engine.machines / "a") if name.endswith(".qcow2")] == []
    engine("remove", "a")
    assert engine("start", "a", "--wish", counter)["state"] == "running"


def test_folder_with_files_of_somebody_becomes_no_machines(engine: Engine, counter: str) -> None:
    folder = engine.machines / "a"
    folder.mkdir()
    os.chown(folder, UID, -1)
    (folder / "thesis.tex").write_text("years of work")
    refused = engine.refused("start", "a", "--wish", counter)

    assert "holds 'thesis.tex', which is not a machine's" in refused
    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / "thesis.tex").read_text() == "years of work"

    engine("start", "b", "--wish", counter)
    (engine.machines / "b" / "note").write_text("put here later")
    engine("stop", "b", "--grace", "0")
    engine("remove", "b")
    assert sorted(os.listdir(engine.machines / "b")) == ["busy", "note"]


def test_signals_of_a_batch_system_end_no_qemu(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    (pid,) = engine.qemus("a")
    for each in BLOCKED:
        os.kill(pid, each)
    engine.wait_until_counted("a", max(engine.counted("a"), default=0) + 5)

    assert engine.qemus("a") == [pid]
    assert engine("suspend", "a")["state"] == "suspended"


def test_qemu_has_no_rights_beyond_its_user(engine: Engine, counter: str) -> None:
    engine("start", "a", "--wish", counter)
    (pid,) = engine.qemus("a")
    told = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())

    assert told["NoNewPrivs"] == "1"
    assert told["Seccomp"] == "2"
    assert [int(told[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [0, 0, 0, 0]
    assert set(told["Uid"].split()) == {str(UID)}
    limits = {
        line[:26].strip(): line[26:].split() for line in Path(f"/proc/{pid}/limits").read_text().splitlines()
    }
    assert limits["Max core file size"][:2] == ["0", "0"]
    assert DISK_BYTES < int(limits["Max file size"][1]) < 3 * DISK_BYTES
    assert (engine.machines / "a").stat().st_mode & 0o777 == 0o700
    # Under what it runs is known, and why.
    assert engine("status", "a")["qemu"]["reason"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system")
def test_full_disk_while_saving_lets_the_machine_run_on(engine: Engine, counter: str) -> None:
    folder = engine.machines / "a"
    folder.mkdir()
    # Room for the layer and the records, and not for the memory.
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size=900k,uid={UID},mode=700", "none", folder], check=True
    )
    try:
        engine("start", "a", "--wish", counter)
        engine.wait_until_counted("a", 3)
        refused = engine.refused("suspend", "a")
        before = engine.counted("a")
        names = sorted(os.listdir(folder))
        engine.wait_until_counted("a", before[-1] + 5)
        found = engine("status", "a")

        assert "No space left" in refused
        assert found["state"] == found["guest"] == "running"
        assert "No space left" in found["reason"]
        assert [name for name in names if "state" in name] == []
        subprocess.run(["mount", "-o", "remount,size=8m", folder], check=True)
        assert engine("suspend", "a")["state"] == "suspended"
        engine("resume", "a")
        engine.wait_until_counted("a", max(engine.counted("a")) + 3)
        assert_counted(engine, "a")
        engine("stop", "a", "--grace", "0")
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def assert_counted(engine: Engine, machine: str) -> None:
    """Every number once, in order."""
    found = engine.counted(machine)
    assert found == list(range(1, len(found) + 1))


def carry(engine: Engine, source: str, target: str, names: dict[str, object]) -> None:
    """As a transfer would: only what belongs to the saved machine."""
    folder = engine.machines / target
    folder.mkdir(mode=0o700)
    os.chown(folder, UID, -1)
    for name in names:
        shutil.copy(engine.machines / source / name, folder / name)
        os.chown(folder / name, UID, -1)


def parcel(engine: Engine, plain: object) -> str:
    path = engine.folder / "parcel.json"
    path.write_text(json.dumps(plain))
    path.chmod(0o644)
    return str(path)
