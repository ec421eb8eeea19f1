"""What is asked of a machine, and what is written of it: checked, and read back as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, NotInPool, PoolDamaged
from cachemgr.machines.record import (
    FILE,
    MachineRecord,
    QemuFacts,
    SavedFile,
    read_record,
    write_record,
)
from cachemgr.machines.wish import MachineDisk, MachineJob, MachineWish, read_wish

MIB = 1 << 20
PLAIN: dict[str, Any] = {
    "name": "m",
    "memory_bytes": 64 * MIB,
    "cpus": 2,
    "disks": [
        {"name": "root", "path": "/images/root", "format": "qcow2", "digest": "a" * 64},
        {"name": "scratch", "size_bytes": 8 * MIB},
        {"name": "data", "path": "/images/data", "is_writable": False},
    ],
    "job": {"script": "#!/bin/sh\n", "arguments": ["a b"], "environment": {"A": "b"}, "folder": "/w"},
}


def test_wish_is_read_back_as_it_was() -> None:
    wish = read_wish(PLAIN)

    assert [disk.name for disk in wish.writable] == ["root", "scratch"]
    assert wish.job == MachineJob(
        script="#!/bin/sh\n", arguments=("a b",), environment=(("A", "b"),), folder="/w"
    )
    assert read_wish(json.loads(json.dumps(wish.encode()))) == wish


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "../m"}, "cannot be called"),
        ({"memory_bytes": 64 * MIB + 1}, "whole MiB"),
        ({"memory_bytes": True}, "memory_bytes cannot be"),
        ({"cpus": 0}, "1 to 255 processors"),
        ({"cpus": "2"}, "cpus cannot be"),
        ({"machine": "pc"}, "no machine type"),
        ({"network": "bridge"}, "no network"),
        ({"shared_folder": "/w"}, "no key 'shared_folder'"),
        ({"kernel": "vmlinux"}, "absolute path"),
        ({"append": "quiet"}, "booted directly"),
        ({"machine": "microvm"}, "boots a kernel"),
        ({"disks": []}, "a kernel or its first disk"),
        ({"disks": [{"name": "job", "path": "/x"}]}, "cannot be called 'job'"),
        ({"disks": [{"name": "a", "path": "/x"}, {"name": "a", "path": "/y"}]}, "name of its own"),
        ({"disks": [{"name": "a", "path": "/x", "format": "vmdk"}]}, "raw and qcow2"),
        ({"disks": [{"name": "a", "path": "/x", "size_bytes": 8 * MIB}]}, "either a file"),
        ({"disks": [{"name": "a", "size_bytes": 1000}]}, "cannot have 1000 bytes"),
        ({"disks": [{"name": "a", "size_bytes": 8 * MIB, "is_writable": False}]}, "of what use"),
        ({"disks": [{"name": "a", "path": "/x", "digest": "abc"}]}, "no sha256 digest"),
        ({"job": {"script": ""}}, "script is empty"),
        ({"job": {"script": "x", "environment": {"A=B": "c"}}}, "not a variable"),
        ({"job": {"script": "x", "folder": "here"}}, "absolute path"),
        ({"context": {"hostname": "-x"}}, "hostname"),
    ],
)
def test_wish_that_makes_no_sense_is_refused_by_what_is_wrong(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        read_wish({**PLAIN, **change})


def test_wish_that_lacks_something_names_it() -> None:
    with pytest.raises(BadRequest, match="lacks memory_bytes"):
        read_wish({"name": "m"})


def record() -> MachineRecord:
    wish = MachineWish(
        name="m", memory_bytes=64 * MIB, disks=(MachineDisk(name="root", path="/images/root"),)
    )
    return MachineRecord(
        wish=wish, state="suspended", place="n:/m", token="t", generation=3, exit_status=None,
        qemu=QemuFacts("7.2.0", "tcg", "there is no /dev/kvm", "Nehalem"),
        saved={"state.3": SavedFile(5, "b" * 64)}, pauses_ms=(10, 20),
    )  # fmt: skip


def test_record_is_read_back_as_it_was(tmp_path: Path) -> None:
    write_record(RealDisk(), str(tmp_path), record())

    assert read_record(RealDisk(), str(tmp_path)) == record()
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is not JSON"),
        ("{}", "describes no machine"),
        ('{"format": "outrider-machine", "version": 4}', "version 4"),
        ('{"format": "outrider-machine", "version": 1}', "wish"),
    ],
)
def test_record_that_cannot_be_read_is_damage_and_no_new_machine(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / FILE).write_text(text)

    with pytest.raises(PoolDamaged, match=words):
        read_record(RealDisk(), str(tmp_path))


def test_folder_without_a_record_holds_no_machine(tmp_path: Path) -> None:
    with pytest.raises(NotInPool, match="no machine in"):
        read_record(RealDisk(), str(tmp_path))


def test_reason_of_a_step_does_not_outlive_it() -> None:
    failed = MachineRecord(**{**vars(record()), "reason": "the disk was full"})

    assert failed.stepped("loading").reason == ""
