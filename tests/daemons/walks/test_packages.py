"""Debian packages: installed, upgraded over a promise, removed and purged; every file is as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.suites import SUITES, suite_tree
from tests.daemons.installing.machines import need_everything
from tests.daemons.walks.conftest import NEXT
from tests.repository import ROOT
from tools.packages import debian, tree
from tools.packages.__main__ import NODE, commit_s

WALKS = Path(__file__).parent / "packaged"
LONGEST_S = 3_600


@pytest.fixture
def node_package(tmp_path: Path) -> Path:
    """The node's alone, which needs no wheels, and the later version of it."""
    (tmp_path / "tree").mkdir()
    tree.node(tmp_path / "tree")
    (tmp_path / "next").mkdir()
    debian.built(NODE, tmp_path / "tree", "0.1.0", commit_s(), tmp_path)
    debian.built(NODE, tmp_path / "tree", NEXT, commit_s(), tmp_path / "next")
    return tmp_path


def walked(steps: str, root: Path, packages: Path, out: Path) -> str:
    """What a walk has printed; its lists are in `out`. Raises AssertionError if it fails."""
    done = subprocess.run(
        ["bash", *map(str, (WALKS / "frame.sh", root, packages, out, WALKS / f"{steps}.sh"))],
        capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def listed(out: Path, name: str) -> list[str]:
    return (out / name).read_text().splitlines()


def test_package_of_a_node_keeps_its_images_over_an_upgrade_and_leaves_nothing_behind(
    node_package: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or shutil.which("dpkg") is None:
        pytest.skip("only root can install a package, where there is dpkg")

    said = walked("node", Path("/"), node_package, tmp_path)

    assert {"new ./usr/sbin/cachemgr", "new ./usr/lib/systemd/system/cachemgr.service"} <= set(
        listed(tmp_path, "installed")
    )
    assert (tmp_path / "version").read_text() == NEXT
    assert "image.raw" in (tmp_path / "listed").read_text()
    assert "state kept by a removal" in said
    assert listed(tmp_path, "left") == []


@pytest.mark.parametrize("suite", [SUITES["22.05"], SUITES["24.11"]])
def test_packages_keep_promises_over_an_upgrade_and_leave_nothing_behind(
    packages: Path, suite: str, tmp_path: Path
) -> None:
    need_everything()

    said = walked("head", suite_tree(suite), packages, tmp_path)

    installed = set(listed(tmp_path, "installed"))
    assert {"new ./usr/bin/outriderd", "new ./usr/share/man/man5/outriderd.yaml.5.gz"} <= installed
    assert "walk-1" in (tmp_path / "listed").read_text()
    assert "state kept by a removal" in said
    assert listed(tmp_path, "left") == []


def test_lintian_is_content_but_for_what_is_named(release: Path) -> None:
    made = [str(each) for each in release.glob("*.deb")]

    done = checked("lintian", "--allow-root", "--fail-on", "error,warning", *made)

    assert len(made) == 4
    assert done.returncode == 0, done.stdout


def test_rpmlint_is_content_but_for_what_is_named_and_a_database_takes_the_packages(
    release: Path, tmp_path: Path
) -> None:
    made = [str(each) for each in (release / "rpm").rglob("*.rpm")]
    base = ["rpm", "--dbpath", str(tmp_path / "database"), "--nodeps"]

    done = checked("rpmlint", "--config", str(ROOT / "packaging/rpmlint.toml"), *made)
    # Into a database alone: scripts and files are for another distribution.
    added = checked(*base, "--justdb", "--noscripts", "--ignorearch", "--ignoreos", "-i", *made)
    named = checked("rpm", "--dbpath", str(tmp_path / "database"), "-qa", "--qf", "%{NAME}\n").stdout.split()
    gone = checked(*base, "--justdb", "--noscripts", "-e", "outrider", "outrider-node")

    assert len(made) == 2
    assert done.returncode == 0, done.stdout
    assert (added.returncode, sorted(named)) == (0, ["outrider", "outrider-node"]), added.stderr
    assert gone.returncode == 0, gone.stderr


def checked(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program}: install Debian's package of that name")
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=LONGEST_S, check=False)
