"""Demos as users run them, in a folder for temporary files that nobody else uses."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from testbed.slurm import missing
from tests.daemons.testbed.clusters import needs_slurm
from tests.daemons.wheels import installed_of

MOST_S = 240
EMBEDDED = ["-m", "outrider.cli.main", "demo"]
ON_SLURM = ["-m", "testbed.demo", "--insist"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A demo that is over: its exit code, what it printed, and what is left of it."""

    code: int
    out: str
    err: str
    left: list[str]


class Playing:
    """A demo that runs while other tests do, since most of what it does is to wait."""

    def __init__(self, installed: Path, words: list[str]) -> None:
        self._folder = _short_folder()
        self._printed = _short_folder()
        with contextlib.ExitStack() as opened:
            files = [opened.enter_context((self._printed / name).open("w")) for name in ("out", "err")]
            self._process = _started(installed, self._folder, words, *files)

    def shown(self) -> Shown:
        code = self._process.wait(timeout=MOST_S)
        out, err = ((self._printed / name).read_text() for name in ("out", "err"))
        return Shown(code=code, out=out, err=err, left=left_behind(self._folder))

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=MOST_S)
        for folder in (self._folder, self._printed):
            shutil.rmtree(folder)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment in which Outrider was installed from its wheel."""
    return installed_of(tmp_path_factory)


@pytest.fixture(scope="session", autouse=True)
def playing(installed: Path) -> Iterator[dict[str, Playing]]:
    """All demos that are seen to their ends."""
    wanted = {"brief": [*EMBEDDED, "--brief"]}
    if os.environ.get("CI"):
        wanted["full"] = EMBEDDED
    if missing() is None:
        wanted["slurm"] = [*ON_SLURM, "--brief"]
    begun = {name: Playing(installed, words) for name, words in wanted.items()}
    yield begun
    for each in begun.values():
        each.end()


@pytest.fixture(scope="session")
def brief(playing: dict[str, Playing]) -> Shown:
    return playing["brief"].shown()


@pytest.fixture(scope="session")
def brief_on_slurm(playing: dict[str, Playing]) -> Shown:
    needs_slurm()
    return playing["slurm"].shown()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a path as short as sockets need it."""
    path = _short_folder()
    yield path
    shutil.rmtree(path)


def start(installed: Path, temporary: Path, *options: str) -> subprocess.Popen[str]:
    """The demo that needs nothing, to be read along."""
    return _started(installed, temporary, [*EMBEDDED, *options])


def start_on_slurm(installed: Path, temporary: Path, *options: str) -> subprocess.Popen[str]:
    """The demo on a private Slurm, and no other instead."""
    return _started(installed, temporary, [*ON_SLURM, *options])


def shown(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code of a demo that was read along, and what it said of trouble."""
    try:
        _, err = process.communicate(timeout=MOST_S)
    finally:
        process.kill()
    return process.returncode, err


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    while text not in (line := process.stdout.readline()):
        assert line, f"the demo ended before it showed {text}: {process.stderr.read()}"


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


def _short_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="d-", dir="/tmp"))


def _started(
    installed: Path, temporary: Path, words: list[str], out: IO[str] | None = None, err: IO[str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(installed / "bin/python"), *words],
        cwd="/",
        env={**os.environ, "PYTHONSAFEPATH": "1", "TMPDIR": str(temporary), "COLUMNS": "100", "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        stdout=out or subprocess.PIPE,
        stderr=err or subprocess.PIPE,
        text=True,
    )
