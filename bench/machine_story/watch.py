"""What becomes of machines on their nodes, with times: from what they write down, on any batch system."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.base.clock import Clock

LOOK_S = 0.05
_STATE = re.compile(r'"state": "([a-z]+)"')


@dataclass(slots=True)
class JobTimes:
    """When what happened to a machine, by the time of day. None: it did not."""

    began_s: float | None = None
    """Its job's program was there."""
    saving_s: float | None = None
    saved_s: float | None = None
    loading_s: float | None = None
    continued_s: float | None = None
    over_s: float | None = None
    counts: list[tuple[float, int]] = field(default_factory=list)
    """How far it had said that it was, and when that was seen."""
    state: str = ""

    def counted(self) -> int:
        return self.counts[-1][1] if self.counts else 0


class WatchedGuest:
    """A machine's record and its job's words, as files that anybody else writes."""

    def __init__(self, record: Path, words: Path) -> None:
        self.record, self.words = record, words
        self.times = JobTimes()
        self._size = -1

    def look(self, now_s: float) -> None:
        self._see_words(now_s)
        state = ""
        with suppress(OSError):
            found = _STATE.search(self.record.read_text())
            state = found[1] if found else ""
        if state != self.times.state:
            self._changed(state, now_s)

    def said(self) -> list[str]:
        with suppress(OSError):
            return self.words.read_text().split()
        return []

    def _see_words(self, now_s: float) -> None:
        with suppress(OSError):
            size = self.words.stat().st_size
            if size == self._size:
                return
            self._size = size
            numbers = [int(word) for word in self.said() if word.isdigit()]
            if numbers and numbers[-1] != self.times.counted():
                self.times.counts.append((now_s, numbers[-1]))

    def _changed(self, state: str, now_s: float) -> None:
        times = self.times
        before, times.state = times.state, state
        if times.began_s is None:
            times.began_s = now_s
        if state == "saving" and times.saving_s is None:
            times.saving_s = now_s
        if state == "suspended" and before != "loading" and times.saved_s is None:
            times.saved_s = now_s
        if state == "loading" and times.loading_s is None:
            times.loading_s = now_s
        if state == "running" and times.saved_s is not None and times.continued_s is None:
            times.continued_s = now_s
        if not state and times.counts:
            times.over_s = now_s


class Watcher(Thread):
    """Looks at all of them until it is told to end."""

    def __init__(self, watched: Sequence[WatchedGuest], clock: Clock, zero_s: float) -> None:
        super().__init__(daemon=True)
        self._watched, self._clock, self._zero_s = watched, clock, zero_s
        self._ended = Event()

    def run(self) -> None:
        while not self._ended.wait(LOOK_S):
            now_s = self._zero_s + self._clock.monotonic_s()
            for each in self._watched:
                each.look(now_s)

    def end(self) -> None:
        self._ended.set()
        self.join()
