"""The node side under every Python from 3.9 on that this machine has."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

OLDEST = (3, 9)


def interpreters() -> dict[str, str]:
    """An executable for each version, the one that runs this test among them."""
    names = [f"python3.{minor}" for minor in range(9, 20)]
    found = [path for name in names if (path := shutil.which(name))]
    found += sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python")))
    versions = {"{}.{}".format(*sys.version_info): sys.executable}
    for path in found:
        said = subprocess.run(
            [path, "-I", "-S", "-V"], capture_output=True, text=True, timeout=240, check=False
        )
        version = re.search(r"(3)\.(\d+)", said.stdout + said.stderr)
        if said.returncode == 0 and version and (3, int(version[2])) >= OLDEST:
            versions.setdefault(f"3.{version[2]}", path)
    return versions


def minor(version: str) -> int:
    return int(version.partition(".")[2])


FOUND = interpreters()
VERSIONS: list[str] = sorted(FOUND, key=minor)


@pytest.mark.parametrize("version", VERSIONS)
def test_pool_works_under_this_python(version: str, tmp_path: Path) -> None:
    """Without site packages and without the environment, as on a node."""
    script = Path(__file__).with_name("smoke.py")
    done = subprocess.run(
        [FOUND[version], "-I", "-S", "-W", "error", str(script), str(ROOT), str(tmp_path / "pool")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.stderr == ""
    assert done.stdout.split() == ["3", "images", "and", "nothing", "wrong"]


def test_this_python_is_among_those_found() -> None:
    assert FOUND["{}.{}".format(*sys.version_info)] == sys.executable
