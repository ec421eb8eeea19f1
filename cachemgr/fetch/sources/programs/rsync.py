"""Images on rsync servers: rsync://host/module/path, through a scratch file.

`rsync` writes to files only. The scratch file is made as long as what is already here, without
using space for it (a hole); `--append` then makes rsync send and write just the rest, in
order, and the file is read while it grows. What this costs: the rest of the image is written
to disk a second time, and as much space is needed until the transfer ends. Whoever names the
folder for scratch files has to have room for that.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.sources.programs.process import KILL_AFTER_S, Process, ProgramSource, answer_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.base.clock import Clock

LISTED = re.compile(r"-\S+ +(\d{1,18}) (\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) [^\n]*\n?")
LOOK_S = 0.02


@dataclass(frozen=True)
class RsyncSettings:
    """How the service calls rsync, and where its scratch files may be."""

    scratch_folder: str
    program: str = "rsync"
    environment: Mapping[str, str] = field(default_factory=dict)


class RsyncSource(ProgramSource[RsyncSettings]):
    """A file of an rsync server."""

    def open(self, offset: int, size_bytes: int, timeout_s: float) -> GrowingFile:
        self._accept(*self._look(timeout_s), size_bytes)
        try:
            descriptor, path = tempfile.mkstemp(prefix="rsync-", dir=self._settings.scratch_folder)
        except OSError as error:
            raise SourceFault(
                f"no scratch file in {self._settings.scratch_folder}: {error.strerror}", is_final=True
            ) from error
        try:
            os.ftruncate(descriptor, offset)
            process = Process(
                [*self._command("--append", timeout_s=timeout_s), path], self._settings.environment
            )
        except BaseException:
            os.close(descriptor)
            os.unlink(path)
            raise
        return GrowingFile(process, descriptor, path, offset, self._clock)

    def _look(self, timeout_s: float) -> tuple[int, str]:
        command = self._command("--list-only", timeout_s=timeout_s)
        answer = answer_of(command, self._settings.environment, timeout_s, self._clock)
        found = LISTED.fullmatch(answer)
        if found is None:
            raise SourceFault(f"the rsync server lists {answer[:120]!r}, not one file", is_final=True)
        return int(found[1]), found[2]

    def _command(self, *options: str, timeout_s: float) -> list[str]:
        where = self._location
        host = f"[{where.host}]" if ":" in where.host else where.host
        if where.user is not None:
            host = f"{where.user}@{host}"
        port = "" if where.port is None else f":{where.port}"
        waits = max(1, int(timeout_s))
        fixed = [
            "--no-motd",
            "--no-h",
            "--copy-links",
            f"--contimeout={waits}",
            f"--timeout={max(60, waits)}",
        ]
        return [self._settings.program, *fixed, *options, "--", f"rsync://{host}{port}{where.path}"]


class GrowingFile:
    """A file that a program appends to, read up to where it is written.

    rsync tells the length of what it wrote by the file's own length alone, so that is looked
    up now and then; after the program has ended, what is there is all.
    """

    def __init__(self, process: Process, descriptor: int, path: str, offset: int, clock: Clock) -> None:
        self.start_bytes = offset
        self._process = process
        self._descriptor = descriptor
        self._path = path
        self._at = offset
        self._clock = clock
        self._drain = memoryview(bytearray(4096))

    def read_into(self, buffer: memoryview, timeout_s: float) -> int | None:
        until_s = self._clock.monotonic_s() + timeout_s
        while True:
            has_ended = not self._process.is_running
            try:
                count = os.preadv(self._descriptor, [buffer], self._at)
            except OSError as error:
                raise SourceFault(f"the scratch file cannot be read: {error.strerror}") from error
            if count:
                self._at += count
                return count
            if has_ended:
                if self._process.wait(KILL_AFTER_S) != 0:
                    raise SourceFault(self._process.failure(KILL_AFTER_S))
                return 0
            if self._clock.monotonic_s() >= until_s:
                return None
            # Nothing is expected on its output, but what it complains about must not fill a pipe.
            self._process.read_into(self._drain, LOOK_S)

    def close(self) -> None:
        self._process.close()
        os.close(self._descriptor)
        os.unlink(self._path)
