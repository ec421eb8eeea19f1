"""How much the API takes on, and how long it waits: the numbers, and the counting of what is under way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from outrider.service.web.front import Busy

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
    connections: int = 800
    """Of all users together; below the usual limit of 1,024 open files."""
    bodies_bytes: int = 256 * 1024 * 1024
    """All bodies in memory together, whoever sent them."""
    poll_every_s: float = 0.5
    """How often a long poll asks the desk."""


class Slots:
    """Counts what each user, or each host, has under way."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def take(self, who: str, most: int) -> None:
        """One more, to be given back. Raises Busy."""
        if self._taken[who] >= most:
            raise Busy(f"{most} requests of {who} are under way: wait for one of them")
        self._taken[who] += 1

    def give(self, who: str) -> None:
        self._taken[who] -= 1
        if self._taken[who] <= 0:
            del self._taken[who]


class Crew:
    """A few threads for one kind of work that blocks, and a queue before them that ends.

    The kinds are kept apart: a user database that hangs must not keep workspaces from being read.
    """

    def __init__(self, work: str, *, threads: int, most_waiting: int = 256) -> None:
        self._work = work
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"api-{work.partition(' ')[0]}")
        self._most = threads + most_waiting
        self._under_way = 0

    async def do(self, function: Callable[[], Found]) -> Found:
        """What the function returns. Raises Busy if too much is waiting."""
        if self._under_way >= self._most:
            raise Busy(f"too many requests wait for {self._work}: ask again in a moment")
        task = asyncio.wrap_future(self._pool.submit(function))
        self._under_way += 1
        task.add_done_callback(self._note_done)
        return await asyncio.shield(task)

    def _note_done(self, task: asyncio.Future[Found]) -> None:
        self._under_way -= 1
        if not task.cancelled():
            task.exception()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
