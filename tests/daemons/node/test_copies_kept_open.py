"""Copies that a user keeps open, or has a second name for, when they are released: their bytes come back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.instances import removal
from tests.daemons.node.daemons import CLOCK, MIB, Inside, ScriptedCarrier, needs_root

Start = Callable[..., Inside]
A = "http://x/a"


@pytest.fixture
def copy(inside: Start, carrier: ScriptedCarrier) -> tuple[Inside, Path]:
    carrier.contents = {A: os.urandom(4 * MIB)}
    daemon = inside()
    daemon.ask("add", uri=A)
    daemon.settle()
    made = daemon.ask("instance", name=A, owner="job", until_s=CLOCK.now_s() + 600, method="copy")
    return daemon, Path(made["path"])


def used_bytes(daemon: Inside) -> int:
    return int(daemon.ask("stats")["outrider_pool_used_bytes"])


def test_copy_that_is_kept_open_takes_no_bytes_once_they_are_given_back(copy: tuple[Inside, Path]) -> None:
    daemon, path = copy
    before = used_bytes(daemon)
    with path.open("r+b") as kept:
        taken = os.fstat(kept.fileno()).st_blocks
        daemon.ask("release", owner="job")
        left = os.fstat(kept.fileno()).st_blocks

    assert (before, used_bytes(daemon)) == (8 * MIB, 4 * MIB)
    assert taken * 512 >= 4 * MIB
    assert left == 0


def test_second_name_of_a_copy_keeps_no_bytes(copy: tuple[Inside, Path], folder: Path) -> None:
    daemon, path = copy
    os.link(path, folder / "mine")
    daemon.ask("release", owner="job")

    assert (folder / "mine").stat().st_size == 0


def test_copy_that_is_being_run_goes_all_the_same(
    inside: Start, carrier: ScriptedCarrier, folder: Path
) -> None:
    needs_root()
    program = Path("/bin/sleep").read_bytes()
    carrier.contents = {A: program}
    daemon = inside()
    daemon.ask("add", uri=A)
    daemon.settle()
    made = daemon.ask("instance", name=A, owner="job", until_s=CLOCK.now_s() + 600, method="copy")
    os.chmod(made["path"], 0o700)
    pid = os.posix_spawn(made["path"], ["sleep", "60"], {})
    released = daemon.ask("release", owner="job")
    os.kill(pid, 9)
    os.waitpid(pid, 0)

    assert released["removed"] == 1
    assert not Path(made["path"]).exists()


def test_image_that_is_bound_over_a_copys_name_is_never_emptied(
    copy: tuple[Inside, Path],
) -> None:
    needs_root()
    daemon, path = copy
    image = Path(daemon.ask("find", name=A)["path"])
    os.system(f"mount --bind {image} {path}")
    folder_fd = os.open(path.parent, os.O_RDONLY)
    try:
        removal.empty(folder_fd, path.name)
        size_bytes = image.stat().st_size
    finally:
        os.close(folder_fd)
        os.system(f"umount {path}")

    assert size_bytes == 4 * MIB
