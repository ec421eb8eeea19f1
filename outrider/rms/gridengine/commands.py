"""Grid Engine's commands: argument lists with a timeout, and what their errors mean."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.rms.base import Refused, RmsError, Unavailable, Unknown

# What qmaster's texts mean. Anything else that fails is a refusal in its own words.
AWAY = re.compile(
    r"unable to (contact|send message to) qmaster|can't connect|commlib error|got send error"
    r"|failed receiving gdi|communication error|timeout|no valid user|cell directory",
    re.IGNORECASE,
)
NOT_THERE = re.compile(
    r"does not exist|is invalid$|unknown (host|queue)|no such|not known|can't resolve hostname"
    r"|invalid (job|host|queue)",
    re.IGNORECASE | re.MULTILINE,
)
MOST_ERROR_CHARACTERS = 500
LOCALE = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
"""Times are printed without a zone: all commands print UTC."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    status: int
    output: str
    error: str


class Runner(Protocol):
    """Runs a command as a user, or as the service itself if none is named.

    It raises `TimeoutError` if that takes longer, and `OSError` if there is no such command.
    """

    def run(self, argv: Sequence[str], *, user: str | None, timeout_s: int) -> Done: ...


class ProcessRunner:
    """Processes of this machine. To submit as others, the service has to be root."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """`variables` says which Grid Engine: PATH, SGE_ROOT, SGE_CELL, and ports if need be."""
        self._variables = {**variables, **LOCALE}

    def run(self, argv: Sequence[str], *, user: str | None, timeout_s: int) -> Done:
        entry = None if user is None else pwd.getpwnam(user)
        if entry is not None and entry.pw_uid == os.geteuid():
            entry = None
        variables = dict(self._variables)
        if entry is not None:
            variables |= {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
        try:
            done = subprocess.run(
                list(argv),
                capture_output=True,
                env=variables,
                stdin=subprocess.DEVNULL,
                cwd="/",
                timeout=timeout_s,
                check=False,
                user=None if entry is None else entry.pw_uid,
                group=None if entry is None else entry.pw_gid,
                extra_groups=None if entry is None else os.getgrouplist(entry.pw_name, entry.pw_gid),
            )
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(str(error)) from error
        output = done.stdout.decode(errors="replace")
        return Done(done.returncode, output, done.stderr.decode(errors="replace"))


class Commands:
    """Commands whose failures are errors of a batch system."""

    def __init__(self, runner: Runner, *, timeout_s: int, most_output_bytes: int) -> None:
        self._runner = runner
        self._timeout_s = timeout_s
        self._most_output_bytes = most_output_bytes

    def ask(self, *argv: str, user: str | None = None) -> str:
        """What a command prints. `Unavailable`, `Unknown` or `Refused` if it fails."""
        done = self.attempt(*argv, user=user)
        if done.status != 0:
            raise failure(argv, done)
        return done.output

    def attempt(self, *argv: str, user: str | None = None) -> Done:
        """How a command ends, if the qmaster answers it at all."""
        try:
            done = self._runner.run(argv, user=user, timeout_s=self._timeout_s)
        except TimeoutError as error:
            raise Unavailable(
                f"{argv[0]} did not answer within {self._timeout_s} s: see whether sge_qmaster runs"
            ) from error
        except KeyError as error:
            raise Unknown(f"{argv[0]} cannot be run as {user}: there is no such user here") from error
        except OSError as error:
            raise RmsError(f"{argv[0]} cannot be run: {error}: install Grid Engine's client") from error
        if len(done.output) > self._most_output_bytes:
            raise RmsError(
                f"{argv[0]} printed more than {self._most_output_bytes} bytes: raise most_output_bytes"
            )
        if done.status != 0 and AWAY.search(done.error + done.output):
            raise Unavailable(f"{argv[0]}: {_words(done)}: see whether sge_qmaster runs")
        return done


def failure(argv: Sequence[str], done: Done) -> RmsError:
    """The error of a command that failed though the qmaster answers."""
    words = f"{argv[0]}: {_words(done)}"
    return Unknown(words) if NOT_THERE.search(done.error + done.output) else Refused(words)


def _words(done: Done) -> str:
    """What a command said of its failure, in one line."""
    said = " ".join((done.error + " " + done.output).split())
    return said.removesuffix(" Exiting.")[:MOST_ERROR_CHARACTERS] or f"exit status {done.status}"
