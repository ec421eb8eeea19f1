"""Shows commands as if they were typed, and runs them: what they print is theirs."""

from __future__ import annotations

import codecs
import fcntl
import io
import os
import re
import shlex
import struct
import subprocess
import sys
import termios
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from outrider.cli.asking.terminal import columns, lines, paint_for
from outrider.cli.errors import BrokenError

if TYPE_CHECKING:
    from cachemgr.clock import Clock

COMMAND_S = 120
WIDTH = 100
PIECE_BYTES = 4_096
_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def prose(text: str) -> str:
    """Sentences, in lines that fit."""
    return textwrap.fill(text, min(WIDTH, columns()))


class Screen:
    """Where the demo is seen. Commands run in its folder, with its environment."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str], folder: Path, clock: Clock) -> None:
        self._stream = stream
        self._environment = environment
        self._folder = folder
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
        self.print(self._paint(prose(text), "dim"))

    def print(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def type(self, command: str) -> None:
        """A command line behind a prompt."""
        self.print(f"\n{self._paint('$', 'green')} {self._paint(command, 'bold')}")

    def run(self, command: str, *, expected: int = 0) -> str:
        """Run `outrider …` and return what it printed, without colours. Raises BrokenError."""
        self.type(command)
        text, code = self._run(shlex.split(command))
        if code != expected:
            raise BrokenError(f"`{command}` ended with the exit code {code}, not {expected}")
        return _CODES.sub("", text)

    def _run(self, words: list[str]) -> tuple[str, int]:
        """On a terminal of its own if this is one, so that it looks and behaves as it does there."""
        if self._stream.isatty():
            ours, theirs = os.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines(), columns(), 0, 0))
        else:
            ours, theirs = os.pipe()
        with os.fdopen(ours, "rb", buffering=0) as source:
            with os.fdopen(theirs, "wb") as target:
                process = subprocess.Popen(
                    [sys.executable, "-m", "outrider.cli.main", *words[1:]],
                    cwd=self._folder,
                    env=dict(self._environment),
                    stdin=subprocess.DEVNULL,
                    stdout=target,
                    stderr=target,
                )
            try:
                return self._passed_on(source), process.wait(COMMAND_S)
            except BaseException:
                process.kill()
                process.wait()
                raise

    def _passed_on(self, source: io.FileIO) -> str:
        """Everything that comes, shown at once; a terminal whose other end is closed is an error."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        found = []
        while True:
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
