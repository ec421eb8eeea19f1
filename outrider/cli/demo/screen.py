"""Shows commands as if they were typed, and runs them: what they print is theirs."""

from __future__ import annotations

import codecs
import fcntl
import io
import os
import re
import select
import signal
import struct
import subprocess
import termios
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from outrider.cli.asking.display.terminal import columns, lines, paint_for
from outrider.cli.errors import BrokenError

if TYPE_CHECKING:
    from cachemgr.base.clock import Clock

COMMAND_S = 120
WIDTH = 100
PIECE_BYTES = 4_096
LOOK_S = 0.3
_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def prose(text: str) -> str:
    """Sentences, in lines that fit."""
    return textwrap.fill(text, min(WIDTH, columns()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What is started when a command line is typed."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: Path


Launch = Callable[[str, str], Start]
"""A command line, and the host where it is typed; none is where the user sits."""


class DemoScreen:
    """Where the demo is seen. What a command line starts is the stage's to say."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str], launch: Launch, clock: Clock) -> None:
        self._stream = stream
        self._launch = launch
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._paint = paint_for(stream, environment)
        self._number = 0

    def part(self, title: str) -> None:
        """A heading, with the seconds since the beginning."""
        self._number += 1
        seconds = f"{self._clock.monotonic_s() - self._began_s:.0f} s"
        head = f"{self._number}. {title}"
        self.print(f"\n{self._paint(head, 'bold')}  {self._paint(f'[{seconds}]', 'dim')}")

    def say(self, text: str) -> None:
        """Words beside the story; a line break before them stays."""
        body = text.lstrip("\n")
        self.print(text[: len(text) - len(body)] + self._paint(prose(body), "dim"))

    def print(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def type(self, command: str, at: str = "") -> None:
        """A command line behind a prompt: the user's, or root's on a host."""
        prompt = f"{at}#" if at else "$"
        self.print(f"\n{self._paint(prompt, 'green')} {self._paint(command, 'bold')}")

    def run(
        self, command: str, *, at: str = "", expected: int | None = 0, until: Callable[[], bool] | None = None
    ) -> str:
        """Run a command line and return what it printed, without colours.

        Raises BrokenError if its exit code is another than expected; None takes any. With `until` it
        is interrupted as by Ctrl-C once that is so, and may end as it likes.
        """
        self.type(command, at)
        text, code = self._run(self._launch(command, at), until)
        if until is None and expected is not None and code != expected:
            raise BrokenError(f"`{command}` ended with the exit code {code}, not {expected}")
        return _CODES.sub("", text)

    def _run(self, start: Start, until: Callable[[], bool] | None) -> tuple[str, int]:
        """On a terminal of its own if this is one, so that it looks and behaves as it does there."""
        if self._stream.isatty():
            ours, theirs = os.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines(), columns(), 0, 0))
        else:
            ours, theirs = os.pipe()
        with os.fdopen(ours, "rb", buffering=0) as source:
            with os.fdopen(theirs, "wb") as target:
                process = subprocess.Popen(
                    list(start.argv),
                    cwd=start.folder,
                    env=dict(start.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=target,
                    stderr=target,
                    # So that it can be interrupted, and nobody else is.
                    process_group=None if until is None else 0,
                )
            try:
                return self._passed_on(source, process.pid, until), process.wait(COMMAND_S)
            except BaseException:
                process.kill()
                process.wait()
                raise

    def _passed_on(self, source: io.FileIO, pid: int, until: Callable[[], bool] | None) -> str:
        """Everything that comes, shown at once; a terminal whose other end is closed is an error."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        found = []
        until_s = self._clock.monotonic_s() + COMMAND_S
        while True:
            is_there = until is None or bool(select.select([source], [], [], LOOK_S)[0])
            # What it has printed is shown before it is interrupted.
            is_late = self._clock.monotonic_s() > until_s
            if until is not None and (is_late or (not is_there and until())):
                until = None
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGINT)
                self.print("^C")
            if not is_there:
                continue
            try:
                piece = source.read(PIECE_BYTES)
            except OSError:
                piece = b""
            text = decoder.decode(piece, final=not piece).replace("\r\n", "\n")
            self._stream.write(text)
            self._stream.flush()
            found.append(text)
            if not piece:
                return "".join(found)
