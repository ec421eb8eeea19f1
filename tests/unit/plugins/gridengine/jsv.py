"""The submit filters of Grid Engine, loaded as modules or run as processes."""

from __future__ import annotations

import importlib.util
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from tests.repository import ROOT

PLUGINS = ROOT / "plugins" / "gridengine"
SERVER = PLUGINS / "outrider_jsv.py"
CLIENT = PLUGINS / "outrider_client_jsv.py"
ANSWER_S = 90


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def job(*lines: str) -> bytes:
    """What the qmaster says of a job."""
    return b"START\n" + described(*lines)


def described(*lines: str) -> bytes:
    return "\n".join(["PARAM VERSION 1.0", *lines, "BEGIN", ""]).encode("utf-8", "surrogateescape")


class Qmaster:
    """What a qmaster does with a persistent filter: it takes the next line for an answer, whatever it is."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._rest = b""

    def say(self, text: bytes) -> None:
        """One write."""
        assert self.process.stdin is not None
        os.write(self.process.stdin.fileno(), text)

    def read(self) -> str:
        """A line, or nothing after the last."""
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            if not select.select([self.process.stdout], [], [], ANSWER_S)[0]:
                pytest.fail(f"no answer within {ANSWER_S} s; before it came {self._rest!r}")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return ""
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "surrogateescape")

    def verdict(self, *lines: str) -> list[str]:
        """What it takes for the verdict on a job that it describes so, without a pause."""
        self.say(b"START\n")
        while (line := self.read()) == "SEND ENV":
            pass
        if line == "STARTED":
            self.say(described(*lines))
            line = self.read()
        answer = [line]
        while answer[-1] and not answer[-1].startswith("RESULT"):
            answer.append(self.read())
        return answer

    def end(self) -> tuple[int, bytes]:
        """Exit status and stderr after a QUIT."""
        self.say(b"QUIT\n")
        _, error = self.process.communicate(timeout=ANSWER_S)
        return self.process.returncode, error


@contextmanager
def qmaster(path: Path = SERVER) -> Iterator[Qmaster]:
    pipe = subprocess.PIPE
    with subprocess.Popen([str(path)], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as process:
        try:
            yield Qmaster(process)
        finally:
            process.kill()


def run(path: Path, said: bytes, **variables: str) -> tuple[int, list[str], bytes]:
    """Exit status, the lines of stdout, and stderr of a filter as the qmaster starts it."""
    done = subprocess.run(
        [str(path)], input=said, capture_output=True, timeout=240, env=variables, check=False
    )
    return done.returncode, done.stdout.decode("utf-8", "surrogateescape").splitlines(), done.stderr
