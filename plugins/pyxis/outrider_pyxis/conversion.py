"""Running the command that makes a squashfs file of a registry's image: bounded, and leaving nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading

from cachemgr.base.errors import BadRequest, SourceFailed
from outrider_pyxis.squashfs import check_squashfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO, Any

MOST_COMPLAINT_BYTES = 4096
# Sets the largest file of the command, which runs in the shell's place. Its unit is 512 bytes.
LIMITED = ("/bin/sh", "-c", 'ulimit -f "$1" || exit 125; shift; exec "$@"', "sh")


def convert(
    command: Sequence[str],
    uri: str,
    output: str,
    *,
    environment: Mapping[str, str],
    timeout_s: int,
    largest_bytes: int | None = None,
    as_user: tuple[int, int] | None = None,
) -> None:
    """Make `output`; on any failure it is gone again, and so is every process of the command."""
    words = [each.replace("{output}", output) if each != "{uri}" else uri for each in command]
    limited = words if largest_bytes is None else [*LIMITED, str(-(-largest_bytes // 512)), *words]
    ids: dict[str, object] = {}
    if as_user is not None:
        ids = {"user": as_user[0], "group": as_user[1], "extra_groups": []}
    with tempfile.TemporaryFile() as log:
        signals = _DeferredSignals()
        try:
            process = subprocess.Popen(
                limited,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(environment),
                cwd=os.path.dirname(output),
                start_new_session=True,
                **ids,  # type: ignore[call-overload]
            )
        except OSError as error:
            signals.deliver()
            raise BadRequest(
                f"{words[0]} cannot be run ({error.strerror}): install it, or set import_command"
            ) from error
        try:
            signals.deliver()
            status = process.wait(timeout_s)
            if status != 0:
                raise SourceFailed(f"{words[0]} made no image of {uri} (status {status}): {_end_of(log)}")
            check_squashfs(output, is_link_followed=False)
        except BaseException as error:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(output)
            if isinstance(error, subprocess.TimeoutExpired):
                raise SourceFailed(
                    f"{words[0]} made no image of {uri} in {timeout_s} s: raise patience in pyxis.conf"
                ) from error
            raise
        finally:
            # Its pipelines too, not only the shell at their head.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class _DeferredSignals:
    """Signals that end this process wait until it knows the process it has started, to end that, too."""

    def __init__(self) -> None:
        self._came: list[int] = []
        self._handlers: dict[int, Any] = {}
        # Python lets the main thread alone handle signals.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._handlers[number] = signal.signal(number, lambda number, _: self._came.append(number))

    def deliver(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for number in self._came:
            signal.raise_signal(number)


def _end_of(log: IO[bytes]) -> str:
    """The last words of the command, on one line."""
    size_bytes = log.seek(0, os.SEEK_END)
    log.seek(max(0, size_bytes - MOST_COMPLAINT_BYTES))
    words = log.read().decode(errors="replace").split()
    return " ".join(words)[-600:] or "it said nothing"
