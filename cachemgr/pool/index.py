"""A cache of what lies in the pool's folders, for what needs all of them at once.

Looking an image up needs no index: its digest is its path. Sums, lists and evictions do,
in a pool of 100,000 images. The index may be deleted at any time; it is believed only if
the machine has not been started anew since, and nobody died while changing the pool.
Hence nothing here is synced.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager, suppress

from cachemgr.pool.policies import PolicyEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Protocol

    class Index(Protocol):
        """Sizes and uses of everything that takes bytes of the pool."""

        @property
        def is_open(self) -> bool: ...

        def open(self, boot_id: str) -> bool:
            """Whether what it holds can be believed; otherwise `refill` comes next."""

        def refill(self, boot_id: str, entries: Iterable[PolicyEntry], taken: dict[str, int]) -> None: ...

        def put(self, entry: PolicyEntry) -> None: ...

        def drop(self, key: str) -> None: ...

        def touch(self, key: str, now_s: int) -> None: ...

        def take(self, what: str, size_bytes: int) -> None:
            """Count bytes that are no image: an ingest's or an instance's."""

        def give_back(self, what: str) -> None: ...

        def taken(self) -> dict[str, int]: ...

        def used_bytes(self) -> int: ...

        def entries(self) -> list[PolicyEntry]: ...

        def close(self) -> None: ...


SCHEMA = (
    "CREATE TABLE about (boot_id TEXT NOT NULL)",
    "CREATE TABLE image (key TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL, added_s INTEGER NOT NULL,"
    " uses INTEGER NOT NULL, last_use_s INTEGER NOT NULL, expires_s INTEGER) WITHOUT ROWID",
    "CREATE TABLE taken (what TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE total (bytes INTEGER NOT NULL)",
    *(
        f"CREATE TRIGGER {table}_{event} AFTER {event} ON {table}"
        f" BEGIN UPDATE total SET bytes = bytes {sign}.size_bytes; END"
        for table in ("image", "taken")
        for event, sign in (("insert", "+ new"), ("delete", "- old"))
    ),
)
LAYOUT = 1


class IndexFailed(OSError):
    """SQLite could not: mapped like any other failure of the disk."""


# Every transaction but the one that makes an index anew takes milliseconds.
BUSY_S = 5
PUT = "INSERT INTO image VALUES (?, ?, ?, ?, ?, ?)"
DROP = "DELETE FROM image WHERE key = ?"
TAKE = "INSERT INTO taken VALUES (?, ?)"
GIVE_BACK = "DELETE FROM taken WHERE what = ?"


class SqliteIndex:
    """The index in one SQLite file, shared by the pool's processes and a process' threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._base: sqlite3.Connection | None = None
        self._inode = 0
        self._guard = threading.RLock()

    @property
    def is_open(self) -> bool:
        return self._base is not None

    def open(self, boot_id: str) -> bool:
        """Called with the pool's lock held. Damage of any kind is answered with False."""
        with self._guard:
            if self._base is None or self._inode_there() != self._inode:
                self._connect()
            try:
                layout = self._do("PRAGMA user_version").fetchone()[0]
                return bool(
                    layout == LAYOUT and self._do("SELECT boot_id FROM about").fetchone() == (boot_id,)
                )
            except sqlite3.DatabaseError:
                return False

    def refill(self, boot_id: str, entries: Iterable[PolicyEntry], taken: dict[str, int]) -> None:
        """Make the index anew; called with the pool's lock held.

        As a new file: what others have open is never changed under them, and they see by
        the file's inode that there is another one.
        """
        with self._guard:
            self.close()
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(self._path + suffix)
            self._connect()
            with self._change() as do:
                for statement in SCHEMA:
                    do(statement)
                do("INSERT INTO total VALUES (0)")
                do(f"PRAGMA user_version = {LAYOUT}")
                for entry in entries:
                    do(PUT, _row(entry))
                for what, size_bytes in sorted(taken.items()):
                    do(TAKE, (what, size_bytes))
                do("INSERT INTO about VALUES (?)", (boot_id,))

    def put(self, entry: PolicyEntry) -> None:
        with self._guard, self._change() as do:
            do(DROP, (entry.key,))
            do(PUT, _row(entry))

    def drop(self, key: str) -> None:
        with self._guard, self._change() as do:
            do(DROP, (key,))

    def touch(self, key: str, now_s: int) -> None:
        with self._guard, self._change() as do:
            do("UPDATE image SET uses = uses + 1, last_use_s = ? WHERE key = ?", (now_s, key))

    def take(self, what: str, size_bytes: int) -> None:
        with self._guard, self._change() as do:
            do(GIVE_BACK, (what,))
            do(TAKE, (what, size_bytes))

    def give_back(self, what: str) -> None:
        with self._guard, self._change() as do:
            do(GIVE_BACK, (what,))

    def taken(self) -> dict[str, int]:
        with self._guard:
            return dict(self._rows("SELECT what, size_bytes FROM taken ORDER BY what"))

    def used_bytes(self) -> int:
        with self._guard:
            return int(self._rows("SELECT bytes FROM total")[0][0])

    def entries(self) -> list[PolicyEntry]:
        with self._guard:
            rows = self._rows("SELECT * FROM image ORDER BY key")
        return [
            PolicyEntry(
                key=key, size_bytes=size, added_s=added, uses=uses, last_use_s=last, expires_s=expires
            )
            for key, size, added, uses, last, expires in rows
        ]

    def close(self) -> None:
        with self._guard:
            if self._base is not None:
                self._base.close()
                self._base = None

    def _connect(self) -> None:
        self.close()
        try:
            self._base = self._connected()
        except sqlite3.DatabaseError:
            # Not a database any more; the caller is going to refill it.
            os.unlink(self._path)
            try:
                self._base = self._connected()
            except sqlite3.DatabaseError as error:
                raise IndexFailed(f"{self._path}: {error}") from error
        self._inode = self._inode_there()

    def _connected(self) -> sqlite3.Connection:
        # SQLite gives its other files the mode of this one.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        base = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            base.execute("PRAGMA journal_mode = WAL")
            base.execute("PRAGMA synchronous = OFF")
        except sqlite3.DatabaseError:
            base.close()
            raise
        return base

    def _inode_there(self) -> int:
        try:
            return os.stat(self._path).st_ino
        except FileNotFoundError:
            return -1

    def _do(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if self._base is None:
            raise IndexFailed(f"{self._path} is not open")
        return self._base.execute(statement, values)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return self._do(query).fetchall()
        except sqlite3.Error as error:
            raise IndexFailed(f"{self._path}: {error}") from error

    @contextmanager
    def _change(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """One transaction, begun as a writer, so that it cannot fail half-way for a lock."""
        try:
            self._do("BEGIN IMMEDIATE")
            yield self._do
            self._do("COMMIT")
        except BaseException as error:
            if self._base is not None and self._base.in_transaction:
                self._base.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise IndexFailed(f"{self._path}: {error}") from error
            raise


def _row(entry: PolicyEntry) -> tuple[str, int, int, int, int, int | None]:
    return (entry.key, entry.size_bytes, entry.added_s, entry.uses, entry.last_use_s, entry.expires_s)
