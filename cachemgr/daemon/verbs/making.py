"""The verb `instance` for ordinary users: one at a time of each.

So nobody gets past their quota by asking for many at once, and a user who has large copies made
keeps the disk no busier than another with one.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager

from cachemgr.daemon.verbs import leasing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cachemgr.daemon.network.line import Line
    from cachemgr.daemon.network.peer import Caller
    from cachemgr.daemon.node import Node
    from cachemgr.daemon.verbs.requests import Request


def instance(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    if caller.is_privileged:
        return leasing.instance(node, caller, request, line)
    with node.one_at_a_time.of(caller.uid):
        return leasing.instance(node, caller, request, line)


class OneAtATime:
    """A lock for each user who needs one now."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[int, threading.Lock] = {}
        self._wanted: dict[int, int] = {}

    @contextmanager
    def of(self, uid: int) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(uid, threading.Lock())
            self._wanted[uid] = self._wanted.get(uid, 0) + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                self._wanted[uid] -= 1
                if not self._wanted[uid]:
                    del self._wanted[uid], self._locks[uid]
