"""A working folder into a guest and out of it: all that belongs there, and no name that leads elsewhere."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import CacheError, Unsuitable, WrongBytes
from cachemgr.machines.guest.archive import pack, unpack


def test_folder_comes_back_as_it_went(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep" / "er").mkdir(parents=True)
    target.mkdir()
    (source / "deep" / "er" / "file").write_bytes(os.urandom(3 << 20))
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o755)
    os.utime(source / "run", (1_000_000, 1_000_000))
    os.symlink("deep/er/file", source / "link")
    os.link(source / "run", source / "second")
    pack(RealDisk(), str(source), str(tmp_path / "out"), but=str(tmp_path))
    unpack(str(tmp_path / "out"), str(target))

    assert (target / "deep" / "er" / "file").read_bytes() == (source / "deep" / "er" / "file").read_bytes()
    assert ((target / "run").stat().st_mode & 0o777, (target / "run").stat().st_mtime) == (0o755, 1_000_000)
    assert os.readlink(target / "link") == "deep/er/file"
    assert (target / "second").samefile(target / "run")
    assert unpack(str(tmp_path / "out"), str(target)) == 7


def test_machine_in_the_working_folder_is_not_copied_into_itself(tmp_path: Path) -> None:
    with pytest.raises(Unsuitable, match="name another one"):
        pack(RealDisk(), str(tmp_path), str(tmp_path / "machine" / "out"), but=str(tmp_path / "machine"))


def archive(path: Path, add: Callable[[tarfile.TarFile], None]) -> str:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as made:
        add(made)
    return str(path)


def member(
    name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "", data: bytes = b"evil"
) -> tuple[tarfile.TarInfo, io.BytesIO]:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, linkname
    found.size = len(data) if kind == tarfile.REGTYPE else 0
    found.mode = 0o6755
    return found, io.BytesIO(data)


@pytest.mark.parametrize(
    "members",
    [
        [member("/etc/outside")],
        [member("../outside")],
        [member("a/../../outside")],
        [member("way", tarfile.SYMTYPE, ".."), member("way/outside")],
        [member("way", tarfile.SYMTYPE, "/"), member("way/outside")],
        [member("second", tarfile.LNKTYPE, "../secret")],
        [member("way", tarfile.SYMTYPE, ".."), member("second", tarfile.LNKTYPE, "way/secret")],
        [member("device", tarfile.CHRTYPE)],
        [member("pipe", tarfile.FIFOTYPE)],
    ],
    ids=["absolute", "above", "through", "link", "link-root", "hard", "hard-link", "device", "pipe"],
)
def test_archive_of_a_hostile_guest_stays_in_the_folder(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, io.BytesIO]]
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "secret").write_text("secret")

    def add(made: tarfile.TarFile) -> None:
        for each in members:
            made.addfile(*each)

    path = archive(tmp_path / "out", add)

    with pytest.raises(CacheError, match=r"working folder|cannot be copied out"):
        unpack(path, str(target))

    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "secret", "target"]
    assert (tmp_path / "secret").stat().st_nlink == 1
    assert not [each for each in target.iterdir() if not each.is_symlink()]


def test_file_that_is_there_is_replaced_and_never_written_to(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "elsewhere").write_text("mine")
    os.symlink(tmp_path / "elsewhere", target / "name")
    unpack(archive(tmp_path / "out", lambda made: made.addfile(*member("./name"))), str(target))

    assert (tmp_path / "elsewhere").read_text() == "mine"
    assert (target / "name").read_text() == "evil"
    assert (target / "name").stat().st_mode & 0o7777 == 0o755


def test_archive_without_its_end_is_found(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    path = Path(archive(tmp_path / "out", lambda made: made.addfile(*member("name", data=bytes(100_000)))))
    path.write_bytes(path.read_bytes()[:50_000])

    with pytest.raises(WrongBytes):
        unpack(str(path), str(tmp_path / "target"))
