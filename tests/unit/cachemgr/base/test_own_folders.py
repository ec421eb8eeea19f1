"""Folders whose content is deleted: only ours, never through a link or into a mount."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, InUse
from cachemgr.base.ownfolder import MARKER, OwnFolder
from tests.daemons.kill.loopdisk import need, run
from tests.daemons.node.daemons import needs_root


def is_draft(name: str, found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and name.startswith("draft-")


def own(path: Path | str, purpose: str = "drafts") -> OwnFolder:
    return OwnFolder(str(path), purpose, mode=0o711, is_left=is_draft)


def sweep(path: Path | str) -> None:
    folder = own(path)
    try:
        for name in folder.left():
            folder.remove(name)
    finally:
        folder.close()


def test_folder_that_is_made_is_marked_and_swept_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "scratch"
    sweep(path)
    (path / "draft-1/deep/deeper").mkdir(parents=True)
    (path / "draft-1/deep/file").write_text("x")
    sweep(path)

    assert [each.name for each in path.iterdir()] == [MARKER]
    assert (path / MARKER).read_text() == "drafts\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o711


@pytest.mark.parametrize("is_empty", [True, False])
def test_folder_of_before_there_were_marks_is_adopted_if_it_holds_nothing_else(
    tmp_path: Path, is_empty: bool
) -> None:
    if not is_empty:
        (tmp_path / "draft-1").mkdir()
    sweep(tmp_path)

    assert [each.name for each in tmp_path.iterdir()] == [MARKER]


def test_folder_with_something_else_is_refused_with_a_remedy_that_helps(tmp_path: Path) -> None:
    (tmp_path / "draft-1").mkdir()
    (tmp_path / "thesis").mkdir()
    with pytest.raises(BadRequest, match="is not marked as Outrider's own and holds 'thesis'") as refused:
        sweep(tmp_path)
    before = sorted(each.name for each in tmp_path.iterdir())
    run("sh", "-c", str(refused.value).split("`")[1])
    sweep(tmp_path)

    assert before == ["draft-1", "thesis"]
    assert sorted(each.name for each in tmp_path.iterdir()) == [MARKER, "thesis"]


def test_folder_that_is_marked_for_something_else_is_refused(tmp_path: Path) -> None:
    own(tmp_path, "begin").close()

    with pytest.raises(BadRequest, match="marked for 'begin'"):
        own(tmp_path, "drafts")


@pytest.mark.parametrize("end", ["", "/"])
def test_link_to_a_folder_is_refused_even_if_that_is_marked(tmp_path: Path, end: str) -> None:
    own(tmp_path / "real").close()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    with pytest.raises(BadRequest, match="is a link"):
        own(f"{tmp_path}/link{end}")


def test_mark_that_is_a_link_is_none(tmp_path: Path) -> None:
    (tmp_path / "mark").write_text("drafts\n")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch/thesis").touch()
    (tmp_path / "scratch" / MARKER).symlink_to(tmp_path / "mark")

    with pytest.raises(BadRequest, match="not marked"):
        own(tmp_path / "scratch")


def test_links_in_what_is_removed_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("x")
    path = tmp_path / "scratch"
    (path / "draft-1").mkdir(parents=True)
    (path / "draft-1/out").symlink_to(tmp_path / "precious")
    sweep(path)
    (path / "draft-2").symlink_to(tmp_path / "precious")
    sweep(path)

    assert (tmp_path / "precious/file").read_text() == "x"
    # It is a link and no folder of ours, so it stays.
    assert sorted(each.name for each in path.iterdir()) == [MARKER, "draft-2"]


def test_folder_that_is_exchanged_for_a_link_meanwhile_is_not_left(tmp_path: Path) -> None:
    (tmp_path / "precious/draft-1").mkdir(parents=True)
    folder = own(tmp_path / "scratch")
    (tmp_path / "scratch/draft-1").mkdir()
    (tmp_path / "scratch").rename(tmp_path / "moved")
    (tmp_path / "scratch").symlink_to(tmp_path / "precious")
    folder.remove("draft-1")
    was_in_place = folder.is_in_place
    folder.close()

    assert not was_in_place
    assert (tmp_path / "precious/draft-1").exists()
    assert not (tmp_path / "moved/draft-1").exists()


@pytest.mark.parametrize("place", ["draft-1", "draft-1/inside"])
def test_what_is_mounted_in_the_folder_is_not_emptied(tmp_path: Path, place: str) -> None:
    need("mount", "umount")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("x")
    folder = own(tmp_path / "scratch")
    target = tmp_path / "scratch" / place
    target.mkdir(parents=True)
    run("mount", "--bind", str(tmp_path / "precious"), str(target))
    try:
        with pytest.raises(InUse, match="something is mounted on"):
            folder.remove("draft-1")
    finally:
        folder.close()
        run("umount", str(target))

    assert (tmp_path / "precious/file").read_text() == "x"


def test_what_belongs_to_somebody_else_is_neither_adopted_nor_removed(tmp_path: Path) -> None:
    needs_root()
    (tmp_path / "draft-1").mkdir()
    os.chown(tmp_path / "draft-1", 1001, 1001)
    with pytest.raises(BadRequest, match="holds 'draft-1'"):
        sweep(tmp_path)
    os.chown(tmp_path, 1001, 1001)

    with pytest.raises(BadRequest, match="belongs to uid 1001"):
        sweep(tmp_path)
    assert (tmp_path / "draft-1").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", MARKER])
def test_names_that_lead_out_are_no_names(tmp_path: Path, name: str) -> None:
    folder = own(tmp_path)
    for act in (folder.unlink, folder.remove, lambda each: folder.touch(each, 0o600)):
        with pytest.raises(ValueError, match="is not a name"):
            act(name)
    folder.close()

    assert (tmp_path / MARKER).exists()


def test_what_is_mounted_in_a_folder_of_the_pool_is_not_emptied_with_it(tmp_path: Path) -> None:
    need("mount", "umount")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("x")
    (tmp_path / "trash/image/inside").mkdir(parents=True)
    run("mount", "--bind", str(tmp_path / "precious"), str(tmp_path / "trash/image/inside"))
    try:
        with pytest.raises(InUse, match="something is mounted on"):
            RealDisk().remove_all(str(tmp_path / "trash/image"))
    finally:
        run("umount", str(tmp_path / "trash/image/inside"))

    assert (tmp_path / "precious/file").read_text() == "x"


def test_thousands_of_folders_in_one_another_are_removed(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    os.mkdir("top", dir_fd=folder)
    for _ in range(3_000):
        inner = os.open("top", os.O_RDONLY, dir_fd=folder)
        os.mkdir("top", dir_fd=inner)
        os.close(folder)
        folder = inner
    os.close(folder)
    RealDisk().remove_all(str(tmp_path / "top"))

    assert list(tmp_path.iterdir()) == []
