"""How far something is, on stderr: one line that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager

from cachemgr.base.sizes import in_words
from cachemgr.base.tables import cut, printable
from cachemgr.base.times import span_in_words
from cachemgr.cli import answers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from cachemgr.base.clock import Clock

# How much is said besides results.
QUIET, NORMAL, VERBOSE = -1, 0, 1
# What is over before this shows nothing.
PATIENCE_S = 1.0
# A terminal's line changes so often, and a log gets a line so often.
TERMINAL_EVERY_S, LOG_EVERY_S, VERBOSE_EVERY_S = 0.1, 30.0, 5.0
CLEAR = "\r\x1b[K"


class ProgressLine:
    """Told how far a transfer is, as often as anybody likes; shows it as often as is good."""

    def __init__(self, what: str, stream: TextIO, clock: Clock, *, volume: int = NORMAL) -> None:
        self._what = what
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._is_quiet = volume == QUIET
        self._is_drawn = False
        log_every_s = VERBOSE_EVERY_S if volume >= VERBOSE else LOG_EVERY_S
        self._every_s = TERMINAL_EVERY_S if self._is_terminal else log_every_s
        self._next_s = clock.monotonic_s() + (PATIENCE_S if self._is_terminal else self._every_s)
        self.last: answers.Result = {}

    def __call__(self, fields: answers.Result) -> None:
        self.last = fields
        if self._is_quiet or self._clock.monotonic_s() < self._next_s:
            return
        self._next_s = self._clock.monotonic_s() + self._every_s
        text = f"{self._what}: {standing(fields, self._clock.now_s())}"
        if self._is_terminal:
            self._stream.write(CLEAR + cut(text, _columns(self._stream) - 1))
            self._is_drawn = True
        else:
            self._stream.write(f"cachemgr: {text}\n")
        self._stream.flush()

    def end(self) -> None:
        """Take the line away: the result says the rest."""
        if self._is_drawn:
            self._stream.write(CLEAR)
            self._stream.flush()
            self._is_drawn = False


@contextmanager
def ticking(what: str, stream: TextIO, clock: Clock) -> Iterator[None]:
    """While the body runs, the seconds on a terminal: for what cannot say how far it is."""
    if not stream.isatty():
        yield
        return
    is_over = threading.Event()
    began_s = clock.monotonic_s()

    def tick() -> None:
        while not is_over.wait(PATIENCE_S):
            stream.write(f"{CLEAR}{what}: {span_in_words(clock.monotonic_s() - began_s)}")
            stream.flush()

    thread = threading.Thread(target=tick, name="ticking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        if clock.monotonic_s() - began_s >= PATIENCE_S:
            stream.write(CLEAR)
            stream.flush()


def standing(fields: answers.Result, now_s: int) -> str:
    """`37 %, 1.5 GiB of 4.0 GiB, 112.4 MiB/s, 23 s left, from http://…`."""
    from cachemgr.protocol import TransferProgress

    told = answers.read(TransferProgress, fields)
    is_running = told.state in ("", "running")
    parts = [] if is_running else [told.state]
    if told.size_bytes:
        arrived_bytes = told.bytes or 0
        parts.append(f"{100 * arrived_bytes // told.size_bytes} %")
        parts.append(f"{in_words(arrived_bytes)} of {in_words(told.size_bytes)}")
    if told.rate_bytes_per_s and is_running:
        parts.append(f"{in_words(told.rate_bytes_per_s)}/s")
        if told.finish_s is not None:
            parts.append(f"{span_in_words(told.finish_s - now_s)} left")
    if told.source:
        parts.append(f"from {printable(told.source)}")
    return ", ".join(parts) or "waiting"


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
