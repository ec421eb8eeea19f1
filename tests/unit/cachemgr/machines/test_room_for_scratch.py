"""The empty disk of a job's machine: its room is there before the guest begins, or that is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pytest

from cachemgr.base.disk import FileHandle, RealDisk
from cachemgr.base.errors import BadRequest, NoDaemon, NoRoom
from cachemgr.machines.qemu.layers import layer_name, make_layers
from cachemgr.machines.troubles import check_room, disk_trouble
from cachemgr.machines.wish import MIB, MachineDisk, MachineWish

OLD = (0, 0)
"""What a daemon of an older version has to say."""
SCRATCH = MachineDisk("scratch", size_bytes=32 * MIB)


class Daemon:
    """One that says so much."""

    room: tuple[int, int] | None = None
    asked: ClassVar[list[str]] = []

    def __enter__(self) -> Daemon:
        if self.room is None:
            raise NoDaemon("nobody answers")
        return self

    def __exit__(self, *error: object) -> None: ...

    def ask(self, verb: str) -> dict[str, int]:
        self.asked.append(verb)
        if self.room == OLD:
            raise BadRequest(f"there is no verb {verb!r}")
        free_bytes, promised_bytes = self.room or (0, 0)
        return {"free_bytes": free_bytes, "promised_bytes": promised_bytes}


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> type[Daemon]:
    monkeypatch.setattr("cachemgr.network.client.DaemonClient", Daemon)
    monkeypatch.setattr(Daemon, "room", None)
    monkeypatch.setattr(Daemon, "asked", [])
    return Daemon


def wish(folder: Path) -> MachineWish:
    root = folder / "root.raw"
    root.write_bytes(bytes(MIB))
    return MachineWish(
        name="job-1", memory_bytes=64 * MIB, disks=(MachineDisk("root", path=str(root)), SCRATCH)
    )


def taken(folder: Path, name: str, generation: int) -> tuple[int, int]:
    """The length of a layer, and what it takes of the disk."""
    found = os.stat(folder / layer_name(name, generation))
    return found.st_size, found.st_blocks * 512


def test_empty_disk_has_all_its_room_and_its_file_stays_short(tmp_path: Path) -> None:
    make_layers(RealDisk(), wish(tmp_path), str(tmp_path), 1)
    make_layers(RealDisk(), wish(tmp_path), str(tmp_path), 2)

    for name, generation in (("scratch", 1), ("scratch", 2), ("root", 1)):
        length, room = taken(tmp_path, name, generation)
        assert length < MIB
        assert (room > 32 * MIB) is ((name, generation) == ("scratch", 1))


def test_room_that_is_not_there_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: FileHandle, size_bytes: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileHandle, "reserve", full)

    with (
        pytest.raises(NoRoom, match="making the machine failed: No space left"),
        disk_trouble("making the machine"),
    ):
        make_layers(RealDisk(), wish(tmp_path), str(tmp_path), 1)


def test_scratch_that_is_promised_to_images_is_refused_by_name(daemon: type[Daemon]) -> None:
    daemon.room = (20 * MIB, 12 * MIB)

    with pytest.raises(NoRoom, match=r"scratch takes 33\.0 MiB.* has 20\.0 MiB for it beside 12\.0 MiB that"):
        check_room([SCRATCH])


@pytest.mark.parametrize("room", [(40 * MIB, 12 * MIB), None, OLD])
def test_scratch_with_room_or_without_a_daemon_that_knows_is_left_to_the_disk(
    daemon: type[Daemon], room: tuple[int, int] | None
) -> None:
    daemon.room = room

    check_room([SCRATCH])

    assert daemon.asked == (["machine-room"] if room else [])
