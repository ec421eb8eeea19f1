"""Jobs as processes of this machine, each in a session of its own, its output in a file.

A service that is root runs a job as its user. One that is not runs jobs of its own user only:
somebody else's command must not get its rights.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from outrider.rms.base import Submission
from outrider.rms.embedded.launching import Command, Handle

PATH = "/usr/local/bin:/usr/bin:/bin"
MOST_ARGUMENT_BYTES = 100_000
MOST_OUTPUTS = 1_000
"""Output files that are kept; the oldest go."""
REAP_S = 2.0
# Waits for a word on its stdin, becomes the user, and then the command. Whoever launched it and
# died before it could write down that it did leaves no command running that nobody knows of.
PROGRAM = """
import json, os, signal, sys
told = sys.stdin.buffer.readline()
if not told.endswith(b"\\n"):
    raise SystemExit(1)
told = json.loads(told)
# What the interpreter ignores, and what protects the service, is not for the command.
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
try:
    with open("/proc/self/oom_score_adj", "r+") as file:
        if int(file.read()) < 0:
            file.seek(0)
            file.write("0")
except OSError:
    pass
if told["gids"] is not None:
    os.setgroups(told["gids"])
    os.setresgid(told["gid"], told["gid"], told["gid"])
    os.setresuid(told["uid"], told["uid"], told["uid"])
os.umask(0o022)
try:
    os.chdir(told["folder"])
except OSError as error:
    if told["is_asked_for"]:
        sys.stderr.write("the job cannot begin in %s: %s\\n" % (told["folder"], error.strerror))
        raise SystemExit(126)
    os.chdir("/")
os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
try:
    os.execvpe(told["argv"][0], told["argv"], told["variables"])
except OSError as error:
    sys.stderr.write("the job's command %s cannot be run: %s\\n" % (told["argv"][0], error.strerror))
    raise SystemExit(127)
"""


class ProcessLauncher:
    """Runs commands; their output is in `folder`, in a file named after the job."""

    def __init__(self, folder: Path, *, python: str = sys.executable) -> None:
        self._folder = folder
        self._python = python

    def output_of(self, job: str) -> Path:
        return self._folder / f"{job}.out"

    def refusal(self, submission: Submission) -> str | None:
        if not submission.argv or not submission.argv[0]:
            return "a job needs a command"
        texts = [os.fsencode(text) for text in submission.argv]
        if sum(len(text) + 1 for text in texts) > MOST_ARGUMENT_BYTES or any(b"\0" in text for text in texts):
            return f"a command has at most {MOST_ARGUMENT_BYTES} bytes and no zero byte"
        if os.geteuid() not in (0, submission.uid):
            return (
                f"jobs run here as uid {os.geteuid()}, like the service, and {submission.user} is "
                f"uid {submission.uid}: only a service that runs as root can run jobs of others"
            )
        try:
            pwd.getpwuid(submission.uid)
        except KeyError:
            return f"there is no user with uid {submission.uid} on this machine"
        return None

    def launch(self, command: Command) -> Handle:
        user = pwd.getpwuid(command.uid)
        self._drop_old_outputs()
        output = _output(self.output_of(command.job), user.pw_uid)
        try:
            if os.geteuid() == 0:
                os.fchown(output, user.pw_uid, user.pw_gid)
            child = subprocess.Popen(
                [self._python, "-I", "-S", "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd="/",
                env={},
                start_new_session=True,
            )
        finally:
            os.close(output)
        told = {
            "argv": command.argv,
            "variables": {**_variables(user), **command.variables},
            "folder": command.folder or user.pw_dir,
            "is_asked_for": bool(command.folder),
            "uid": user.pw_uid,
            "gid": user.pw_gid,
            "gids": os.getgrouplist(user.pw_name, user.pw_gid) if os.geteuid() == 0 else None,
        }
        return _Child(child, json.dumps(told).encode() + b"\n")

    def adopt(self, identity: str) -> Handle | None:
        found = _Mark.read(identity)
        if found is None:
            return None
        orphan = _Orphan(found)
        return None if orphan.is_over() else orphan

    def _drop_old_outputs(self) -> None:
        self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        numbers = sorted(int(path.stem) for path in self._folder.glob("*.out") if path.stem.isdecimal())
        for number in numbers[:-MOST_OUTPUTS]:
            self.output_of(str(number)).unlink(missing_ok=True)


def _output(path: Path, uid: int) -> int:
    """A job's output, open to be added to. That of another user's job, of before the jobs were
    numbered anew, gives way: who has it open still would read the new one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        if path.lstat().st_uid != uid:
            path.unlink()
    return os.open(path, flags, 0o600)


def _variables(user: pwd.struct_passwd) -> dict[str, str]:
    return {
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
    }


@dataclass(frozen=True, slots=True)
class _Mark:
    """A process, told apart from a later one of the same number by its start and the boot."""

    pid: int
    start: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> _Mark:
        return cls(pid, _stat(pid)[1], _boot())

    @classmethod
    def read(cls, identity: str) -> _Mark | None:
        pid, _, rest = identity.partition(" ")
        start, _, boot = rest.partition(" ")
        return cls(int(pid), int(start), boot) if pid.isdecimal() and start.isdecimal() else None

    def __str__(self) -> str:
        return f"{self.pid} {self.start} {self.boot}"

    def is_there(self) -> bool:
        state, start = _stat(self.pid)
        return state not in ("", "Z", "X") and start == self.start and self.boot == _boot()

    def end_rest(self) -> None:
        """What a leader that is over has left of its group.

        A number is not given away while a group has it. So, if there is no process of that
        number, the group is the leader's or empty.
        """
        if _stat(self.pid)[1] in (0, self.start) and self.boot == _boot():
            self.signal(signal.SIGKILL)

    def signal_leader(self, name: str) -> None:
        """To the leader alone. Raises ValueError if there is no such signal."""
        number = getattr(signal, f"SIG{name}", None)
        if not isinstance(number, signal.Signals):
            raise ValueError(f"there is no signal {name}")
        if self.is_there():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def signal(self, number: int) -> None:
        """To all of its session's first group, which has the number of its leader."""
        if self.pid > 1:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)


class _Child:
    """A process of this service."""

    def __init__(self, child: subprocess.Popen[bytes], told: bytes) -> None:
        self._child = child
        self._told = told
        self._mark = _Mark.of(child.pid)

    @property
    def identity(self) -> str:
        return str(self._mark)

    def begin(self) -> None:
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):
            self._child.stdin.write(self._told)
            self._child.stdin.flush()
        with suppress(BrokenPipeError):
            self._child.stdin.close()

    def is_over(self) -> bool:
        if self._child.returncode is not None:
            return True
        # Not reaped yet, its number still names its group and nobody else's.
        found = os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return False
        self.kill()
        return True

    def ask_to_end(self) -> None:
        if self._child.returncode is None:
            self._mark.signal(signal.SIGTERM)
            # One that stands still could not hear it.
            self._mark.signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._child.returncode is None:
            self._mark.signal(signal.SIGKILL)
            # One that hangs in a dead file system dies when that answers; nobody waits for it here.
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(REAP_S)
        self._close()

    def signal(self, name: str) -> None:
        if self._child.returncode is None:
            self._mark.signal_leader(name)

    def stop(self) -> None:
        if self._child.returncode is None:
            self._mark.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        if self._child.returncode is None:
            self._mark.signal(signal.SIGCONT)

    def leave(self) -> None:
        self._close()
        # Otherwise a child whose end nobody awaits is reported as forgotten.
        self._child.returncode = self._child.returncode or 0

    def _close(self) -> None:
        if self._child.stdin is not None:
            with suppress(BrokenPipeError):
                self._child.stdin.close()


class _Orphan:
    """A process that an earlier service launched."""

    def __init__(self, mark: _Mark) -> None:
        self._mark = mark

    @property
    def identity(self) -> str:
        return str(self._mark)

    def begin(self) -> None:
        """Its service did that, or died and took it along."""

    def is_over(self) -> bool:
        if self._mark.is_there():
            return False
        self._mark.end_rest()
        return True

    def ask_to_end(self) -> None:
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def signal(self, name: str) -> None:
        self._mark.signal_leader(name)

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def leave(self) -> None:
        """It is nobody's already."""

    def _signal(self, number: int) -> None:
        if self._mark.is_there():
            self._mark.signal(number)


def _stat(pid: int) -> tuple[str, int]:
    """State and start of a process, in ticks since the boot; nothing if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    # The name in brackets may hold anything, brackets and spaces included.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
