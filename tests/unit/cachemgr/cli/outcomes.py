"""What a command left behind, and what a daemon in a process of its own can be asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.waiting import awaited
from tests.repository import ROOT

PATIENCE_S = 90.0


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, object]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Run = Callable[..., Outcome]


@dataclass(frozen=True)
class Node:
    """A configuration file, and commands in processes of their own."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "node.conf"

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "cachemgr", "--config", str(self.config), *words]

    def run(self, *words: str) -> Outcome:
        done = subprocess.run(
            self.command(*words), cwd=self.folder, env=environment(), capture_output=True, text=True,
            timeout=PATIENCE_S,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def begun(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command under way, killed if it has not ended by then."""
        with subprocess.Popen(
            self.command(*words), cwd=self.folder, env=environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def served(self) -> Iterator[Node]:
        """With a daemon, which is told to stop in the end and has to do so in good order."""
        with self.begun("serve") as daemon:
            until(lambda: self.run("ping").code == 0, lambda: f"daemon: {daemon.poll()}")
            yield self
            daemon.send_signal(signal.SIGTERM)
            _, said = daemon.communicate(timeout=PATIENCE_S)
            assert daemon.returncode == 0, said


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def until(is_so: Callable[[], bool], standing: Callable[[], object]) -> None:
    """Wait for something, and tell how it stands if it does not come."""
    assert awaited(is_so, PATIENCE_S), standing()


def missing(what: str) -> None:
    """Skip where a tool is missing; in CI, where it must not be, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing in CI")
    pytest.skip(f"{what} is not here")
