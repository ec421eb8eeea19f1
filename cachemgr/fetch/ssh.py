"""Images on hosts with a shell: ssh://user@host/path, read by `tail` from any byte on.

`tail` seeks in a regular file, so that going on in the middle costs nothing, and what it
prints comes in order. `scp` can neither begin in the middle nor write to a pipe.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.ports import Resolved, Status
from cachemgr.fetch.process import Process, ProcessStream, answer_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.clock import Clock
    from cachemgr.fetch.uris import Location

SIZE_AND_CHANGE = re.compile(r"(\d{1,18}) (\d{1,18})\s*")


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


class SshSource:
    """A file on a host where the service may run `stat` and `tail`."""

    is_relay = False

    def __init__(
        self, location: Location, settings: SshSettings, clock: Clock, validator: str | None = None
    ) -> None:
        self.name = location.name
        self._location = location
        self._settings = settings
        self._clock = clock
        self._validator = validator

    def resolve(self, timeout_s: float) -> Resolved:
        size, changed = self._look(timeout_s)
        self._validator = changed
        return Resolved(size, self._location.path.rpartition("/")[2], changed)

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> ProcessStream:
        # Looking first costs a connection, and notices a file that was replaced meanwhile.
        size, changed = self._look(timeout_s)
        if size != size_bytes or (self._validator is not None and changed != self._validator):
            raise SourceFault(
                f"the file has changed: {size} bytes instead of {size_bytes}, of time {changed}",
                is_final=True,
            )
        self._validator = changed
        remote = f"exec tail -c +{offset + 1} -- {shlex.quote(self._location.path)}"
        command = [*ssh_command(self._location, self._settings, timeout_s=timeout_s), remote]
        return ProcessStream(Process(command, self._settings.environment), offset)

    def status(self, timeout_s: float) -> Status | None:
        return None

    def _look(self, timeout_s: float) -> tuple[int, str]:
        remote = f"LC_ALL=C exec stat -L -c '%s %Y' -- {shlex.quote(self._location.path)}"
        command = [*ssh_command(self._location, self._settings, timeout_s=timeout_s), remote]
        answer = answer_of(command, self._settings.environment, timeout_s, self._clock)
        found = SIZE_AND_CHANGE.fullmatch(answer)
        if found is None:
            raise SourceFault(f"stat on the host answers {answer[:80]!r}, not a size", is_final=True)
        return int(found[1]), found[2]
