"""A daemon that is not root, and root's hooks that mount what it has prepared."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cachemgr.base.errors import NotAllowed
from cachemgr.cli.main import parser
from cachemgr.cli.session import VerbSession
from cachemgr.cli.verbs import mounting
from tests.daemons.node.daemons import CLOCK, Outside, as_user, eventually, make_pool, needs_root
from tests.repository import ROOT

Start = Callable[..., Outside]
USER = 2001


@pytest.fixture
def daemon(outside: Start, folder: Path) -> Outside:
    """A daemon of the user nobody, with a squashfs image in its pool."""
    needs_root()
    tool = shutil.which("mksquashfs")
    if tool is None and os.environ.get("CI"):
        pytest.fail("squashfs-tools is not installed, and in CI it must be")
    if tool is None or not os.path.exists("/usr/bin/python3"):
        pytest.skip("needs mksquashfs, and a Python that a service user can read")
    tree, image = folder / "tree", folder / "image.squashfs"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc" / "motd").write_text("from the image\n")
    tree.chmod(0o777)
    subprocess.run([tool, tree, image, "-quiet", "-no-progress"], check=True, stdout=subprocess.DEVNULL)
    make_pool(folder / "pool")
    service = pwd.getpwnam("nobody")
    for path in (folder / "pool", *(folder / "pool").rglob("*")):
        os.chown(path, service.pw_uid, service.pw_gid)
    found = outside(user="nobody", python="/usr/bin/python3", mounts_by_root="yes")
    found.ask("add", uri=str(image))
    eventually("it is there", lambda: found.ask("ls")["images"], found.log)
    return found


@pytest.fixture
def mounter(folder: Path, daemon: Outside) -> str:
    """What stands for cachemgr.pyz, told where this pool is."""
    path = folder / "mounter.py"
    path.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from cachemgr.cli.main import main\n"
        f"sys.exit(main(['--pool', {str(folder / 'pool')!r}, *sys.argv[1:]]))\n"
    )
    return str(path)


def hook(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(ROOT / "cachemgr" / "hook.py"), *arguments]
    return subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, timeout=240)


def prepared(daemon: Outside, *more: str) -> subprocess.CompletedProcess[str]:
    digest = daemon.ask("ls")["images"][0]["digest"]
    until = str(CLOCK.now_s() + 600)
    common = ["--owner", "job:1", "--uid", str(USER), "--until", until, "--socket", daemon.socket]
    return hook("prepare", "--image", digest, *common, *more)


def mounted_below(folder: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if f" {folder}/" in line]


def test_job_finds_its_tree_mounted_writes_to_it_and_leaves_nothing(
    daemon: Outside, mounter: str, folder: Path
) -> None:
    made = prepared(daemon, "--mounter", mounter)
    path = Path(made.stdout.splitlines()[-1]) if made.stdout else Path()
    there = made.returncode == 0 and (path / "etc" / "motd").read_text()

    def write() -> int:
        return (path / "mine").write_text("x")

    wrote = as_user(USER, write)
    released = hook("release", "--owner", "job:1", "--socket", daemon.socket, "--mounter", mounter)

    assert (made.returncode, made.stderr, there) == (0, "", "from the image\n")
    assert wrote["gives"] == 1
    assert (released.returncode, released.stderr) == (0, "")
    assert mounted_below(folder) == []
    assert list((folder / "pool" / "instances").iterdir()) == []
    assert daemon.ask("check")["findings"] == []


def test_instance_that_needs_mounts_is_an_error_without_a_mounter(daemon: Outside, folder: Path) -> None:
    made = prepared(daemon)

    assert made.returncode == 10
    assert "give --mounter" in made.stderr
    assert mounted_below(folder) == []


def test_prepared_twice_is_mounted_once(daemon: Outside, mounter: str, folder: Path) -> None:
    first, second = prepared(daemon, "--mounter", mounter), prepared(daemon, "--mounter", mounter)
    mounts = mounted_below(folder)
    hook("release", "--owner", "job:1", "--socket", daemon.socket, "--mounter", mounter)

    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout == second.stdout
    assert len(mounts) == 2
    assert mounted_below(folder) == []


def test_mounting_is_for_root_and_for_instances_alone(daemon: Outside, mounter: str) -> None:
    session = VerbSession(parser().parse_args(["mount", "0" * 32]), CLOCK)
    wrong = subprocess.run(
        [sys.executable, "-I", "-S", mounter, "mount", "../../etc"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    unknown = subprocess.run(
        [sys.executable, "-I", "-S", mounter, "mount", "0" * 32], capture_output=True, text=True, timeout=240
    )

    def mount_as_user() -> str:
        with pytest.raises(NotAllowed) as refused:
            mounting._pool(session)
        return str(refused.value)

    assert (wrong.returncode, unknown.returncode) == (2, 3)
    assert "only root may mount" in as_user(USER, mount_as_user)["gives"]


@pytest.mark.parametrize(
    "part", [("--owner", "-5"), ("--owner", "--help"), ("--owner", "o", "--label", "-l")]
)
def test_names_that_look_like_options_are_names_to_the_mounter(
    daemon: Outside, mounter: str, part: tuple[str, ...]
) -> None:
    image = daemon.ask("ls")["images"][0]["digest"]
    common = (*part, "--socket", daemon.socket, "--mounter", mounter)
    until = str(CLOCK.now_s() + 600)

    made = hook("prepare", "--image", image, "--until", until, "--uid", str(USER), *common)
    released = hook("release", *common)

    assert (made.returncode, released.returncode) == (0, 0), made.stderr + released.stderr
    assert not os.path.exists(made.stdout.strip())


def test_pipe_in_place_of_a_record_does_not_stop_root(daemon: Outside, mounter: str, folder: Path) -> None:
    home = folder / "pool" / "instances" / ("0" * 32)
    home.mkdir()
    os.mkfifo(home / "instance.json")

    for words in (("mount", "0" * 32), ("unmount", "job:1")):
        ended = subprocess.run(
            [sys.executable, "-I", "-S", mounter, *words], capture_output=True, timeout=240
        )
        assert ended.returncode in (0, 3), ended.stderr
    os.unlink(home / "instance.json")
    home.rmdir()
