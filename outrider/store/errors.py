"""Everything that can go wrong with a store, as one tree of classes.

Each class has the exit code of a command that fails with it and the word by which it travels
over a socket. The message says what happened, to what, and what to do.
"""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path


class StoreError(Exception):
    """The store could not do what was asked. Nothing was changed."""

    exit_code = 20
    code = "store"


class StoreMissing(StoreError):
    """There is no store here. It is never made in silence: an empty one would forget all promises."""

    exit_code = 21
    code = "store-missing"


class Damaged(StoreError):
    """The file is not a store, or not a whole one."""

    exit_code = 22
    code = "store-damaged"


class TooNew(StoreError):
    """The store, or a value in it, was written by a later version."""

    exit_code = 23
    code = "store-too-new"


class Locked(StoreError):
    """Another service uses the store."""

    exit_code = 24
    code = "store-locked"


class Full(StoreError):
    """The disk has no room."""

    exit_code = 25
    code = "store-full"


class ReadOnly(StoreError):
    """The file, its folder or its file system cannot be written."""

    exit_code = 26
    code = "store-read-only"


class StoreFailed(StoreError):
    """The disk does not do what it is told. Whether the last change is on it is not known."""

    exit_code = 27
    code = "store-failed"


class ConnectionLost(StoreFailed):
    """A database was not reached, or hung up. It is asked again before long."""


class Conflict(StoreError):
    """What was asked does not go with what is in the store."""

    exit_code = 28
    code = "store-conflict"


class TooMuch(StoreError):
    """A value is larger than the store takes."""

    exit_code = 29
    code = "store-too-much"


class NotLeader(StoreError):
    """Another head leads, or this one cannot show that it does."""

    exit_code = 30
    code = "store-not-leader"


_BY_RESULT: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: (Full, "its disk has no room: free some and try again"),
    sqlite3.SQLITE_READONLY: (ReadOnly, "it cannot be written: see who owns it, its folder and its mount"),
    sqlite3.SQLITE_PERM: (ReadOnly, "it cannot be written: see who owns it, its folder and its mount"),
    sqlite3.SQLITE_CORRUPT: (Damaged, "it is damaged: stop the service and put a backup back"),
    sqlite3.SQLITE_NOTADB: (Damaged, "it is not a store: stop the service and put a backup back"),
    sqlite3.SQLITE_BUSY: (Locked, "another process writes to it: end that process and try again"),
    sqlite3.SQLITE_LOCKED: (Locked, "another process writes to it: end that process and try again"),
    sqlite3.SQLITE_IOERR: (StoreFailed, "its disk fails: see the kernel's log, then restart the service"),
    sqlite3.SQLITE_CANTOPEN: (StoreFailed, "it cannot be opened: see who owns it and its folder"),
    sqlite3.SQLITE_CONSTRAINT: (Conflict, "this contradicts what is in it"),
    sqlite3.SQLITE_TOOBIG: (TooMuch, "a value is larger than it takes"),
}


def of_sqlite(error: sqlite3.Error, path: Path) -> StoreError:
    """What an error of SQLite's means. Its own text is at the end."""
    result = getattr(error, "sqlite_errorcode", None)
    kind, text = StoreError, "it did not do what it was asked"
    if result is not None:
        # The low byte is the kind; the rest says more about it.
        kind, text = _BY_RESULT.get(result & 0xFF, (kind, text))
    return kind(f"store {path}: {text} (SQLite: {error})")


def of_system(error: OSError, path: Path) -> StoreError:
    """What an error of the operating system's means."""
    kind: type[StoreError] = StoreFailed
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        kind = Full
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        kind = ReadOnly
    elif error.errno == errno.ENOENT:
        kind = StoreMissing
    return kind(f"store {path}: {error.strerror or error}; see who owns it, its folder and its disk")


def every_error() -> list[type[StoreError]]:
    """All classes, the base first, in the order of their exit codes."""
    return sorted([StoreError, *StoreError.__subclasses__()], key=lambda each: each.exit_code)
