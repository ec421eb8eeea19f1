"""What happens in the experiment, in the order in which it is heard of: one queue for all threads."""

from __future__ import annotations

import os
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST_LINE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class JobWord:
    """A job's own word, from the host on which it runs."""

    number: int
    word: str


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that a thread has carried out; what follows from it is the main thread's."""

    then: Callable[[], None]


@dataclass(frozen=True, slots=True)
class ThreadFailure:
    """A thread could not carry out what it was to."""

    error: BaseException


Event = JobWord | Happened | ThreadFailure


class Events:
    """Threads put, the main thread takes."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def put(self, event: Event) -> None:
        self._queue.put(event)

    def take(self, timeout_s: float) -> Event | None:
        """The next one, or None if none comes in time. Raises what a thread has failed with."""
        try:
            event = self._queue.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None
        if isinstance(event, ThreadFailure):
            raise event.error
        return event

    def begin(self, work: Callable[[], Callable[[], None]]) -> None:
        """Carry something out in a thread of its own; what it returns is called by the main thread."""

        def carried_out() -> None:
            try:
                self.put(Happened(work()))
            except Exception as error:  # noqa: BLE001 - the main thread raises it
                self.put(ThreadFailure(error))

        threading.Thread(target=carried_out, daemon=True).start()

    def hear(self, pipe: Path) -> None:
        """Jobs say `WORD NUMBER`, a line each, into this named pipe, from now on."""
        # Open for writing, too: the last job's end is not the pipe's.
        descriptor = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)

        def listened() -> None:
            rest = b""
            while True:
                *lines, rest = (rest + os.read(descriptor, MOST_LINE_BYTES)).split(b"\n")
                for line in lines:
                    word, _, number = line.decode().partition(" ")
                    self.put(JobWord(int(number), word))

        threading.Thread(target=listened, daemon=True).start()
