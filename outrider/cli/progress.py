"""A bar on stderr for what takes more than a second, if somebody is looking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from cachemgr.base.clock import MonotonicClock

PATIENCE_S = 1.0
_WIDTH = 30
EVERY_S = 30.0


@contextmanager
def progress(what: str, clock: Callable[[], float] = perf_counter) -> Iterator[Callable[[int, int], None]]:
    """A function that is told how many pieces of how many are done."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    bar = _Bar(what, clock)
    try:
        yield bar.show
    finally:
        bar.end()


class NewsLine:
    """What is waited for: on a terminal one line that changes; else a line now and then, in a log."""

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._told_s: float | None = None
        self._width = 0

    def show(self, words: str) -> None:
        """Without words it is over."""
        now_s = self._clock.monotonic_s()
        if sys.stderr.isatty():
            end = "" if words else "\r"
            print(f"\r{words.ljust(self._width)}", end=end, file=sys.stderr, flush=True)
            self._width = len(words)
        elif words and (self._told_s is None or now_s - self._told_s >= EVERY_S):
            print(f"outrider: {words}", file=sys.stderr, flush=True)
            self._told_s = now_s


class _Bar:
    """Rich's bar where Rich is installed, else one of plain characters."""

    def __init__(self, what: str, clock: Callable[[], float]) -> None:
        self._what = what
        self._clock = clock
        self._began_s = clock()
        self._rich: tuple[Progress, TaskID] | None = None
        self._is_shown = False

    def show(self, done: int, total: int) -> None:
        if self._clock() - self._began_s < PATIENCE_S:
            return
        if not self._is_shown:
            self._is_shown = True
            self._rich = _rich_bar(self._what, total)
        if self._rich is not None:
            bar, task = self._rich
            bar.update(task, completed=done, refresh=True)
        else:
            filled = _WIDTH * done // total
            marks = "#" * filled + "." * (_WIDTH - filled)
            print(f"\r{self._what} [{marks}] {done}/{total}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._rich is not None:
            self._rich[0].stop()
        elif self._is_shown:
            print(f"\r{' ' * (len(self._what) + _WIDTH + 24)}\r", end="", file=sys.stderr, flush=True)


def _rich_bar(what: str, total: int) -> tuple[Progress, TaskID] | None:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        return None
    # Without a thread of its own, because worker processes are forked from this one.
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), auto_refresh=False, transient=True,
    )  # fmt: skip
    bar.start()
    return bar, bar.add_task(what, total=total)
