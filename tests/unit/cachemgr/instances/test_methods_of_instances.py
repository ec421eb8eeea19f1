"""Which method is chosen, and what a refusal says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, Unsuitable
from cachemgr.instances.kernel import Kernel, MountPoint
from cachemgr.instances.maker import InstanceMaker
from cachemgr.instances.methods import NEEDS, Abilities, choose, is_writable_unasked
from cachemgr.instances.probing import probe
from cachemgr.pool.records import PUBLIC, PoolImage

EVERYTHING = Abilities(tuple(NEEDS))
NOTHING = Abilities(())
MOUNTS_ONLY = Abilities(("bind", "overlay", "squashfs"))


@pytest.mark.parametrize(
    ("image_format", "abilities", "is_writable", "method"),
    [
        ("raw", EVERYTHING, True, "reflink"),
        ("qcow2", EVERYTHING, True, "reflink"),
        ("file", EVERYTHING, True, "reflink"),
        ("sif", EVERYTHING, True, "reflink"),
        ("squashfs", EVERYTHING, True, "overlay"),
        ("folder", EVERYTHING, True, "overlay"),
        ("raw", MOUNTS_ONLY, True, "qcow2"),
        ("qcow2", NOTHING, True, "qcow2"),
        ("file", MOUNTS_ONLY, True, "copy"),
        ("raw", EVERYTHING, False, "readonly"),
        ("squashfs", EVERYTHING, False, "readonly"),
        ("squashfs", NOTHING, False, "shared"),
        ("squashfs", Abilities(("bind", "overlay")), False, "shared"),
        ("folder", NOTHING, False, "shared"),
        ("file", NOTHING, False, "shared"),
    ],
)
def test_cheapest_possible_method_is_chosen(
    image_format: str, abilities: Abilities, is_writable: bool, method: str
) -> None:
    assert choose(image_format, abilities, is_writable=is_writable) == method


def test_possible_wish_is_followed() -> None:
    assert choose("raw", EVERYTHING, "copy") == "copy"
    assert choose("squashfs", NOTHING, "copy") == "copy"


@pytest.mark.parametrize(
    ("image_format", "wanted", "is_writable", "sentence"),
    [
        (
            "raw",
            "reflink",
            True,
            "method reflink is not possible: it needs a file system that shares blocks (XFS or btrfs); "
            "possible: qcow2, copy",
        ),
        (
            "squashfs",
            "qcow2",
            False,
            "method qcow2 is not possible: it gives no read-only instance; possible: shared, copy",
        ),
        (
            "squashfs",
            None,
            True,
            "no writable instance of a squashfs image is possible: reflink needs a file system that shares "
            "blocks (XFS or btrfs); overlay needs root and a site that lets it mount squashfs images, and "
            "root, to mount an overlay; a read-only instance is always possible",
        ),
    ],
)
def test_refusal_names_the_reason_and_what_would_work(
    image_format: str, wanted: str | None, is_writable: bool, sentence: str
) -> None:
    with pytest.raises(Unsuitable) as refused:
        choose(image_format, NOTHING, wanted, is_writable=is_writable)

    assert str(refused.value) == sentence


def test_unknown_method_and_ability_are_refused() -> None:
    with pytest.raises(BadRequest, match="choose one of reflink, qcow2"):
        choose("raw", EVERYTHING, "magic")
    with pytest.raises(BadRequest, match="abilities are some of"):
        Abilities(("magic",))


@pytest.mark.parametrize(("kind", "shares_blocks"), [("xfs", True), ("btrfs", True), ("ext4", False)])
def test_probe_finds_what_a_file_system_can(
    mounted: Callable[[str], Path], tmp_path: Path, kind: str, shares_blocks: bool
) -> None:
    folder = mounted(kind) / "probe"
    folder.mkdir(exist_ok=True)
    found = probe(RealDisk(), str(folder), Kernel())

    assert ("reflink" in found.names) == shares_blocks
    assert {"bind", "overlay", "squashfs"} <= set(found.names)
    assert [each for each in Kernel().table() if str(folder) in each.path] == []


def test_probe_may_be_repeated_and_heeds_what_is_denied(mounted: Callable[[str], Path]) -> None:
    folder = mounted("xfs") / "again"
    folder.mkdir()
    first = probe(RealDisk(), str(folder), Kernel())

    second = probe(RealDisk(), str(folder), Kernel(), denied=["squashfs"])

    assert set(first.names) - set(second.names) == {"squashfs"}


def test_without_a_mounter_nothing_is_mounted(tmp_path: Path) -> None:
    assert set(probe(RealDisk(), str(tmp_path), None).names) <= {"reflink"}


class Refusing:
    """A kernel for somebody who may not mount."""

    def mount(self, source: str, target: str, kind: str, flags: int, data: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    def unmount(self, target: str, *, is_lazy: bool) -> None:
        raise PermissionError(1, "Operation not permitted")

    def attach_loop(self, image_fd: int) -> tuple[str, int]:
        raise PermissionError(13, "Permission denied")

    def table(self) -> list[MountPoint]:
        return []


def test_probe_of_somebody_who_may_not_mount_finds_no_mounts(tmp_path: Path) -> None:
    assert set(probe(RealDisk(), str(tmp_path), Refusing()).names) <= {"reflink"}


@pytest.mark.parametrize(
    ("image_format", "abilities", "expected"),
    [
        ("squashfs", EVERYTHING, True),
        ("squashfs", Abilities(("reflink", "bind")), False),
        ("squashfs", NOTHING, False),
        ("sif", EVERYTHING, False),
        ("qcow2", NOTHING, True),
    ],
)
def test_container_of_a_job_is_writable_where_the_node_can_lay_something_over_it(
    image_format: str, abilities: Abilities, expected: bool
) -> None:
    image = PoolImage(
        digest="0" * 64, size_bytes=1, format=image_format, uri="", owner_uid=0, readers=PUBLIC, added_s=0
    )
    maker = InstanceMaker(RealDisk(), "", abilities=abilities, mounter=Kernel(), mounts_itself=False)

    assert is_writable_unasked(maker, image) is expected
    assert maker.choose(image, None, is_writable=expected)
