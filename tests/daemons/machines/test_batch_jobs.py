"""What the batch system starts in a script's place, beside a stand-in for it: suspended, killed, resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import pytest

from cachemgr.instances.qcow2 import overlay
from testbed.linux_guest import LinuxGuest, append
from testbed.waiting import awaited
from tests.amount import few
from tests.daemons.machines.engine import MIB, PYTHON, UID, WAIT_S, Engine, wait_until
from tests.repository import ROOT

LAST = 60
SCRIPT = f"""#!machine run=vm
#!/bin/sh
i=0; while [ $i -lt {LAST} ]; do i=$((i+1)); echo $i; sleep 0.05; done
echo $i > counted
"""
# The program with a folder and a kernel of the test's.
PROGRAM = """
import sys
import cachemgr.machines.batch.main as program
import cachemgr.machines.batch.system as system
from cachemgr.machines.batch.bootfiles import BootFiles
system.MACHINES = sys.argv[1]
program.boot_files = lambda name, folder: BootFiles(*sys.argv[2:5])
sys.exit(program.main(sys.argv[5:]))
"""
LONGEST_PAUSE_S = 0.4
"""Within that a small machine is saved."""


class StandIn:
    """A batch system of one job: it starts it again and again, and remembers what it was asked."""

    def __init__(self, engine: Engine, linux: LinuxGuest) -> None:
        self.engine, self.linux = engine, linux
        self.work, self.home, self.programs = (engine.folder / each for each in ("work", "home", "programs"))
        for each in (self.work, self.home, self.programs):
            each.mkdir()
            os.chown(each, UID, -1)
        self.image = engine.folder / "image"
        with self.image.open("wb") as file:
            for offset, data in overlay(None, "", MIB):
                file.seek(offset)
                file.write(data)
        self.image.chmod(0o644)
        self.script = engine.folder / "script"
        self.script.write_text(SCRIPT)
        self.asked = engine.folder / "asked"
        self.asked.touch()
        os.chown(self.asked, UID, -1)
        scontrol = self.programs / "scontrol"
        scontrol.write_text(f'#!/bin/sh\necho "$@" >>{self.asked}\n')
        scontrol.chmod(0o755)
        self.starts = 0

    def start(self) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": f"{self.programs}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(self.home),
            "PYTHONDONTWRITEBYTECODE": "1", "OUTRIDER_IMAGE": str(self.image), "SLURM_JOB_ID": "7",
            "SLURM_CPUS_ON_NODE": "1", "SLURM_RESTART_COUNT": str(self.starts),
        }  # fmt: skip
        self.starts += 1
        files = (str(self.engine.machines), str(self.linux.kernel), str(self.linux.initrd), append())
        argv = [PYTHON, "-c", PROGRAM, *files, "run=vm,memory=96,boot=test", str(self.script)]
        user = {"user": UID, "group": UID, "extra_groups": []} if os.geteuid() == 0 else {}
        with self.output.open("ab") as output:
            begun: subprocess.Popen[bytes] = subprocess.Popen(
                argv, env=environment, cwd=self.work, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                **user,  # type: ignore[call-overload]
            )  # fmt: skip
        return begun

    @property
    def output(self) -> Path:
        return self.engine.folder / "output"

    @property
    def folder(self) -> Path:
        return self.engine.machines / f"outrider-{UID}" / "job-7"

    def said(self) -> list[str]:
        return self.output.read_text().split()

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "machine.json").read_text())
        return found

    @staticmethod
    def below(process: subprocess.Popen[bytes]) -> list[int]:
        """The processes below the one that the batch system has begun."""
        path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        return [int(word) for word in path.read_text().split()]

    def wait_until_said(self, count: int) -> None:
        wait_until(lambda: str(count) in self.said(), lambda: f"no {count} in {self.output.read_text()!r}")


@pytest.fixture
def job(engine: Engine, linux: LinuxGuest) -> StandIn:
    engine.machines.chmod(0o1777)
    return StandIn(engine, linux)


def test_suspended_job_gives_itself_back_and_goes_on_at_its_next_start(job: StandIn) -> None:
    process = job.start()
    job.wait_until_said(5)
    process.send_signal(signal.SIGUSR1)
    first = process.wait(WAIT_S)
    given_back, noted = job.asked.read_text(), list((job.home / ".outrider/machines").iterdir())
    state = job.record()["state"]
    second = job.start().wait(WAIT_S)

    assert (first, second) == (0, 0), job.output.read_text()
    assert given_back == "requeuehold 7\n"
    assert [path.name for path in noted] == ["7"]
    assert state == "suspended"
    assert job.said() == [str(number) for number in range(1, LAST + 1)]
    assert (job.work / "counted").read_text() == f"{LAST}\n"
    assert not job.folder.exists()
    assert list((job.home / ".outrider/machines").iterdir()) == []


def test_keeper_that_is_killed_is_begun_again_and_finds_its_machine(job: StandIn) -> None:
    process = job.start()
    job.wait_until_said(5)
    (first,) = job.below(process)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: set(job.below(process)) - {first}, lambda: "nobody keeps it")
    job.wait_until_said(15)
    generation = job.record()["generation"]
    # Killed again while it saves: the machine is to be saved all the same.
    process.send_signal(signal.SIGUSR1)
    assert awaited(lambda: job.record()["state"] == "saving", WAIT_S, 0.001)
    for pid in job.below(process):
        os.kill(pid, signal.SIGKILL)
    status = process.wait(WAIT_S)
    state, asked = job.record()["state"], job.asked.read_text()
    last = job.start().wait(WAIT_S)

    assert generation == 1
    assert (status, state, asked) == (0, "suspended", "requeuehold 7\n"), job.output.read_text()
    assert last == 0, job.output.read_text()
    # The length of the output is how much of it is there.
    assert "outrider:" not in job.output.read_text()
    # What was passed on and not yet noted comes twice.
    numbers = [line for line in job.output.read_text().splitlines() if line.isdigit()]
    assert list(dict.fromkeys(numbers)) == [str(number) for number in range(1, LAST + 1)]
    assert (job.work / "counted").read_text() == f"{LAST}\n"
    assert not job.folder.exists()


def test_job_whose_machine_is_saved_elsewhere_goes_back_and_does_not_begin_anew(job: StandIn) -> None:
    marks = job.home / ".outrider" / "machines"
    marks.mkdir(parents=True)
    (marks / "7").write_text("other:/var/tmp/outrider-1/job-7\n")
    for path in (marks.parent, marks, marks / "7"):
        os.chown(path, UID, -1)

    status = job.start().wait(WAIT_S)

    assert status == 0
    assert job.asked.read_text() == "requeuehold 7\n"
    assert "is saved at other:" in job.output.read_text()
    assert not job.folder.exists()


@pytest.mark.parametrize("seed", range(few(6)))
def test_keeper_killed_while_it_suspends_loses_and_repeats_nothing(job: StandIn, seed: int) -> None:
    chance = Random(seed)
    process = job.start()
    job.wait_until_said(5)
    process.send_signal(signal.SIGUSR1)
    sleep(chance.uniform(0, LONGEST_PAUSE_S))
    process.kill()
    process.wait(WAIT_S)
    for _ in range(3):
        process = job.start()
        if process.wait(WAIT_S) == 0 and not job.folder.exists():
            break

    # What was passed on and not yet noted comes twice; nothing is missing, and nothing is counted twice.
    assert list(dict.fromkeys(job.said())) == [str(number) for number in range(1, LAST + 1)]
    assert (job.work / "counted").read_text() == f"{LAST}\n"
    assert not job.folder.exists()
