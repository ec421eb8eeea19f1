"""Instances that are mounted: what a job sees, what it cannot do, and that all of it goes again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.errors import BadRequest, NotAllowed, Unsuitable
from cachemgr.instances.kernel import Kernel, configure_loop
from cachemgr.instances.making import BuiltInstance
from cachemgr.instances.mounts import TREE, carry_out, decode_mounts
from cachemgr.instances.removal import remove, undo

USER, OTHER_USER = 64001, 64002


def made_and_mounted(site: Any, method: str, order: Any) -> BuiltInstance:
    made: BuiltInstance = site.make(method, order)
    carry_out(made.mounts, pool=str(site.root), mounter=site.kernel)
    return made


def read(path: str) -> str:
    return Path(path).read_text()


def writing(path: str) -> Callable[[], None]:
    def work() -> None:
        Path(path).write_text("written")

    return work


def options_of(site: Any, path: str) -> set[str]:
    return set(next(each.options for each in site.mounted() if each.path == path))


@pytest.fixture
def removed(site: Any) -> Callable[[str], None]:
    return lambda folder: remove(site.kernel, folder, pool=str(site.root))


@pytest.mark.parametrize("kind", ["xfs", "btrfs", "ext4"])
def test_overlay_on_squashfs_takes_writes_that_the_image_does_not_see(
    site_on: Callable[[str], Any], squashfs: Path, as_user: Callable[..., str], kind: str
) -> None:
    site = site_on(kind)
    image = site.adopted(squashfs)
    before = image.read_bytes()
    first = made_and_mounted(site, "overlay", site.order(image, "squashfs"))
    second = made_and_mounted(site, "overlay", site.order(image, "squashfs"))
    Path(first.path, "etc", "motd").write_text("changed")

    assert as_user(USER, writing(f"{first.path}/new")) == ""
    assert as_user(OTHER_USER, writing(f"{first.path}/other")) == "PermissionError"
    assert read(f"{first.path}/etc/motd") == "changed"
    assert read(f"{second.path}/etc/motd") == "from the image\n"
    assert sorted(os.listdir(second.path)) == ["etc", "program"]
    assert image.read_bytes() == before
    assert first.format == "folder"


@pytest.mark.parametrize("method", ["overlay", "readonly"])
def test_tree_is_seen_by_its_user_alone(
    site: Any, squashfs: Path, as_user: Callable[..., str], method: str
) -> None:
    made = made_and_mounted(
        site, method, site.order(site.adopted(squashfs), "squashfs", is_writable=method == "overlay")
    )

    def looking() -> None:
        os.close(os.open(f"{made.path}/etc/motd", os.O_RDONLY))

    assert as_user(USER, looking) == ""
    assert as_user(OTHER_USER, looking) == "PermissionError"


def test_tree_that_everybody_would_see_is_not_made(site_on: Callable[[str], Any], squashfs: Path) -> None:
    site = site_on("ramfs")
    order = site.order(site.adopted(squashfs), "squashfs", is_writable=False)

    with pytest.raises(Unsuitable, match="keeps no access control lists"):
        site.make("readonly", order)
    assert os.listdir(order.folder) == []


def test_overlay_on_a_folder_leaves_it_alone(site: Any) -> None:
    image = site.root / "images" / ("a" * 64) / "data"
    image.mkdir(parents=True)
    (image / "motd").write_text("from the image\n")
    made = made_and_mounted(site, "overlay", site.order(image, "folder"))
    Path(made.path, "motd").unlink()

    assert os.listdir(made.path) == []
    assert os.listdir(image) == ["motd"]


def test_user_reaches_the_upper_folder_only_through_the_mount(
    site: Any, squashfs: Path, as_user: Callable[..., str]
) -> None:
    order = site.order(site.adopted(squashfs), "squashfs")
    made_and_mounted(site, "overlay", order)

    assert as_user(USER, lambda: os.chdir(f"{order.folder}/overlay/upper")) == "PermissionError"
    assert as_user(USER, lambda: os.chdir(f"{order.folder}/{TREE}")) == ""


def test_squashfs_mounted_read_only_has_neither_devices_nor_privileges(site: Any, squashfs: Path) -> None:
    made = made_and_mounted(
        site, "readonly", site.order(site.adopted(squashfs), "squashfs", is_writable=False)
    )

    assert read(f"{made.path}/etc/motd") == "from the image\n"
    assert {"ro", "nosuid", "nodev"} <= options_of(site, made.path)
    with pytest.raises(OSError, match="Read-only"):
        Path(made.path, "new").write_text("")


@pytest.mark.parametrize("image_format", ["file", "raw", "qcow2", "sif"])
def test_file_mounted_read_only_resists_even_root(
    site: Any, needs: Callable[[str], str], tmp_path: Path, image_format: str
) -> None:
    source = tmp_path / "image"
    source.write_bytes(b"content" * 100)
    if image_format == "qcow2":
        argv = [needs("qemu-img"), "create", "-q", "-f", "qcow2", str(source), "1M"]
        subprocess.run(argv, check=True, timeout=240)
    image = site.adopted(source)
    made = made_and_mounted(site, "readonly", site.order(image, image_format, is_writable=False))

    assert Path(made.path).read_bytes() == image.read_bytes()
    assert {"ro", "nosuid", "nodev"} <= options_of(site, made.path)
    with pytest.raises(OSError, match="Read-only"):
        os.chmod(made.path, 0o666)
    with pytest.raises(OSError, match="Read-only"):
        os.truncate(made.path, 0)


@pytest.mark.parametrize("method", ["overlay", "readonly"])
def test_mounting_twice_mounts_once(site: Any, squashfs: Path, method: str) -> None:
    order = site.order(site.adopted(squashfs), "squashfs", is_writable=method == "overlay")
    made = made_and_mounted(site, method, order)
    before = site.mounted()

    assert made_and_mounted(site, method, order) == made
    assert site.mounted() == before


class DyingKernel(Kernel):
    """Dies at its n-th mount, unable to tidy up."""

    def __init__(self, mounts: int) -> None:
        self.left = mounts

    def mount(self, source: str, target: str, kind: str, flags: int, data: str) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        super().mount(source, target, kind, flags, data)

    def unmount(self, target: str, *, is_lazy: bool) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("method", "image_format"), [("overlay", "squashfs"), ("readonly", "file")])
@pytest.mark.parametrize("mounts", [0, 1])
def test_crash_between_mounts_is_finished_by_the_next_attempt(
    site: Any, squashfs: Path, method: str, image_format: str, mounts: int
) -> None:
    order = site.order(site.adopted(squashfs), image_format, is_writable=method == "overlay")
    made = site.make(method, order)
    with pytest.raises(KeyboardInterrupt):
        carry_out(made.mounts, pool=str(site.root), mounter=DyingKernel(mounts))
    carry_out(made.mounts, pool=str(site.root), mounter=site.kernel)

    assert {"nosuid", "nodev"} <= options_of(site, made.path)
    assert len(site.mounted()) == len(made.mounts)


def test_overlay_is_not_written_out_when_it_is_unmounted(site: Any, squashfs: Path) -> None:
    made = made_and_mounted(site, "overlay", site.order(site.adopted(squashfs), "squashfs"))
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    line = next(each for each in lines if f" {made.path} " in each)

    assert line.endswith("volatile")


class OldKernel(Kernel):
    """One that does not know volatile overlays."""

    def mount(self, source: str, target: str, kind: str, flags: int, data: str) -> None:
        if data.endswith(",volatile"):
            raise OSError(22, "Invalid argument")
        super().mount(source, target, kind, flags, data)


def test_old_kernel_mounts_the_overlay_without_that_option(site: Any, squashfs: Path) -> None:
    made = site.make("overlay", site.order(site.adopted(squashfs), "squashfs"))
    carry_out(made.mounts, pool=str(site.root), mounter=OldKernel())

    assert read(f"{made.path}/etc/motd") == "from the image\n"


def test_overlay_that_was_lost_is_refused_until_it_is_made_anew(site: Any, squashfs: Path) -> None:
    order = site.order(site.adopted(squashfs), "squashfs")
    made = made_and_mounted(site, "overlay", order)
    undo(site.kernel, order.folder, pool=str(site.root))

    with pytest.raises(Unsuitable, match="make it again"):
        carry_out(made.mounts, pool=str(site.root), mounter=site.kernel)
    assert site.mounted() == []
    remove(site.kernel, order.folder, pool=str(site.root))
    assert read(f"{made_and_mounted(site, 'overlay', order).path}/etc/motd") == "from the image\n"


def test_failure_of_a_later_mount_takes_the_earlier_ones_away(site: Any, squashfs: Path) -> None:
    order = site.order(site.adopted(squashfs), "squashfs")
    made = site.make("overlay", order)
    os.rmdir(f"{order.folder}/overlay/work")
    with pytest.raises(Exception, match="does not exist"):
        carry_out(made.mounts, pool=str(site.root), mounter=site.kernel)

    assert site.mounted() == []


def test_damaged_squashfs_is_named_and_leaves_no_loop_device(site: Any) -> None:
    image = site.image(b"hsqs" + bytes(8192))
    order = site.order(image, "squashfs", is_writable=False)
    made = site.make("readonly", order)

    with pytest.raises(Unsuitable, match="the image is damaged"):
        carry_out(made.mounts, pool=str(site.root), mounter=site.kernel)
    assert str(image) not in attached()


def attached() -> str:
    argv = ["losetup", "--list", "--output", "BACK-FILE", "--noheadings"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=240).stdout


def test_removal_leaves_neither_mounts_nor_loop_devices_nor_files(
    site: Any, squashfs: Path, removed: Callable[[str], None]
) -> None:
    image = site.adopted(squashfs)
    for method in ("overlay", "readonly"):
        order = site.order(image, "squashfs", is_writable=method == "overlay")
        made = made_and_mounted(site, method, order)
        if method == "overlay":
            Path(made.path, "etc", "motd").write_text("changed")
        assert str(image) in attached()
        removed(order.folder)
        removed(order.folder)

        assert os.listdir(order.folder) == []
        assert str(image) not in attached()
    assert site.mounted() == []
    assert image.exists()


def test_busy_mount_is_detached_and_its_user_reads_on(
    site: Any, squashfs: Path, removed: Callable[[str], None]
) -> None:
    order = site.order(site.adopted(squashfs), "squashfs")
    made = made_and_mounted(site, "overlay", order)
    with open(f"{made.path}/etc/motd") as file:
        removed(order.folder)

        assert site.mounted() == []
        assert os.listdir(order.folder) == []
        assert file.read() == "from the image\n"


def test_foreign_mount_within_an_instance_is_unmounted_and_not_deleted(
    site: Any, squashfs: Path, tmp_path: Path, removed: Callable[[str], None]
) -> None:
    order = site.order(site.adopted(squashfs), "squashfs")
    made = made_and_mounted(site, "overlay", order)
    precious = tmp_path / "home"
    precious.mkdir()
    (precious / "thesis").write_text("precious")
    inner = Path(made.path, "a b\\c\n")
    inner.mkdir()
    site.kernel.mount(str(precious), str(inner), "none", 0x1000, "")
    assert (inner / "thesis").exists()
    removed(order.folder)

    assert (precious / "thesis").read_text() == "precious"
    assert site.mounted() == []


def test_undo_leaves_a_neighbour_with_a_longer_name_alone(site: Any, squashfs: Path) -> None:
    orders = [site.order(site.adopted(squashfs), "squashfs", is_writable=False) for _ in range(2)]
    for order in orders:
        made_and_mounted(site, "readonly", order)

    assert undo(site.kernel, orders[0].folder, pool=str(site.root)) == 1
    assert [each.path for each in site.mounted()] == [f"{orders[1].folder}/{TREE}"]
    assert undo(site.kernel, orders[0].folder, pool=str(site.root)) == 0


def test_somebody_without_privileges_is_told_to_ask_root(
    site: Any, squashfs: Path, as_user: Callable[..., str]
) -> None:
    order = site.order(site.adopted(squashfs), "squashfs", is_writable=False)
    made = made_and_mounted(site, "readonly", order)

    def told(action: Callable[[], object], sentence: str) -> Callable[[], None]:
        def work() -> None:
            with pytest.raises(NotAllowed, match=sentence):
                action()

        return work

    undoing = told(
        lambda: undo(site.kernel, order.folder, pool=str(site.root)),
        "is mounted: .* root runs `cachemgr unmount OWNER` first",
    )
    undo_word = as_user(USER, undoing)
    remove(site.kernel, order.folder, pool=str(site.root))
    again = site.make("readonly", order)
    mount_word = as_user(
        USER,
        told(
            lambda: carry_out(again.mounts, pool=str(site.root), mounter=site.kernel), "only root may mount"
        ),
    )

    assert (undo_word, mount_word, made) == ("", "", again)


def test_instance_of_a_bind_mount_needs_its_target(site: Any) -> None:
    order = site.order(site.image(b"data"), "file", is_writable=False)
    made = site.make("readonly", order)
    os.unlink(made.path)

    with pytest.raises(Exception, match="make the instance first"):
        carry_out(made.mounts, pool=str(site.root), mounter=site.kernel)


def test_overlay_without_its_image_below_is_refused(site: Any, squashfs: Path) -> None:
    made = site.make("overlay", site.order(site.adopted(squashfs), "squashfs"))

    with pytest.raises(BadRequest, match="mount the image there first"):
        carry_out(made.mounts[1:], pool=str(site.root), mounter=site.kernel)
    assert site.mounted() == []


def test_mounts_survive_a_message(site: Any, squashfs: Path) -> None:
    made = site.make("overlay", site.order(site.adopted(squashfs), "squashfs"))

    assert decode_mounts([each.encode() for each in made.mounts]) == list(made.mounts)


def test_loop_device_can_be_had_from_an_old_kernel_too(site: Any) -> None:
    image = site.image(bytes(1 << 20))
    with image.open("rb") as file:
        path, device = site.kernel.attach_loop(file.fileno())
        os.close(device)
        device = os.open(path, os.O_RDONLY)
        try:
            configure_loop(device, file.fileno(), is_modern=False)
            assert str(image) in attached()
        finally:
            os.close(device)

    assert str(image) not in attached()
