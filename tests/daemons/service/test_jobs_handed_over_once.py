"""A job is handed over once for its key, whenever the service is killed: with the program itself."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons.service.test_outriderd_program import Program
from tests.repository import ROOT
from tests.unit.service.daemon.fakes import PATIENCE_S, eventually

KEY = "k1"
KILLED = """
import os, signal, sys
from outrider.rms.embedded.system import EmbeddedSystem
from outrider.service.daemon.main import main

when, plain = sys.argv[1], EmbeddedSystem.submit

def submit(self, submission):
    if when == "after":
        plain(self, submission)
    os.kill(os.getpid(), signal.SIGKILL)

EmbeddedSystem.submit = submit
sys.exit(main(sys.argv[2:]))
"""


class Mortal(Program):
    """outriderd, which may be one that is killed as it hands a job over."""

    def start_mortal(self, when: str) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", KILLED, when, "--config", str(self.file), "--init-if-empty"],
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        self.await_ready()

    def submit(self, script: str, key: str = KEY) -> tuple[int, Any]:
        body = {"argv": ["/bin/sh", "-c", script], "nodes": 1, "duration": "10m"}
        return self.ask("POST", "/v1/submissions", body, key=key)

    def submit_and_die(self, script: str) -> None:
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            self.submit(script)
        assert self.process is not None
        assert self.process.wait(PATIENCE_S) == -signal.SIGKILL

    def jobs(self) -> list[str]:
        """All jobs that the batch system keeps, those that are over included."""
        return [str(each["number"]) for each in self._journal()["jobs"]] + self.ended()

    def ended(self) -> list[str]:
        return list(self._journal()["ended"])

    def _journal(self) -> Any:
        return json.loads(next(self.folder.glob("s/embedded/**/*jobs*.json")).read_text())


@pytest.fixture
def program() -> Iterator[Mortal]:
    folder = Path(tempfile.mkdtemp(prefix="ops-", dir="/tmp"))
    folder.chmod(0o755)
    made = Mortal(folder)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait(PATIENCE_S)
    shutil.rmtree(folder, ignore_errors=True)


def lasting(folder: Path) -> str:
    """A job that says that it began, and goes on until the test is over."""
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out").chmod(0o777)
    return f"echo begun >> {folder}/out/begun; while [ -d {folder}/out ]; do sleep 0.2; done"


def test_job_that_was_there_before_the_kill_is_found_and_not_made_again(program: Mortal) -> None:
    script = lasting(program.folder)
    begun = program.folder / "out/begun"
    program.start_mortal("after")
    program.submit_and_die(script)
    program.start()
    status, found = program.submit(script)
    again = program.submit(script)
    eventually(begun.exists, f"the job's beginning\n{program.log.read_text()}")

    assert status == 201, found
    assert again == (201, found)
    assert program.jobs() == [found["job"]]
    assert begun.read_text() == "begun\n"


def test_job_of_which_nobody_knows_is_told_and_not_made(program: Mortal) -> None:
    script = lasting(program.folder)
    program.start_mortal("before")
    program.submit_and_die(script)
    program.start()
    status, trouble = program.submit(script)
    other, found = program.submit(script, key="k2")

    assert (status, trouble["code"]) == (409, "conflict")
    assert "submit it again" in trouble["message"]
    assert other == 201, found
    assert program.jobs() == [found["job"]]


def test_job_that_has_ended_is_answered_the_same_by_the_next_service(program: Mortal) -> None:
    program.start()
    first = program.submit("true")
    eventually(lambda: program.ended() == [first[1]["job"]], "the job's end")
    program.end(signal.SIGKILL)
    program.start()
    again = program.submit("true")
    other = program.submit("false")

    assert first[0] == 201, first
    assert again == first
    assert (other[0], other[1]["code"]) == (409, "conflict")
    assert len(program.jobs()) == 1


def test_job_that_was_refused_may_be_asked_for_again(program: Mortal) -> None:
    """The batch system has said no: there is no such job, whoever asks."""
    body = {"argv": ["/bin/true"], "nodes": 3, "duration": "10m"}
    program.start()
    first = program.ask("POST", "/v1/submissions", body, key=KEY)
    program.end(signal.SIGKILL)
    program.file.write_text(program.file.read_text().replace("n[1-2]", "n[1-3]"))
    program.start()
    eventually(lambda: len(program.ask("GET", "/v1/nodes")[1]["nodes"]) == 3, "the third node")
    second = program.ask("POST", "/v1/submissions", body, key=KEY)

    assert (first[0], first[1]["code"]) == (422, "invalid")
    assert second[0] == 201, second
