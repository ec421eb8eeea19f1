"""Commands of a batch system: argument lists, a timeout, and what went wrong as one of base's errors.

What is an argument is never a shell's text. A command of a user's runs as that user and with nothing
of the service's environment.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cachemgr.base.clock import MonotonicClock, SystemClock
from outrider.rms.base import Refused, RmsError, Unavailable, Unknown

TIMEOUT_S = 20.0
SLOW_S = 600.0
"""So long no command for which others wait is run as a user whose last one has lasted too long."""
MOST_BYTES = 256 << 20
MOST_WORDS = 500
"""Of what a command complains."""
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
SETPRIV = shutil.which("setpriv", path="/usr/bin:/bin")
"""Becomes another user once it is no longer this process: where Python does that, it copies for each command
what describes this one's memory, which takes more of a processor than the command does."""


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


class AccountOf(Protocol):
    """Finds the account of a user. Raises Refused if there is none."""

    def __call__(self, user: str, uid: int) -> Account: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """What a batch system's commands say when they fail; anything else is a refusal in their own words."""

    product: str
    away: re.Pattern[str]
    """Nobody knows whether something was done."""
    missing: re.Pattern[str]
    remedy: str
    """For one that does not answer."""
    complains_in_output: bool = False

    def complaint(self, done: Output) -> str:
        """What a command that failed says of it."""
        text = done.text[: 8 * MOST_WORDS].decode("utf-8", "replace")
        if self.complains_in_output:
            return f"{done.complaint} {text}"
        return done.complaint or text

    def trouble(self, argv: Sequence[str], complaint: str) -> RmsError:
        """What a complaint means: nobody knows, there is no such thing, or no."""
        words = " ".join(complaint.split()).removesuffix(" Exiting.")[:MOST_WORDS]
        said = f"{argv[0]} says: {words or 'it failed without a word'}"
        if self.away.search(complaint):
            return Unavailable(f"{said}: {self.remedy}")
        return Unknown(said) if self.missing.search(complaint) else Refused(said)


class CommandLine:
    """Runs the commands of one batch system.

    `shared` is in the environment of all commands, `own` in that of the service's own; `own_uid` is as
    whom this process runs.
    """

    def __init__(
        self,
        run: Runner,
        dialect: Dialect,
        *,
        shared: Mapping[str, str],
        own: Mapping[str, str],
        timeout_s: float = TIMEOUT_S,
        most_bytes: int = MOST_BYTES,
        own_uid: int = 0,
        clock: MonotonicClock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        self._run = run
        self._dialect = dialect
        self._clock = clock
        self._slow: dict[int, float] = {}
        """Until when users are taken for slow."""
        self._shared = dict(shared)
        self._own = {**shared, **own}
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._own_uid = own_uid

    def ask(self, *argv: str, text: str = "") -> bytes:
        """What the command prints. Raises RmsError."""
        return self._checked(argv, self._finish(argv, self._own, text, None))

    def ask_as(self, account: Account, *argv: str, text: str = "", timeout_s: float | None = None) -> bytes:
        """The same in a user's name, with the environment that the user's job is to begin with.

        The user can make it last as long as it is given time. With a time of its own others wait meanwhile:
        whoever lets it pass is refused, and so are their next ones for some minutes.
        """
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
        as_whom = account if is_other else None
        if timeout_s is None:
            return self._checked(argv, self._finish(argv, environment, text, as_whom, None))
        words = f"{argv[0]} of {account.user} has not ended within {timeout_s:.0f} s"
        if self._clock.monotonic_s() < self._slow.get(account.uid, 0.0):
            raise Refused(f"{words} lately: it is not run for some minutes")
        try:
            return self._checked(argv, self._finish(argv, environment, text, as_whom, timeout_s))
        except Unavailable as error:
            if not isinstance(error.__cause__, TimeoutError):
                raise
            self._slow[account.uid] = self._clock.monotonic_s() + SLOW_S
            raise Refused(words) from error

    def attempt(self, *argv: str) -> Output:
        """How a command ends, if the batch system answers it at all."""
        done = self._finish(argv, self._own, "", None)
        if done.code != 0:
            error = self.failure(argv, done)
            if isinstance(error, Unavailable):
                raise error
        return done

    def failure(self, argv: Sequence[str], done: Output) -> RmsError:
        """The error of a command that failed."""
        return self._dialect.trouble(argv, self._dialect.complaint(done))

    def _checked(self, argv: Sequence[str], done: Output) -> bytes:
        if done.code != 0:
            raise self.failure(argv, done)
        return done.text

    def _finish(
        self,
        argv: tuple[str, ...],
        environment: Mapping[str, str],
        text: str,
        account: Account | None,
        timeout_s: float | None = None,
    ) -> Output:
        timeout_s = timeout_s or self._timeout_s
        if any("\0" in each for each in argv):
            raise Refused(f"{argv[0]}: an argument has a zero byte, which no command can be given")
        try:
            done = self._run(
                argv,
                environment=environment,
                timeout_s=timeout_s,
                text=text.encode("utf-8", "surrogateescape"),
                account=account,
            )
        except TimeoutError as error:
            raise Unavailable(
                f"{argv[0]} did not answer within {timeout_s:.0f} s: {self._dialect.remedy}"
            ) from error
        except FileNotFoundError as error:
            raise RmsError(
                f"there is no {argv[0]}: install {self._dialect.product}'s commands on this machine, "
                f"in {environment.get('PATH', PATH)}"
            ) from error
        except (OSError, UnicodeEncodeError) as error:
            raise RmsError(f"{argv[0]} cannot be run: {error}") from error
        if len(done.text) > self._most_bytes:
            raise RmsError(f"{argv[0]} printed {len(done.text)} bytes: at most {self._most_bytes} are read")
        return done


def run_process(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    text: bytes = b"",
    account: Account | None = None,
) -> Output:
    """A real process, as another user if one is named. It is killed when its time is over."""
    words, as_whom = list(argv), account
    if account is not None and SETPRIV is not None:
        words, as_whom = [SETPRIV, *_identity(account), _found(argv[0], environment), *argv[1:]], None
    try:
        done = subprocess.run(
            words,
            input=text,
            capture_output=True,
            timeout=timeout_s,
            env=dict(environment),
            cwd="/",
            check=False,
            user=None if as_whom is None else as_whom.uid,
            group=None if as_whom is None else as_whom.gid,
            extra_groups=None if as_whom is None else as_whom.groups,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{argv[0]} took longer than {timeout_s} s") from error
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from error
    return Output(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


def _identity(account: Account) -> list[str]:
    groups = ",".join(map(str, account.groups))
    beside = f"--groups={groups}" if groups else "--clear-groups"
    return [f"--reuid={account.uid}", f"--regid={account.gid}", beside, "--"]


def _found(name: str, environment: Mapping[str, str]) -> str:
    """A command by its path: of one that is not there another program would only complain."""
    found = shutil.which(name, path=environment.get("PATH", PATH))
    if found is None:
        raise FileNotFoundError(name)
    return found


def account_of(user: str, uid: int) -> Account:
    """The account in whose name a job is handed over, as this machine knows it. Raises Refused."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError as error:
        raise Refused(
            f"this machine knows no user {uid} ({user}), so nothing can be submitted for it"
        ) from error
    if entry.pw_name != user:
        raise Refused(f"user {uid} is {entry.pw_name} here, not {user}")
    return Account(
        user=user,
        uid=uid,
        gid=entry.pw_gid,
        groups=tuple(os.getgrouplist(user, entry.pw_gid)),
        home=entry.pw_dir,
    )
