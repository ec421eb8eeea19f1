"""The one file that is copied to nodes: the same bytes everywhere, and every Python from 3.9 on runs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.unit.cachemgr.cli.outcomes import Outcome, missing
from tools.pyz import bytecode, pack, sources

OLDEST = (3, 9)


def pythons() -> dict[tuple[int, int], str]:
    """Every Python of this machine, one for each version."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(":") if folder]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders += sorted(path / "bin" for path in versions.iterdir()) if versions.is_dir() else []
    found = {sys.version_info[:2]: sys.executable}
    for folder in folders:
        for path in sorted(folder.glob("python[0-9].[0-9]*")):
            version = re.fullmatch(r"python(\d)\.(\d+)", path.name)
            number = (int(version[1]), int(version[2])) if version else (0, 0)
            if version and number not in found and works(str(path)):
                found[number] = str(path)
    return dict(sorted(found.items()))


def works(path: str) -> bool:
    """Whether it starts at all: what version managers put into PATH may stand for nothing."""
    return subprocess.run([path, "-c", "import sqlite3"], capture_output=True, timeout=240).returncode == 0


PYTHONS = pythons()
NEW = {version: path for version, path in PYTHONS.items() if version >= OLDEST}
OLD = {version: path for version, path in PYTHONS.items() if version < OLDEST}


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pyz") / "cachemgr.pyz"
    pack(target)
    return target


def run(python: str, pyz: Path, folder: Path, *words: str) -> Outcome:
    command = [python, "-IS", str(pyz), "--config", os.devnull, "--pool", str(folder / "pool"), "--no-daemon"]
    done = subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, timeout=240)
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_same_sources_give_the_same_bytes(pyz: Path, tmp_path: Path) -> None:
    os.utime(ROOT / "cachemgr/__main__.py")
    pack(tmp_path / "again.pyz")

    assert (tmp_path / "again.pyz").read_bytes() == pyz.read_bytes()
    with zipfile.ZipFile(pyz) as archive:
        about = {(info.date_time, info.external_attr, info.compress_type) for info in archive.infolist()}
    assert about == {((1980, 1, 1, 0, 0, 0), 0o644 << 16, zipfile.ZIP_STORED)}
    assert list(tmp_path.iterdir()) == [tmp_path / "again.pyz"]


def test_it_holds_the_node_side_and_nothing_else(pyz: Path) -> None:
    with zipfile.ZipFile(pyz) as archive:
        names = archive.namelist()

    assert names == sorted(sources())
    assert {"__main__.py", "cachemgr/pool/pool.py", "cachemgr/hook.py", "cachemgr/daemon/main.py"} <= set(
        names
    )
    assert {name.partition("/")[0] for name in names} == {"__main__.py", "cachemgr"}
    assert not [name for name in names if "test" in name or "__pycache__" in name]


def test_it_runs_isolated_from_whatever_its_caller_has_set(pyz: Path) -> None:
    with open(pyz, "rb") as file:
        assert file.readline() == b"#!/usr/bin/python3 -IS\n"
    assert os.access(pyz, os.X_OK)


# One process for several commands, since each would compile the file anew.
LIFE = """
import sys
sys.path.insert(0, sys.argv[1])
from cachemgr.cli.main import main
common = sys.argv[2:]
for line in (
    "add a.img --pin job --until +2h", "ls -n", "instance a.img --owner job --method copy --for 2h",
    "instances -n", "release job", "check --digests",
):
    code = main([*common, *line.split()])
    assert code == 0, (line, code)
"""


@pytest.mark.parametrize("python", NEW.values(), ids=[f"{major}.{minor}" for major, minor in NEW])
def test_a_pool_can_be_used_from_its_beginning_under_every_python(
    python: str, pyz: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.img").write_bytes(b"an image" * 100)
    common = ["--config", os.devnull, "--pool", str(tmp_path / "pool"), "--no-daemon"]
    made = run(python, pyz, tmp_path, "init", "--limit", "1MiB")
    done = subprocess.run(
        [python, "-IS", "-c", LIFE, str(pyz), *common],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert made.code == done.returncode == 0, done.stderr
    added, listed, copied, copies, released, checked = done.stdout.splitlines()
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", added)
    assert listed.split()[:6] == [added[7:19], "here", "800B", "file", "1", "0"]
    assert copied == copies.split()[-1]
    assert released == "1 instance and 1 pin of job removed"
    assert checked == "nothing is wrong"


@pytest.mark.parametrize("python", OLD.values(), ids=[f"{major}.{minor}" for major, minor in OLD])
def test_a_python_that_is_too_old_is_told_so_in_one_line(python: str, pyz: Path, tmp_path: Path) -> None:
    done = subprocess.run([python, str(pyz), "ls"], capture_output=True, text=True, timeout=240)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Python 3.9 or later is needed" in done.stderr


def test_bytecode_of_one_python_does_not_hinder_another(tmp_path: Path) -> None:
    pack(tmp_path / "fast.pyz", bytecode_of=sys.executable)
    pack(tmp_path / "again.pyz", bytecode_of=sys.executable)

    assert (tmp_path / "fast.pyz").read_bytes() == (tmp_path / "again.pyz").read_bytes()
    for python in NEW.values():
        assert run(python, tmp_path / "fast.pyz", tmp_path, "version").code == 0
    compiled = bytecode(["cachemgr/base/clock.py"], sys.executable)
    assert list(compiled) == ["cachemgr/base/clock.pyc"]
    # The fourth word of flags: a hash, and not to be compared with the source.
    assert compiled["cachemgr/base/clock.pyc"][4:8] == b"\x01\0\0\0"


def test_makefile_packs_what_the_tool_packs(pyz: Path, tmp_path: Path) -> None:
    if shutil.which("make") is None:
        missing("make")
    root = ROOT
    command = ["make", "-n", "-C", str(root), "cachemgr.pyz", f"PYTHON={sys.executable}"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout

    assert f"{sys.executable} tools/pyz.py cachemgr.pyz --interpreter '/usr/bin/python3 -IS'" in told
