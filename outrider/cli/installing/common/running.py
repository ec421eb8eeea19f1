"""Programs of the machine, behind one small interface: argument lists, a timeout, and what they said."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

TIMEOUT_S = 20
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """How a program ended. One that is missing or hung has the exit code None and says so in `errors`."""

    code: int | None
    output: str = ""
    errors: str = ""

    @property
    def is_good(self) -> bool:
        return self.code == 0

    @property
    def reason(self) -> str:
        """Why it failed, in one line."""
        return " ".join((self.errors or self.output).split())[:500] or f"exit code {self.code}"


class ProgramRunner(Protocol):
    """Runs a program to its end."""

    def run(self, command: Sequence[str], timeout_s: int = TIMEOUT_S) -> Done: ...


class SystemRunner:
    """Runs programs on this machine, in an environment of its own."""

    def __init__(self, slurm_conf: str = "", passed_on: Sequence[str] = ()) -> None:
        """`passed_on` are variables of this process that programs are to have, too."""
        path = f"{os.environ.get('PATH', '')}:{_PATH}".strip(":")
        self._environment = {"PATH": path, "LC_ALL": "C"}
        # For Outrider's own programs, when it runs from where it is not installed.
        if "PYTHONPATH" in os.environ:
            self._environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self._environment |= {name: os.environ[name] for name in passed_on if name in os.environ}
        if slurm_conf:
            self._environment["SLURM_CONF"] = slurm_conf

    def run(self, command: Sequence[str], timeout_s: int = TIMEOUT_S) -> Done:
        try:
            done = subprocess.run(
                list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s,
                check=False, env=self._environment,
            )  # fmt: skip
        except FileNotFoundError:
            return Done(code=None, errors=f"{command[0]} is not installed")
        except subprocess.TimeoutExpired:
            return Done(code=None, errors=f"{command[0]} did not end within {timeout_s} s")
        except OSError as error:
            return Done(code=None, errors=f"{command[0]} cannot be run: {error.strerror}")
        return Done(
            code=done.returncode,
            output=done.stdout.decode("utf-8", "replace"),
            errors=done.stderr.decode("utf-8", "replace"),
        )
