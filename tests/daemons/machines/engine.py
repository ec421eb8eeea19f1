"""The engine as its users meet it: a program of an ordinary user, in a process of its own each time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from cachemgr.machines.qemu.process import LOCK, holders
from testbed.waiting import awaited
from tests.daemons.machines.counter import counts
from tests.repository import ROOT

PYTHON = "/usr/bin/python3" if os.geteuid() == 0 else sys.executable
"""Another user cannot read an interpreter that root has built for itself."""
UID = 65534 if os.geteuid() == 0 else os.geteuid()
WAIT_S = 120.0
STEPPER = Path(__file__).with_name("stepper.py")
MIB = 1 << 20


class Engine:
    """Runs verbs on machines below one folder, as a user without rights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines = folder / "machines"
        for each in (folder, self.machines):
            each.mkdir(exist_ok=True)
            each.chmod(0o755)
            os.chown(each, UID, -1)
        self.wishes = 0
        self._begun: list[subprocess.Popen[str]] = []

    def command(self, *arguments: str, module: tuple[str, ...] = ("-m", "cachemgr.machines")) -> list[str]:
        return [PYTHON, *module, *arguments, *(["--node", "node"] if module[0] == "-m" else [])]

    def popen(self, argv: list[str], **options: Any) -> subprocess.Popen[str]:
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        if os.geteuid() == 0:
            options |= {"user": UID, "group": UID, "extra_groups": []}
        begun: subprocess.Popen[str] = subprocess.Popen(
            argv,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            **options,
        )
        self._begun.append(begun)
        return begun

    def attempt(self, *arguments: str, **options: Any) -> tuple[int, str, str]:
        process = self.popen(self.command(*arguments, **options))
        output, errors = process.communicate(timeout=WAIT_S)
        return process.returncode, output, errors

    def __call__(self, verb: str, machine: str, *arguments: str) -> dict[str, Any]:
        code, output, errors = self.attempt(verb, str(self.machines / machine), *arguments)
        assert code == 0, f"{verb} {machine} ended with {code}: {errors}"
        found: dict[str, Any] = json.loads(output)
        return found

    def refused(self, verb: str, machine: str, *arguments: str) -> str:
        code, _, errors = self.attempt(verb, str(self.machines / machine), *arguments)
        assert code != 0, f"{verb} {machine} was to be refused"
        return errors

    def stepped(self, step: int, verb: str, machine: str, *arguments: str) -> int:
        """Kill the engine before this step of a verb; how many steps there are, with step 0."""
        count_file = self.folder / "steps"
        count_file.unlink(missing_ok=True)
        module = (str(STEPPER), str(count_file), str(step))
        code, _, errors = self.attempt(verb, str(self.machines / machine), *arguments, module=module)
        assert code == (0 if step == 0 else -signal.SIGKILL), (
            f"{verb} at step {step} ended with {code}: {errors}"
        )
        return int(count_file.read_text()) if step == 0 else 0

    def wish(self, **fields: Any) -> str:
        """A file with a wish, readable by the engine."""
        self.wishes += 1
        path = self.folder / f"wish{self.wishes}.json"
        path.write_text(json.dumps(fields))
        path.chmod(0o644)
        return str(path)

    def console(self, machine: str) -> str:
        path = self.machines / machine / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def counted(self, machine: str) -> list[int]:
        return counts(self.console(machine))

    def qemus(self, machine: str) -> list[int]:
        """The processes that hold the machine's lock."""
        return holders(str(self.machines / machine / LOCK))

    def wait_until_counted(self, machine: str, most: int) -> None:
        """Until the guest has counted beyond that."""

        def is_there() -> bool:
            found = self.counted(machine)
            return bool(found) and found[-1] > most

        wait_until(is_there, lambda: f"{machine} counted to {self.counted(machine)[-3:]}, not beyond {most}")

    def close(self) -> None:
        for each in self._begun:
            if each.poll() is None:
                each.kill()
                each.communicate(timeout=WAIT_S)
            for pipe in (each.stdout, each.stderr):
                # Where its end alone was waited for: what is left open fails the next test's set-up.
                if pipe is not None:
                    pipe.close()
        for path in sorted(self.machines.rglob(LOCK)):
            for pid in holders(str(path)):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def wait_until(is_so: Any, words: Any, wait_s: float = WAIT_S) -> None:
    assert awaited(is_so, wait_s), words()
