"""Demos as users run them, in a folder for temporary files that nobody else uses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testbed.clusters import needs_slurm

ROOT = Path(__file__).resolve().parents[2]
MOST_S = 240


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A demo that is over: its exit code and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def temporary() -> Iterator[Path]:
    """A folder with a path as short as sockets need it."""
    path = Path(tempfile.mkdtemp(prefix="d-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def start(temporary: Path, *options: str) -> subprocess.Popen[str]:
    """The demo that needs nothing."""
    return _started(temporary, ["-m", "outrider.cli.main", "demo", *options])


def start_on_slurm(temporary: Path, *options: str) -> subprocess.Popen[str]:
    """The demo on a private Slurm, and no other instead."""
    return _started(temporary, ["-m", "testbed.demo", "--insist", *options])


def _started(temporary: Path, words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "COLUMNS": "100", "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def shown(process: subprocess.Popen[str]) -> Shown:
    try:
        out, err = process.communicate(timeout=MOST_S)
    finally:
        process.kill()
    return Shown(code=process.returncode, out=out, err=err)


@pytest.fixture(scope="session")
def brief(temporary: Path) -> Shown:
    return shown(start(temporary, "--brief"))


@pytest.fixture(scope="session")
def brief_on_slurm(temporary: Path) -> Shown:
    needs_slurm()
    return shown(start_on_slurm(temporary, "--brief"))


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    while text not in (line := process.stdout.readline()):
        assert line, f"the demo ended before it showed {text}"


def output_of(demo: Shown, command: str, number: int = 0) -> str:
    """What a command printed; of those whose lines begin so, the first unless told otherwise."""
    pattern = rf"^\$ {re.escape(command)}.*\n((?:(?!\$ |\w+# |\d+\. ).*\n)*)"
    found = re.findall(pattern, demo.out, re.MULTILINE)
    assert len(found) > number, f"{command}\n{demo.out}\n{demo.err}"
    return str(found[number])


def left_behind(temporary: Path) -> list[str]:
    """Files in the folder, and processes that have it in their command line."""
    return [*(path.name for path in temporary.iterdir()), *processes_with(temporary)]


def processes_with(folder: Path) -> list[str]:
    """The command lines of processes in which a folder is named."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if os.fsencode(folder) in words:
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found
