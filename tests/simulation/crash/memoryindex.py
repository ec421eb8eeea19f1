"""The pool's index in memory, and what a crash may have made of it.

What is written stays when the process dies, as with SQLite without syncs; how it looks after
a power cut nobody knows, and the test chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cachemgr.pool.index import IndexFailed
from cachemgr.pool.policies import PolicyEntry
from tests.simulation.crash.memorydisk import MemoryDisk
from tests.simulation.crash.memorynodes import GROW, READ

NOW, BEFORE = "index", "index before the change"


@dataclass
class Content:
    """What an index holds. Replaced at every change, so that copies may share it."""

    boot_id: str
    entries: dict[str, PolicyEntry] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)


class MemoryIndex:
    """`cachemgr.pool.index.Index` on a shelf of a disk in memory."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._is_open = False

    @property
    def is_open(self) -> bool:
        return self._is_open

    def open(self, boot_id: str) -> bool:
        self._step("open index", READ)
        self._is_open = True
        found = self._disk.shelf.get(NOW)
        self._disk.shelf[BEFORE] = found
        return isinstance(found, Content) and found.boot_id == boot_id

    def refill(self, boot_id: str, entries: Iterable[PolicyEntry], taken: dict[str, int]) -> None:
        self._step("empty index", GROW)
        self._is_open = True
        self._disk.shelf[NOW] = None
        self._step("refill index", GROW)
        self._disk.shelf[NOW] = Content(boot_id, {entry.key: entry for entry in entries}, dict(taken))

    def put(self, entry: PolicyEntry) -> None:
        self._change("put", lambda content: content.entries.update({entry.key: entry}))

    def drop(self, key: str) -> None:
        self._change("drop", lambda content: content.entries.pop(key, None))

    def touch(self, key: str, now_s: int) -> None:
        def touched(content: Content) -> None:
            if key in content.entries:
                content.entries[key] = content.entries[key].used(now_s)

        self._change("touch", touched)

    def take(self, what: str, size_bytes: int) -> None:
        self._change("take", lambda content: content.taken.update({what: size_bytes}))

    def give_back(self, what: str) -> None:
        self._change("give back", lambda content: content.taken.pop(what, None))

    def taken(self) -> dict[str, int]:
        self._step("read index", READ)
        return dict(sorted(self._content().taken.items()))

    def used_bytes(self) -> int:
        self._step("read index", READ)
        content = self._content()
        return sum(entry.size_bytes for entry in content.entries.values()) + sum(content.taken.values())

    def entries(self) -> list[PolicyEntry]:
        self._step("read index", READ)
        return [entry for _, entry in sorted(self._content().entries.items())]

    def close(self) -> None:
        self._is_open = False

    def _change(self, what: str, edit: Callable[[Content], object]) -> None:
        self._step(f"index {what}", GROW)
        old = self._content()
        new = Content(old.boot_id, dict(old.entries), dict(old.taken))
        edit(new)
        self._disk.shelf[NOW] = new

    def _content(self) -> Content:
        found = self._disk.shelf.get(NOW)
        if not (self._is_open and isinstance(found, Content)):
            raise IndexFailed("the index is not open, or was never filled")
        return found

    def _step(self, what: str, effect: str) -> None:
        try:
            self._disk.step(what, "index", effect)
        except OSError as error:
            raise IndexFailed(f"index: {error}") from error


def spoil(disk: MemoryDisk, how: str) -> None:
    """Make of the index what a crash may have left: kept, lost, garbage, or older if a change
    was under way when the process died."""
    if how == "lost":
        disk.shelf.pop(NOW, None)
    elif how == "garbage":
        disk.shelf[NOW] = "not a database"
    elif how == "older":
        disk.shelf[NOW] = disk.shelf.get(BEFORE)
