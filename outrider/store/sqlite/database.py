"""One SQLite file in the hands of one process: opened, checked, locked, and changed as a whole.

Beside the file stands `FILE.lock`. Who holds its lock is the service; what stands in it says
whether the last one closed the store. The write-ahead log of one that did not is part of the
store: without it the last promises are gone, and that is noticed.

Links to the file are followed once, at the beginning, so that lock and log are always beside the file
itself; and the file is locked, too, whatever way leads to it. One that has a second name of its own
(a hard link, a mount of the file alone) is refused: what is beside that name would be another log.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from outrider.store.errors import (
    Conflict,
    Damaged,
    Locked,
    ReadOnly,
    StoreError,
    StoreFailed,
    StoreMissing,
    TooMuch,
    of_sqlite,
    of_system,
)
from outrider.store.sql import statements as sql
from outrider.store.sql.tables import Check, Numbered, Row, Tables
from outrider.store.sqlite import schema
from outrider.store.sqlite.migrations import migrate, version_of

MOST_VALUE_BYTES = 16 << 20
WAIT_S = 2.0
"""How long another program that looks into the file may hold up a transaction."""


class Lock:
    """The right to be the one service of a store. The kernel gives it back when the process dies."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".lock")
        self._store = path
        self._store_file: int | None = None
        try:
            # Never unlinked: two processes could otherwise hold the locks of two files.
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise of_system(error, path) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 64, 0).decode("ascii", "replace").partition(" ")[2].strip()
            os.close(self._file)
            raise Locked(
                f"store {path}: process {holder or 'unknown'} uses it; there can be only one service"
            ) from error

    def take_file(self) -> None:
        """Lock the store's file itself, which is there by now. Raises Locked or Conflict.

        That file may be closed only after SQLite has closed it: the kernel gives up all of a process's
        locks of one kind with the first descriptor that is closed, SQLite's own ones included.
        """
        path = self._store
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise of_system(error, path) from error
        self._store_file = file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Locked(
                f"store {path}: another service uses the same file under another name; there can be only one"
            ) from error
        if (count := os.fstat(file).st_nlink) > 1:
            raise Conflict(
                f"store {path}: the file has {count} names (hard links), and its log is beside one of "
                "them only: remove the other names (find -samefile), or use a symbolic link"
            )
        if _is_mounted(path):
            raise Conflict(
                f"store {path}: the file alone is a mount, and its log is beside another name of it: mount "
                "the folder instead"
            )

    @property
    def was_left_open(self) -> bool:
        """Whether the last one that held it did not close the store."""
        return os.pread(self._file, 4, 0) == b"open"

    def write(self, word: str) -> None:
        # One write of always the same length, so that it is never half there.
        os.pwrite(self._file, f"{word} {os.getpid()}".ljust(31).encode("ascii") + b"\n", 0)
        os.fsync(self._file)

    def release(self) -> None:
        if self._store_file is not None:
            os.close(self._store_file)
        os.close(self._file)


class Database(Tables):
    """The file. Used by the thread that opened it."""

    def __init__(self, path: Path, now_s: int, *, is_new: bool = False, accepts_loss: bool = False) -> None:
        self.path = path = resolved(path)
        self._is_broken = False
        self._had_log = False
        self._sync = ""
        if not is_new and not path.exists():
            raise StoreMissing(f"store {path}: there is none; make one, or put a backup back")
        self._lock = Lock(path)
        try:
            if is_new:
                _touch(path)
            self._lock.take_file()
            if not is_new:
                self._look(accepts_loss=accepts_loss)
            self.connection = _connect(path)
        except BaseException:
            self._lock.release()
            raise
        try:
            self._set_up(now_s, is_new=is_new)
        except BaseException:
            self.connection.close()
            self._note_written_log()
            self._lock.release()
            raise
        self._identity = self._identity_now

    @property
    def place(self) -> str:
        return str(self.path)

    @property
    def is_broken(self) -> bool:
        """Whether the disk has failed, so that only opening it again shows what is on it."""
        return self._is_broken

    def close(self) -> None:
        """Write the log into the file and give the store back."""
        try:
            is_in_place = self._identity_now == self._identity
            self.connection.close()
            # A log that is gone by now is in the file: SQLite removes no other.
            if is_in_place and not (self._is_broken and self._log.exists()):
                self._lock.write("closed")
        finally:
            self._lock.release()

    @contextmanager
    def transaction(self, *, is_safe: bool) -> Iterator[None]:
        """All or nothing; on the disk before it is over if it `is_safe`, else soon after."""
        if self._is_broken:
            raise StoreFailed(
                f"store {self.path}: its disk failed before; restart the service to see what is on it"
            )
        if self.connection.in_transaction:
            raise ValueError("one decision, one transaction: they cannot be nested")
        self._check_place()
        with self._named_errors():
            self._synchronise(schema.SYNC_ALWAYS if is_safe else schema.SYNC_LATER)
            self.connection.execute(schema.BEGIN)
        try:
            yield
        except BaseException:
            self._roll_back()
            raise
        try:
            with self._named_errors():
                self.connection.execute(schema.COMMIT)
        except StoreError as error:
            # After a failed sync nobody knows what will be found on the disk.
            self._is_broken = isinstance(error, StoreFailed)
            self._roll_back()
            raise

    def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        """Carry out a statement; how many rows it changed."""
        self._check_transaction()
        with self._named_errors():
            return self.connection.execute(statement, values).rowcount

    def send(
        self, statement: str, values: Sequence[object] = (), otherwise: StoreError | None = None
    ) -> None:
        if not self.execute(statement, values) and otherwise is not None:
            raise otherwise

    def expect(self, statement: str, values: Sequence[object], check: Check) -> None:
        check(self.row(statement, values))

    def add(self, table: Numbered, statement: str, values: Sequence[object]) -> int:
        self._check_transaction()
        with self._named_errors():
            # Without a number SQLite gives the next one.
            number = self.connection.execute(statement, (None, *values)).lastrowid
        assert number is not None
        return number

    def last_number(self, table: Numbered) -> int:
        row = self.row(schema.LAST_NUMBER, (table,))
        number = 0 if row is None else row[0]
        assert isinstance(number, int)
        return number

    def skip_numbers(self, table: Numbered, last: int) -> None:
        if self.execute(schema.SKIP_NUMBERS, (last, table)) == 0:
            self.execute(schema.SKIP_FIRST_NUMBERS, (last, table))

    def rows(self, statement: str, values: Sequence[object] = ()) -> Iterator[Row]:
        with self._named_errors():
            yield from self.connection.execute(statement, values)

    def row(self, statement: str, values: Sequence[object] = ()) -> Row | None:
        return next(self.rows(statement, values), None)

    @property
    def _log(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    def _note_written_log(self) -> None:
        """A log that was there before and is gone now is in the file: SQLite removes no other.

        A start that fails half-way, for want of room for instance, must not let the next one
        believe that somebody has taken it away.
        """
        if self._had_log and not self._log.exists():
            with suppress(OSError):
                self._lock.write("closed")

    def _check_place(self) -> None:
        """What is written to a file that was moved or removed nobody would find after a restart."""
        if self._identity_now != self._identity:
            raise StoreMissing(
                f"store {self.path}: it or its log was moved, removed or replaced while the service uses it; "
                "put both back, or stop the service and put a backup back"
            )

    @property
    def _identity_now(self) -> tuple[object, object]:
        """Which files are there."""
        return _identity_of(self.path), _identity_of(self._log)

    def _look(self, *, accepts_loss: bool) -> None:
        """Look at the files before SQLite does, which would make anew what is missing."""
        log = self._log
        self._had_log = log.exists()
        if not os.access(self.path, os.W_OK):
            raise ReadOnly(f"store {self.path}: it cannot be written: see who owns it and its mount")
        if not accepts_loss and self._lock.was_left_open and not log.exists():
            raise Damaged(
                f"store {self.path}: the last service did not close it, and its log {log.name} is gone: "
                "promises may be missing. Put the log or a backup back, or open it accepting the loss"
            )

    def _set_up(self, now_s: int, *, is_new: bool) -> None:
        with self._named_errors():
            version = version_of(self.connection, self.path)
            if is_new and version:
                raise Conflict(f"store {self.path}: there is one already; it is not overwritten")
            if not is_new and not version:
                raise Damaged(
                    f"store {self.path}: there is nothing in it; put a backup back, or make it again"
                )
            self.connection.execute(schema.KEEP_REFERENCES)
            self.connection.execute(schema.WRITE_AHEAD)
            self.connection.execute(schema.BOUND_LOG)
            self._synchronise(schema.SYNC_ALWAYS)
            check_whole(self.connection, self.path, schema.CHECK_QUICKLY)
            migrate(self.connection, self.path, now_s)
            # Writes the log, so that its absence means something from now on.
            self.connection.execute(sql.SET_SETTING, ("opened_s", str(now_s)))
        try:
            self._lock.write("open")
        except OSError as error:
            raise of_system(error, self.path) from error

    def _check_transaction(self) -> None:
        # SQLite ends a transaction by itself when the disk is full: what came after would be half.
        if not self.connection.in_transaction:
            raise ValueError("the transaction is over: nothing can be added to it")

    def _synchronise(self, statement: str) -> None:
        if self._sync != statement:
            self.connection.execute(statement)
            self._sync = statement

    def _roll_back(self) -> None:
        # SQLite may have done so by itself.
        if self.connection.in_transaction:
            with self._named_errors():
                self.connection.execute(schema.ROLLBACK)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise of_sqlite(error, self.path) from error
        except (OverflowError, UnicodeEncodeError) as error:
            raise TooMuch(f"store {self.path}: a value cannot be written: {error}") from error


def check_whole(connection: sqlite3.Connection, path: Path, statement: str) -> None:
    """Let SQLite look for damage."""
    found = connection.execute(statement).fetchone()[0]
    if found != "ok":
        raise Damaged(
            f"store {path}: it is damaged: stop the service and put a backup back (SQLite: {found})"
        )


def resolved(path: Path) -> Path:
    """Where the file itself is, or would be made."""
    return Path(os.path.realpath(path))


def _is_mounted(path: Path) -> bool:
    """Whether something is mounted on this very file."""
    try:
        text = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return False
    # The kernel writes blanks and backslashes in octal.
    name = os.fsencode(path).replace(b"\\", rb"\134").replace(b" ", rb"\040").replace(b"\t", rb"\011")
    return any(line.split(b" ")[4:5] == [name] for line in text.splitlines())


def _identity_of(path: Path) -> tuple[int, int] | None:
    """Which file is there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _touch(path: Path) -> None:
    """An empty file that nobody else can read, if there is none."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise of_system(error, path) from error


def _connect(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
    except sqlite3.Error as error:
        raise of_sqlite(error, path) from error
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)
    return connection
