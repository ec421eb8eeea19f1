"""Pools on real file systems: loop-mounted XFS, btrfs and ext4, and one without access lists."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cachemgr.base.disk import RealDisk
from cachemgr.instances.kernel import Kernel, MountPoint
from cachemgr.instances.making import BuildOrder, BuiltInstance, make

MIB = 1 << 20
FILE_SYSTEM_BYTES = 300 * MIB
MAKERS = {
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
    "ext4": ["mkfs.ext4", "-q", "-F"],
}
USER, OTHER_USER = 64001, 64002


def lacking(what: str) -> None:
    """A laptop may lack it; where it is said to be there, that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing")
    pytest.skip(f"{what} is missing")


def ran(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


@dataclass
class Site:
    """A pool in a file system."""

    root: Path
    made: int = 0
    disk: RealDisk = field(default_factory=RealDisk)
    kernel: Kernel = field(default_factory=Kernel)

    def image(self, data: bytes) -> Path:
        folder = self.root / "images" / hashlib.sha256(data).hexdigest()
        folder.mkdir(mode=0o711, exist_ok=True)
        path = folder / "data"
        if not path.exists():
            path.write_bytes(data)
            path.chmod(0o444)
        return path

    def adopted(self, source: Path) -> Path:
        return self.image(source.read_bytes())

    def folder(self) -> Path:
        self.made += 1
        path = self.root / "instances" / f"{self.made:032x}"
        path.mkdir(mode=0o711)
        return path

    def order(
        self,
        image: Path,
        image_format: str,
        *,
        folder: Path | None = None,
        is_writable: bool = True,
        uid: int = USER,
    ) -> BuildOrder:
        return BuildOrder(
            image_path=str(image),
            image_format=image_format,
            size_bytes=image.stat().st_size,
            folder=str(folder or self.folder()),
            uid=uid,
            is_writable=is_writable,
        )

    def make(self, method: str, order: BuildOrder) -> BuiltInstance:
        return make(self.disk, method, order)

    def mounted(self) -> list[MountPoint]:
        return [each for each in self.kernel.table() if each.path.startswith(f"{self.root}/")]


def pool_in(folder: Path) -> Site:
    root = folder / "pool"
    for name in ("", "images", "instances", "trash"):
        (root / name).mkdir(mode=0o711)
        (root / name).chmod(0o711)
    return Site(root)


@pytest.fixture(scope="session")
def needs() -> Callable[[str], str]:
    """Where a tool is; without it, skip, or fail in CI."""

    def find(tool: str) -> str:
        path = shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if path is None:
            lacking(tool)
        return str(path)

    return find


@pytest.fixture(scope="session")
def as_root() -> None:
    if os.geteuid() != 0:
        lacking("root, which mounts,")


@pytest.fixture(scope="session")
def short_path(as_root: None) -> Iterator[Path]:
    """A folder that other users can reach, which pytest's own is not."""
    path = Path(tempfile.mkdtemp(prefix="instances-", dir="/var/tmp"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def mounted(short_path: Path, needs: Callable[[str], str]) -> Iterator[Callable[[str], Path]]:
    """File systems by their kind, each made when first asked for."""
    found: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind in found:
            return found[kind]
        target = short_path / kind
        target.mkdir()
        if kind in MAKERS:
            device = short_path / f"{kind}.img"
            with device.open("wb") as file:
                file.truncate(FILE_SYSTEM_BYTES)
            ran(needs(MAKERS[kind][0]), *MAKERS[kind][1:], str(device))
            ran("mount", "-o", "loop", str(device), str(target))
        else:
            ran("mount", "-t", kind, "none", str(target))
        target.chmod(0o711)
        found[kind] = target
        return target

    yield get
    for target in found.values():
        ran("umount", "-l", str(target))


@pytest.fixture
def site_on(mounted: Callable[[str], Path]) -> Iterator[Callable[[str], Site]]:
    """A fresh pool in a file system of that kind; whatever is mounted in it goes at the end."""
    made: list[Site] = []

    def get(kind: str) -> Site:
        made.append(pool_in(Path(tempfile.mkdtemp(dir=mounted(kind)))))
        made[-1].root.parent.chmod(0o711)
        return made[-1]

    yield get
    for site in made:
        for each in reversed(site.mounted()):
            ran("umount", "-l", each.path)
        shutil.rmtree(site.root.parent)


@pytest.fixture
def site(site_on: Callable[[str], Site]) -> Site:
    return site_on("xfs")


@pytest.fixture
def plain_site(tmp_path: Path) -> Site:
    """A pool where the tests are, whatever that can do; for what needs no privilege."""
    return pool_in(tmp_path)


@pytest.fixture
def squashfs(short_path: Path, needs: Callable[[str], str], tmp_path: Path) -> Path:
    """A squashfs image with a file of the user's and one of root's."""
    tree = tmp_path / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc" / "motd").write_text("from the image\n")
    (tree / "program").write_text("#!/bin/sh\n")
    (tree / "program").chmod(0o4755)
    image = tmp_path / "image.squashfs"
    ran(needs("mksquashfs"), str(tree), str(image), "-quiet", "-no-progress", "-all-root")
    return image


@pytest.fixture
def as_user() -> Callable[[int, Callable[[], None]], str]:
    """Do something as another user in a child process; its error's class, or nothing."""

    def run(uid: int, work: Callable[[], None]) -> str:
        read_fd, write_fd = os.pipe()
        child = os.fork()
        if child == 0:
            word = "anything but an OSError"
            try:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                work()
                word = ""
            except OSError as error:
                word = type(error).__name__
            finally:
                os.write(write_fd, word.encode())
                os._exit(0)
        os.close(write_fd)
        with os.fdopen(read_fd) as answers:
            word = answers.read()
        os.waitpid(child, 0)
        return word

    return run
