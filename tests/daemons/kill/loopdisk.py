"""Small file systems of their own, in a file or in memory, mounted for a test and filled by it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# XFS refuses to be smaller. The file is sparse.
SIZE_BYTES = 320 << 20


def need(*tools: str) -> None:
    """Skip where root or a tool is missing; in CI that is a failure."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if os.geteuid() != 0:
        missing.append("root")
    if missing and os.environ.get("CI"):
        pytest.fail(f"in CI there have to be: {', '.join(missing)}")
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


@contextmanager
def mounted(kind: str, folder: Path) -> Iterator[Path]:
    """Where a fresh file system of that kind is, until the end of the block."""
    need(f"mkfs.{kind}", "mount", "umount")
    image, place = folder / f"{kind}.img", folder / kind
    with open(image, "wb") as file:
        file.truncate(SIZE_BYTES)
    place.mkdir()
    run(f"mkfs.{kind}", "-q", str(image))
    run("mount", "-o", "loop", str(image), str(place))
    try:
        yield place
    finally:
        run("umount", str(place))
        image.unlink()


@contextmanager
def in_memory(place: Path, size: str) -> Iterator[Path]:
    """A disk of so many bytes, until the end of the block."""
    need("mount", "umount")
    place.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    try:
        yield place
    finally:
        run("umount", "--lazy", str(place))


def fill(disk: Path) -> Path:
    """A file that takes all the room there is, or that has become free since it was made."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(1 << 16)):
                """Until the disk says no."""
        except OSError:
            return ballast
    raise AssertionError("the disk is never full")


def moved(image: Path, place: Path) -> None:
    """Mount what is on that disk anew, as if it had been put into another machine.

    From a copy, since mounting the same file again finds the file system that the kernel has given up
    as long as it is mounted anywhere: whatever has made a mount namespace meanwhile keeps it alive, with
    its own copy of all mounts, and umount here does not change that.
    """
    copy = image.with_name(f"again-{image.name}")
    run("umount", str(place))
    run("cp", "--sparse=always", str(image), str(copy))
    run("mount", "-o", "loop", str(copy), str(place))
    copy.unlink()


@contextmanager
def other_namespace() -> Iterator[None]:
    """Somebody who keeps every mount of this moment alive, as services and containers do."""
    need("unshare")
    # It says when it is there, and ends when its input does.
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo; read end"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        yield
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait(60)


def run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240)
    if done.returncode:
        raise AssertionError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr}")
