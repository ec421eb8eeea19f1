"""Access lists: as the tools read them, and as the kernel obeys them for other users."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, DiskFailed, NotAllowed, Unsuitable
from cachemgr.instances.acl import ALL, MOST_NAMED, READ, READ_WRITE, acl, grant
from cachemgr.instances.removal import remove

USER, OTHER_USER, GROUP = 64001, 64002, 64003


def listed(tool: str, path: Path) -> list[str]:
    argv = [tool, "--numeric", "--omit-header", "--absolute-names", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=240)
    return done.stdout.split()


def reading(path: Path | str) -> Callable[[], None]:
    return lambda: os.close(os.open(path, os.O_RDONLY))


def writing(path: Path | str) -> Callable[[], None]:
    return lambda: os.close(os.open(path, os.O_WRONLY))


def test_list_is_what_its_tool_reads(site: Any, needs: Callable[[str], str]) -> None:
    path = site.root / "file"
    path.write_bytes(b"")
    grant(
        RealDisk(), str(path), mode=0o640, uids=[OTHER_USER, USER, USER], gids=[GROUP], permission=READ_WRITE
    )

    assert listed(needs("getfacl"), path) == [
        "user::rw-",
        "user:64001:rw-",
        "user:64002:rw-",
        "group::r--",
        "group:64003:rw-",
        "mask::rw-",
        "other::---",
    ]


def test_list_is_the_same_when_granted_again_and_replaces_an_earlier_one(
    site: Any, needs: Callable[[str], str]
) -> None:
    path = site.root / "file"
    path.write_bytes(b"")
    for users in ([USER, OTHER_USER], [USER], [USER]):
        grant(RealDisk(), str(path), mode=0o400, uids=users, permission=READ)

    assert listed(needs("getfacl"), path) == [
        "user::r--",
        "user:64001:r--",
        "group::---",
        "mask::r--",
        "other::---",
    ]


@pytest.mark.parametrize("kind", ["xfs", "btrfs", "ext4"])
@pytest.mark.parametrize("method", ["copy", "qcow2"])
def test_user_writes_the_own_instance_and_nobody_elses(
    site_on: Callable[[str], Any], as_user: Callable[..., str], kind: str, method: str
) -> None:
    site = site_on(kind)
    image = site.image(bytes(1080) + b"\x53\xef" + bytes(100))
    mine = site.make(method, site.order(image, "raw", uid=USER)).path
    other = site.make(method, site.order(image, "raw", uid=OTHER_USER)).path

    assert as_user(USER, writing(mine)) == ""
    assert as_user(USER, reading(other)) == "PermissionError"
    assert as_user(USER, writing(other)) == "PermissionError"
    assert as_user(USER, reading(image)) == ""
    assert as_user(USER, writing(image)) == "PermissionError"


def test_user_can_neither_add_to_nor_rename_in_the_folder(site: Any, as_user: Callable[..., str]) -> None:
    made = site.make("reflink", site.order(site.image(b"data"), "file", uid=USER)).path

    assert as_user(USER, lambda: os.rename(made, f"{made}.mine")) == "PermissionError"
    assert as_user(USER, lambda: os.symlink("/etc", f"{made}.link")) == "PermissionError"
    assert as_user(USER, lambda: os.unlink(made)) == "PermissionError"


def test_folder_made_anew_for_another_user_lets_that_one_in(site: Any, as_user: Callable[..., str]) -> None:
    image = site.image(b"data")
    folder = site.folder()
    site.make("reflink", site.order(image, "file", folder=folder, uid=USER))
    remove(site.kernel, str(folder), pool=str(site.root))
    path = site.make("reflink", site.order(image, "file", folder=folder, uid=OTHER_USER)).path

    assert as_user(OTHER_USER, writing(path)) == ""
    assert as_user(USER, lambda: os.close(os.open(folder / "disk", os.O_PATH))) == "PermissionError"


def test_private_image_is_read_by_those_named_and_nobody_else(site: Any, as_user: Callable[..., str]) -> None:
    image = site.image(b"secret")
    grant(site.disk, str(image), mode=0o400, uids=[USER], permission=READ)

    assert as_user(USER, reading(image)) == ""
    assert as_user(USER, writing(image)) == "PermissionError"
    assert as_user(OTHER_USER, reading(image)) == "PermissionError"


def test_service_user_without_privileges_can_hand_over_its_files(
    site: Any, as_user: Callable[..., str]
) -> None:
    service = 64010
    path = site.root / "file"
    path.write_bytes(b"")
    os.chown(path, service, service)

    def hand_over() -> None:
        grant(RealDisk(), str(path), mode=0o600, uids=[USER], permission=READ_WRITE)

    assert as_user(service, hand_over) == ""
    assert as_user(USER, writing(path)) == ""
    assert path.stat().st_uid == service


def test_file_of_somebody_else_cannot_be_handed_over(site: Any, as_user: Callable[..., str]) -> None:
    path = site.root / "file"
    path.write_bytes(b"")

    def hand_over() -> None:
        try:
            grant(RealDisk(), str(path), mode=0o600, uids=[USER], permission=READ_WRITE)
        except NotAllowed as error:
            raise BlockingIOError from error

    assert as_user(OTHER_USER, hand_over) == "BlockingIOError"


def test_without_lists_root_gives_an_instance_to_its_user(
    mounted: Callable[[str], Path], site_on: Callable[[str], Any], as_user: Callable[..., str]
) -> None:
    site = site_on("ramfs")
    path = site.make("copy", site.order(site.image(b"data"), "file", uid=USER)).path

    assert as_user(USER, writing(path)) == ""
    assert as_user(OTHER_USER, reading(path)) == "PermissionError"


def test_without_lists_an_image_keeps_its_owner(site_on: Callable[[str], Any]) -> None:
    site = site_on("ramfs")
    image = site.image(b"data")

    with pytest.raises(Unsuitable, match="keeps no access control lists, and it is for more than one user"):
        grant(site.disk, str(image), mode=0o400, uids=[USER], permission=READ)
    assert image.stat().st_uid == 0


def test_link_is_not_followed(site: Any) -> None:
    target, link = site.root / "target", site.root / "link"
    target.write_bytes(b"")
    link.symlink_to(target)
    before = target.stat()
    with pytest.raises((Unsuitable, DiskFailed, NotAllowed, OSError)):
        grant(site.disk, str(link), mode=0o600, uids=[USER], permission=ALL, may_change_owner=True)

    assert (target.stat().st_mode, target.stat().st_uid) == (before.st_mode, before.st_uid)


def test_order_and_repetition_make_no_difference() -> None:
    assert acl(0o600, [2, 1, 2], [4, 3, 4], READ) == acl(0o600, [1, 2], [3, 4], READ)


@pytest.mark.parametrize("numbers", [[-1], [0xFFFFFFFF], list(range(MOST_NAMED + 1))])
def test_impossible_users_are_refused(numbers: list[int]) -> None:
    with pytest.raises(BadRequest):
        acl(0o600, numbers, [], READ)
