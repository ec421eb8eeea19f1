"""Debian packages: installed, upgraded over a promise, removed and purged; every file is as it was."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.suites import tree_of
from tests.repository import ROOT
from tools.packages import debian
from tools.packages.__main__ import HEAD, NODE, commit_s

WALK = Path(__file__).with_name("packages.sh")
MADE = ROOT / "build/packages"
LONGEST_S = 600


@pytest.fixture(scope="module")
def packages(long: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The head's and the node's, and below `next` the same as a later version."""
    made = subprocess.run(["make", "packages"], cwd=ROOT, timeout=1_800, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    folder = tmp_path_factory.mktemp("packages")
    (folder / "next").mkdir()
    for package in (HEAD, NODE):
        shutil.copy(next(MADE.glob(f"{package.name}_*.deb")), folder)
        tree = folder / f"tree-{package.name}"
        shutil.copytree(MADE / "tree" / package.name, tree, symlinks=True)
        debian.built(package, tree, "9.0.0", commit_s(), folder / "next")
    return folder


@pytest.mark.parametrize("version", ["24.11"])
def test_packages_keep_promises_over_an_upgrade_and_leave_nothing_behind(
    packages: Path, version: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        ["bash", str(WALK), str(tree_of(version)), str(packages), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    before, after = ((tmp_path / name).read_text() for name in ("before", "after"))
    assert len(before.splitlines()) > 5_000
    assert after == before
    listed = (tmp_path / "listed").read_text()
    assert "walk-1" in listed
    assert "state kept by a removal" in done.stdout


def test_lintian_is_content_but_for_what_is_named(packages: Path) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("there is no lintian: install Debian's package of that name")
    made = [str(each) for each in MADE.glob("*.deb")]

    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", *made],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )

    assert len(made) == 4
    assert done.returncode == 0, done.stdout
