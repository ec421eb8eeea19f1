"""Slurm's own commands: argument lists, a timeout, and what went wrong as one of base's errors.

What is an argument is never a shell's text. A command of a user's runs as that user and with nothing
of the service's environment.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.rms.base import Refused, RmsError, Unavailable, Unknown

TIMEOUT_S = 20.0
MOST_BYTES = 256 << 20
MOST_WORDS = 500
"""Of what a command complains."""
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

AWAY = (
    "Unable to contact slurm controller",
    "Unable to connect to slurm",
    "Connection refused",
    "Connection timed out",
    "Connection reset",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unexpected message received",
    "Transport endpoint is not connected",
    "in standby mode",
    "Protocol authentication error",
    "temporarily unable",
    "Resource temporarily unavailable",
    "Communication connection failure",
    "Message receive failure",
    "Message send failure",
    "Slurm controller is not",
    "Munge",
)
"""What its commands say when nobody knows whether something was done."""
MISSING = (
    "Invalid job id specified",
    "Invalid node name specified",
    "Requested reservation is invalid",
    "Invalid reservation name",
    "Reservation not found",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """A user as whom a job is handed over."""

    user: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = "/"


@dataclass(frozen=True, slots=True)
class Output:
    """What a command has left."""

    code: int
    text: bytes
    complaint: str


class Runner(Protocol):
    """What starts a command. Raises TimeoutError when it takes too long, OSError when it does not start."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output: ...


class Commands:
    """Runs Slurm's commands. `configuration` is the path of slurm.conf, or empty for Slurm's own;
    `own_uid` is as whom this process runs."""

    def __init__(
        self,
        run: Runner,
        *,
        configuration: str = "",
        path: str = PATH,
        timeout_s: float = TIMEOUT_S,
        own_uid: int = 0,
    ) -> None:
        self._run = run
        self._timeout_s = timeout_s
        self._own_uid = own_uid
        self._shared = {"PATH": path, **({"SLURM_CONF": configuration} if configuration else {})}

    def ask(self, *argv: str, text: str = "") -> bytes:
        """What the command prints. Raises RmsError."""
        environment = {**self._shared, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
        return self._finish(argv, environment, text, None)

    def ask_as(self, account: Account, *argv: str, text: str) -> bytes:
        """The same in a user's name, with the environment that the user's job is to begin with."""
        environment = {
            **self._shared,
            "HOME": account.home,
            "USER": account.user,
            "LOGNAME": account.user,
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
        }
        if self._own_uid not in (0, account.uid):
            raise Refused(f"only root can submit a job for {account.user}: let the service run as root")
        is_other = account.uid != self._own_uid
        return self._finish(argv, environment, text, account if is_other else None)

    def _finish(
        self, argv: tuple[str, ...], environment: Mapping[str, str], text: str, account: Account | None
    ) -> bytes:
        if any("\0" in each for each in argv):
            raise Refused(f"{argv[0]}: an argument has a zero byte, which no command can be given")
        try:
            done = self._run(
                argv,
                environment=environment,
                timeout_s=self._timeout_s,
                text=text.encode("utf-8", "surrogateescape"),
                account=account,
            )
        except TimeoutError as error:
            raise Unavailable(
                f"{argv[0]} did not answer within {self._timeout_s:.0f} s: ask again"
            ) from error
        except FileNotFoundError as error:
            raise RmsError(
                f"there is no {argv[0]}: install Slurm's commands on this machine, in {self._shared['PATH']}"
            ) from error
        except (OSError, UnicodeEncodeError) as error:
            raise RmsError(f"{argv[0]} cannot be run: {error}") from error
        if done.code != 0:
            raise trouble(argv, done.complaint or done.text[:MOST_WORDS].decode("utf-8", "replace"))
        if len(done.text) > MOST_BYTES:
            raise RmsError(f"{argv[0]} printed {len(done.text)} bytes: at most {MOST_BYTES} are read")
        return done.text


def trouble(argv: Sequence[str], complaint: str) -> RmsError:
    """What a command's complaint means: nobody knows, there is no such thing, or no."""
    words = " ".join(complaint.split())[:MOST_WORDS] or "it failed without a word"
    said = f"{argv[0]} says: {words}"
    if any(each in complaint for each in AWAY):
        return Unavailable(said)
    if any(each in complaint for each in MISSING):
        return Unknown(said)
    return Refused(said)


def run_process(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    text: bytes = b"",
    account: Account | None = None,
) -> Output:
    """A real process, as another user if one is named. It is killed when its time is over."""
    try:
        done = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            timeout=timeout_s,
            env=dict(environment),
            cwd="/",
            check=False,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else account.groups,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{argv[0]} took longer than {timeout_s} s") from error
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from error
    return Output(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))
