"""Images on hosts with a shell: ssh://user@host/path, read by `tail` from any byte on.

One command prints what `stat` says and then the bytes, so that a file replaced meanwhile is
noticed without a second connection. `tail` seeks in a regular file, so that going on in the
middle costs nothing, and what it prints comes in order. `scp` can neither begin in the middle
nor write to a pipe.
"""

from __future__ import annotations

import re
import shlex
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.sources.programs.process import Process, ProcessStream, ProgramSource, answer_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.fetch.sources.uris import Location

# Size, time of change, and mode with the kind of file in hexadecimal digits.
LOOKED = re.compile(r"(\d{1,18}) (\d{1,18}) ([0-9a-f]{1,8})")
LOOK = "LC_ALL=C stat -L -c '%s %Y %f' -- {path}"
MOST_LINE_BYTES = 4096


@dataclass(frozen=True)
class SshSettings:
    """How the service calls ssh: its program, options of the site (a key, known hosts), environment."""

    program: str = "ssh"
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def ssh_command(location: Location, settings: SshSettings, *more: str, timeout_s: float) -> list[str]:
    """The argument list up to the host; `more` are options before it. Never asks a question."""
    command = [settings.program, "-x", "-a", "-T", "-oBatchMode=yes", "-oClearAllForwardings=yes"]
    command += [
        f"-oConnectTimeout={max(1, int(timeout_s))}",
        "-oPermitLocalCommand=no",
        *settings.options,
        *more,
    ]
    if location.port is not None:
        command += ["-p", str(location.port)]
    if location.user is not None:
        command += ["-l", location.user]
    return [*command, "--", location.host]


class SshSource(ProgramSource[SshSettings]):
    """A file on a host where the service may run `stat` and `tail`."""

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> ProcessStream:
        path = shlex.quote(self._location.path)
        remote = f"{LOOK.format(path=path)} && exec tail -c +{offset + 1} -- {path}"
        command = [*ssh_command(self._location, self._settings, timeout_s=timeout_s), remote]
        process = Process(command, self._settings.environment)
        try:
            line, rest = process.first_line(timeout_s, self._clock, MOST_LINE_BYTES)
            self._accept(*_looked(line), size_bytes)
        except BaseException:
            process.close()
            raise
        return ProcessStream(process, offset, rest)

    def _look(self, timeout_s: float) -> tuple[int, str]:
        remote = LOOK.format(path=shlex.quote(self._location.path))
        command = [*ssh_command(self._location, self._settings, timeout_s=timeout_s), remote]
        answer = answer_of(command, self._settings.environment, timeout_s, self._clock)
        return _looked(answer.rstrip("\n"))


def _looked(line: str) -> tuple[int, str]:
    """Size and time of change, of a regular file."""
    found = LOOKED.fullmatch(line)
    if found is None:
        raise SourceFault(f"stat on the host answers {line[:80]!r}, not a size", is_final=True)
    if not stat.S_ISREG(int(found[3], 16)):
        raise SourceFault("it is not a regular file", is_final=True)
    return int(found[1]), found[2]
