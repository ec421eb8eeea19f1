"""What a disk in memory consists of: files and folders, each with what a power cut would spare.

The rules by which they survive are those of `memorydisk`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.crash.memorydisk import MemoryLock

READ, CHANGE, GROW, SYNC = "read", "change", "grow", "sync"
EVERY_EFFECT = (READ, CHANGE, GROW, SYNC)
# What each kind of fault can happen at. Dying while reading is dying after the last change.
STRIKES = {
    "crash": (CHANGE, GROW, SYNC),
    "ENOSPC": (GROW,),
    "EROFS": (CHANGE, GROW),
    "EIO": EVERY_EFFECT,
}


class Crash(BaseException):
    """The process dies here; no `except Exception` may survive it."""


class WouldBlock(BaseException):
    """Who runs as the only one would wait forever for this lock."""


@dataclass
class Fault:
    """One fault, at the step with this number among those that it can strike."""

    kind: str
    at: int
    is_lasting: bool = False


class File:
    """An inode of a file: what is in it, and what of it a power cut spares."""

    __slots__ = ("acl", "content", "durable", "durable_mode", "holders", "is_dirty", "mode")

    def __init__(self, mode: int) -> None:
        self.content = bytearray()
        self.durable = b""
        self.is_dirty = True
        self.mode = self.durable_mode = mode
        self.acl: bytes | None = None
        self.holders: list[MemoryLock] = []


class Folder:
    """An inode of a folder: its names, and those that a power cut spares."""

    __slots__ = ("durable", "durable_mode", "entries", "holders", "mode")

    def __init__(self, mode: int) -> None:
        self.entries: dict[str, File | Folder] = {}
        self.durable: dict[str, File | Folder] = {}
        self.mode = self.durable_mode = mode
        self.holders: list[MemoryLock] = []


Node = File | Folder
# One change of names: in each folder a name gets a node, or none.
Change = tuple[tuple[Folder, str, Node | None], ...]


@lru_cache(maxsize=4096)
def parts_of(path: str) -> tuple[str, ...]:
    """The names of a path."""
    return tuple(name for name in path.split("/") if name)


def put(names: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def remnant(file: File, contents: str, random: Random) -> bytes:
    """What a power cut leaves of a file's content. What was synced and not written since
    stays; a file that was synced is not cut below its length."""
    new, old = bytes(file.content), file.durable
    if not file.is_dirty or contents == "old":
        return old
    if contents == "new":
        return new
    at = 0 if contents == "zeros" else random.randrange(len(new) + 1)
    end = len(new) if contents == "zeros" or random.randrange(2) else max(at, len(old))
    lost = (new[i] if i < len(old) and old[i] == new[i] else 0 for i in range(at, end))
    return new[:at] + bytes(lost)


def error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
