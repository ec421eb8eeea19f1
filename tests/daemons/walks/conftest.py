"""What walks install: a wheel, and the packages and the archive of a release."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.daemons.wheels import wheel_of
from tests.repository import ROOT
from tools.packages import debian
from tools.packages.__main__ import HEAD, NODE, commit_s

NEXT = "9.0.0"
"""The later version, to which packages are upgraded."""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of these sources."""
    return wheel_of(tmp_path_factory)


@pytest.fixture(scope="session")
def long() -> None:
    """Of tests that take minutes, or need other suites."""
    if not os.environ.get("OUTRIDER_TEST_VERSIONS"):
        pytest.skip("OUTRIDER_TEST_VERSIONS is not set")


@pytest.fixture(scope="session")
def release(long: None) -> Path:
    """The folder with what `make packages` makes of these sources, or has made (OUTRIDER_TEST_RELEASE)."""
    if given := os.environ.get("OUTRIDER_TEST_RELEASE"):
        return Path(given)
    made = subprocess.run(["make", "packages"], cwd=ROOT, timeout=3_600, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return ROOT / "build/packages"


@pytest.fixture(scope="session")
def archive(release: Path) -> Path:
    return next(release.glob("outrider-*-wheels.tar"))


@pytest.fixture(scope="session")
def packages(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The head's and the node's, and below `next` the same as a later version."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "next").mkdir()
    for package in (HEAD, NODE):
        shutil.copy(next(release.glob(f"{package.name}_*.deb")), folder)
        root = folder / f"tree-{package.name}"
        shutil.copytree(release / "tree" / package.name, root, symlinks=True)
        debian.built(package, root, NEXT, commit_s(), folder / "next", compression="none")
        shutil.rmtree(root)
    return folder
