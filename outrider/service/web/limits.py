"""How much the API takes on, and how long it waits; and threads for what blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from cachemgr.base.clock import SystemClock
from cachemgr.base.shares import Share
from outrider.service.front import Busy
from outrider.service.task_threads import TaskThreads

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one request, one user and all of them together may take.

    `head_bytes` is for the request line and the headers together.
    """

    head_bytes: int = 16 * 1024
    body_bytes: int = 1024 * 1024
    arrival_s: float = 30
    """A request that has not arrived whole after so long is dropped."""
    idle_s: int = 10
    """A connection without a request is closed after so long."""
    answer_s: float = 60
    """How long an answer of the desk is waited for, and how long an image is looked up."""
    unread_s: float = 30
    """A client that does not take its answer for so long is cut off."""
    requests_per_user: int = 64
    requests_per_host: int = 512
    """Over TCP, where a host has many users and none of them is known yet."""
    connections_per_user: int = 128
    connections_per_host: int = 512
    connections: int = 512
    """Of all users of this machine together. Who has fewest gets one from who has most."""
    remote_connections: int = 512
    """The same of other machines."""
    kept: int = 32
    """Of connections, requests and what waits, so many are for root and administrators alone."""
    probes: int = 32
    """Connections beyond all of these, on which only /healthz and /readyz are answered."""
    bodies_bytes: int = 256 * 1024 * 1024
    """All bodies in memory together, whoever sent them; an eighth is the most of one."""
    polls: int = 256
    polls_per_user: int = 8
    """Requests that wait for something new; beyond that they are answered with what there is."""
    poll_every_s: float = 0.5
    """How often a long poll asks the desk."""


class WebThreads:
    """A few threads for one kind of work that blocks, and a queue before them that ends.

    The kinds are kept apart: a user database that hangs must not keep workspaces from being read.
    Whoever asks for the work takes turns with others; root's and administrators' goes first.
    """

    def __init__(
        self, work: str, *, threads: int, most_waiting: int = 256, most_of_one: int = 64, of_one: int = 1
    ) -> None:
        # What goes first has a thread, too, if there are several.
        kept = 1 if threads > 2 else 0
        self._threads = TaskThreads(
            work,
            threads,
            clock=SystemClock(),
            most_waiting=most_waiting,
            most_of_one=most_of_one,
            most_running_of_one=of_one,
            kept=min(16, most_waiting // 4),
            kept_threads=kept,
        )

    async def do(
        self, function: Callable[[], Found], who: Hashable = None, *, is_first: bool | None = None
    ) -> Found:
        """What the function returns. Raises Busy if too much is waiting."""
        future: Future[Found] = Future()
        self._threads.add(_Work(future, function), who, is_first=is_first)
        task = asyncio.wrap_future(future)
        task.add_done_callback(_note_done)
        return await asyncio.shield(task)

    def close(self) -> None:
        self._threads.close()

    def shares(self) -> list[Share]:
        return self._threads.shares()


class _Work(Generic[Found]):
    """A function whose result a request waits for."""

    def __init__(self, future: Future[Found], function: Callable[[], Found]) -> None:
        self._future = future
        self._function = function

    def run(self) -> None:
        # Given up or cancelled meanwhile: then nobody waits.
        with suppress(InvalidStateError):
            try:
                found = self._function()
            except Exception as error:  # noqa: BLE001 - whoever waits gets it, and knows what to do
                self._future.set_exception(error)
                return
            self._future.set_result(found)

    def give_up(self, words: str) -> None:
        with suppress(InvalidStateError):
            self._future.set_exception(Busy(words))


def _note_done(task: asyncio.Future[Found]) -> None:
    if not task.cancelled():
        task.exception()
