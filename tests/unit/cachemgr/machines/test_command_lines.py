"""QEMU's command line: nothing that a user names becomes an option, and no file says what else is opened."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import Unsuitable
from cachemgr.instances.qcow2 import overlay
from cachemgr.machines.qemu.command import CommandParts, command_line
from cachemgr.machines.qemu.layers import make_layers, virtual_bytes
from cachemgr.machines.record import QemuFacts
from cachemgr.machines.wish import MachineDisk, MachineJob, MachineWish

MIB = 1 << 20
EVIL = '/images/a,read-only=off",file=/etc/passwd,x="'


def line(wish: MachineWish, accelerator: str = "tcg") -> list[str]:
    parts = CommandParts(
        program="/usr/bin/qemu", folder="/m,evil=on", qemu=QemuFacts("7.2.1", accelerator, "", ""),
        layers={disk.name: ["/m/1", "/m/2"] for disk in wish.writable},
        first_layer=1, sockets={"monitor": 5, "console": 6}, memory=7,
        outputs={"outrider.out": "/out,append=off"},
    )  # fmt: skip
    return command_line(wish, parts)


def wish(**fields: object) -> MachineWish:
    known: dict[str, object] = {
        "name": "m",
        "memory_bytes": 64 * MIB,
        "disks": (MachineDisk(name="a", path=EVIL),),
    }
    return MachineWish(**{**known, **fields})  # type: ignore[arg-type]


def nodes(argv: list[str]) -> dict[str, dict[str, object]]:
    found = [json.loads(value) for key, value in pairwise(argv) if key == "-blockdev"]
    return {each["node-name"]: each for each in found}


def test_path_of_an_image_stays_a_path() -> None:
    argv = line(wish(kernel=EVIL, append="quiet", job=MachineJob(script="x")))
    found = nodes(argv)

    assert found["a-0-file"]["filename"] == EVIL
    assert argv[argv.index("-kernel") + 1] == EVIL
    # Where QEMU takes options and not JSON, a comma is doubled, so that none begins an option.
    assert any("path=/out,,append=off,append=on" in each for each in argv)
    assert any("logfile=/m,,evil=on/console.log," in each for each in argv)


def test_image_is_read_only_and_each_layer_names_the_one_below() -> None:
    found = nodes(line(wish()))

    assert [found[f"a-{number}"].get("backing") for number in range(3)] == [None, "a-0", "a-1"]
    assert [found[f"a-{number}"]["read-only"] for number in range(3)] == [True, True, False]


def test_qcow2_image_has_nothing_below_it_whatever_it_says() -> None:
    disk = MachineDisk(name="a", path="/images/a", format="qcow2")
    found = nodes(line(wish(disks=(disk,))))["a-0"]

    assert found["backing"] is None
    assert found["driver"] == "qcow2"


def test_sandbox_is_on_and_no_configuration_is_read() -> None:
    argv = line(wish())

    assert {"-nodefaults", "-no-user-config", "-S"} <= set(argv)
    sandbox = argv[argv.index("-sandbox") + 1]
    assert sandbox == "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


def test_network_is_there_only_if_it_is_asked_for() -> None:
    assert "-netdev" not in line(wish())
    assert "-nic" not in line(wish())
    assert "-netdev" in line(wish(network="user"))


@pytest.mark.parametrize("kind", ["raw", "qcow2"])
def test_image_that_names_other_files_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "image"
    with path.open("wb") as file:
        for offset, data in overlay("/etc/passwd", "raw", 1 * MIB):
            file.seek(offset)
            file.write(data)

    with pytest.raises(Unsuitable, match=r"backing file|although it was called raw"):
        virtual_bytes(RealDisk(), MachineDisk(name="a", path=str(path), format=kind))


def test_empty_disk_has_its_size_and_nothing_below(tmp_path: Path) -> None:
    disk = MachineDisk(name="scratch", size_bytes=8 * MIB)
    make_layers(RealDisk(), wish(kernel="/k", disks=(disk,)), str(tmp_path), 1)

    assert (
        virtual_bytes(RealDisk(), MachineDisk(name="s", path=f"{tmp_path}/scratch.1.qcow2", format="qcow2"))
        == 8 * MIB
    )
