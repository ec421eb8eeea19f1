"""Removing: whatever a job left, once or twice, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.errors import CacheError, InUse, NotAllowed
from cachemgr.instances.removal import remove
from cachemgr.instances.tree import remove_tree


def remove_it(site: Any, folder: Path) -> None:
    remove(site.kernel, str(folder), pool=str(site.root))


def removed_tree(path: Path) -> None:
    parent = os.open(path.parent, os.O_PATH)
    try:
        remove_tree(parent, path.name)
    finally:
        os.close(parent)


def test_everything_of_an_instance_goes_and_the_pools_own_stays(plain_site: Any) -> None:
    folder = plain_site.folder()
    for name in ("disk", ".disk.new", "seed.iso", ".seed.iso.new", "instance.json", "bytes"):
        (folder / name).write_text("")
    for name in ("root", "lower", "overlay/upper/deep", "overlay/work", "context/files", ".context.new"):
        (folder / name).mkdir(parents=True)
    remove_it(plain_site, folder)
    remove_it(plain_site, folder)

    assert sorted(os.listdir(folder)) == ["bytes", "instance.json"]


def test_instance_that_never_was_is_removed(plain_site: Any) -> None:
    folder = plain_site.root / "instances" / ("c" * 32)
    remove_it(plain_site, folder)

    assert not folder.exists()


@pytest.mark.parametrize("name", ["root", "disk", "overlay", "context", "seed.iso"])
def test_link_in_an_instance_is_removed_and_not_followed(plain_site: Any, tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("precious")
    folder = plain_site.folder()
    (folder / name).symlink_to(precious)
    remove_it(plain_site, folder)

    assert os.listdir(folder) == []
    assert (precious / "thesis").read_text() == "precious"


def test_links_that_a_job_made_are_removed_and_not_followed(plain_site: Any, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("precious")
    folder = plain_site.folder()
    deep = folder / "overlay" / "upper" / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "link").symlink_to(precious)
    (deep / "hard").hardlink_to(precious / "thesis")
    os.mkfifo(deep / "pipe")
    remove_it(plain_site, folder)

    assert os.listdir(folder) == []
    assert os.listdir(precious) == ["thesis"]


def test_instance_that_is_a_link_is_left_alone(plain_site: Any, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "root").mkdir(parents=True)
    folder = plain_site.root / "instances" / ("d" * 32)
    folder.symlink_to(precious)

    with pytest.raises(NotAllowed, match="symbolic link"):
        remove_it(plain_site, folder)
    assert os.listdir(precious) == ["root"]


@pytest.mark.parametrize("folder", ["images", "instances", "instances/../images", "instances/x", "trash", ""])
def test_nothing_but_an_instance_is_removed(plain_site: Any, folder: str) -> None:
    (plain_site.root / "images" / "disk").write_text("")

    with pytest.raises(CacheError, match="is not an instance"):
        remove(plain_site.kernel, f"{plain_site.root}/{folder}".rstrip("/"), pool=str(plain_site.root))
    assert (plain_site.root / "images" / "disk").exists()


def test_folders_nested_deeper_than_any_stack_are_removed(site: Any) -> None:
    top = site.root / "trash" / "top"
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deeper", dir_fd=fd)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        inner = os.open("deeper", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    removed_tree(top)

    assert os.listdir(site.root / "trash") == []


def test_names_that_the_removal_itself_uses_do_no_harm(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b" / "c").mkdir(parents=True)
    (top / "moved.1").mkdir()
    (top / "moved.2").write_text("")
    (top / "moved.3" / "inner").mkdir(parents=True)
    removed_tree(top)

    assert os.listdir(tmp_path) == []


def test_folder_that_fills_again_while_it_is_emptied_is_still_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    (top / "a").mkdir(parents=True)
    listed = os.listdir
    late = ["one", "two", "three"]

    def listing(fd: int) -> list[str]:
        found = listed(fd)
        if late:
            (top / late.pop()).write_text("")
        return found

    monkeypatch.setattr(os, "listdir", listing)
    removed_tree(top)

    assert listed(tmp_path) == []


def test_folder_that_fills_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "top"
    top.mkdir()
    listed = os.listdir

    def listing(fd: int) -> list[str]:
        (top / "more").write_text("")
        return listed(fd)

    monkeypatch.setattr(os, "listdir", listing)

    with pytest.raises(InUse, match="end the job's processes first"):
        removed_tree(top)


def test_folder_that_turns_into_a_link_while_it_is_emptied_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("precious")
    top = tmp_path / "top"
    (top / "a").mkdir(parents=True)
    listed = os.listdir

    def listing(fd: int) -> list[str]:
        found = listed(fd)
        if "a" in found and not (top / "a").is_symlink():
            (top / "a").rmdir()
            (top / "a").symlink_to(precious)
        return found

    monkeypatch.setattr(os, "listdir", listing)
    removed_tree(top)

    assert sorted(listed(tmp_path)) == ["precious"]
    assert listed(precious) == ["thesis"]


def test_mount_in_the_way_stops_the_removal(site: Any, tmp_path: Path) -> None:
    top = site.root / "top"
    (top / "a").mkdir(parents=True)
    (tmp_path / "thesis").write_text("precious")
    site.kernel.mount(str(tmp_path), str(top / "a"), "none", 0x1000, "")

    with pytest.raises(InUse, match="something is mounted"):
        removed_tree(top)
    assert (tmp_path / "thesis").exists()


def test_unprivileged_remover_is_told_what_it_may_not_delete(site: Any, as_user: Any) -> None:
    service, user = 64010, 64001
    folder = site.folder()
    (folder / "overlay" / "work" / "work").mkdir(parents=True)
    (folder / "overlay" / "upper" / "home").mkdir(parents=True)
    (folder / "overlay" / "upper" / "home" / "file").write_text("")
    for path in (folder, folder / "overlay", folder / "overlay" / "work", folder / "overlay" / "upper"):
        os.chown(path, service, service)
    (folder / "overlay" / "work" / "work").chmod(0)
    os.chown(folder / "overlay" / "upper" / "home", user, user)
    (folder / "overlay" / "upper" / "home").chmod(0o700)

    def removing() -> None:
        try:
            remove_it(site, folder)
        except NotAllowed as error:
            raise BlockingIOError from error

    assert as_user(service, removing) == "BlockingIOError"
    (folder / "overlay" / "upper" / "home" / "file").unlink()
    assert as_user(service, removing) == ""
    assert os.listdir(folder) == []
