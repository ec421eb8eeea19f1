"""A store whose disk fails, and whose service dies in the middle of a transaction, when told so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from outrider.store.errors import Full, ReadOnly, StoreFailed
from outrider.store.records import Pruned
from outrider.store.sql.writes import SqlProgressWrites, SqlPromiseWrites
from outrider.store.sqlite.database import Database
from outrider.store.sqlite.store import SqliteStore
from outrider.store.store import MOST_ROWS


class Died(BaseException):
    """The service was killed at this very point."""


class DiskFault(Enum):
    """What becomes of one transaction."""

    FULL_BEFORE = "the disk is full when it begins"
    FULL = "the disk is full when it ends"
    READ_ONLY = "the disk has become read-only"
    FAILED_BEFORE = "the disk fails, and nothing is on it"
    FAILED_AFTER = "the disk fails, and all is on it"
    DIED_BEFORE = "the service dies before it is on the disk"
    DIED_AFTER = "the service dies when it is on the disk"


Fate = Callable[[], DiskFault | None]


class FailingStore(SqliteStore):
    """The real store, with a fate for each transaction."""

    def __init__(self, database: Database, fate: Fate) -> None:
        super().__init__(database)
        self._fate = fate
        self.transactions = 0
        self.is_failed = False

    @classmethod
    def at(cls, path: Path, now_s: int, fate: Fate, *, is_new: bool = False) -> FailingStore:
        return cls(Database(path, now_s, is_new=is_new), fate)

    @contextmanager
    def promise(self) -> Iterator[SqlPromiseWrites]:
        with self._fated(), super().promise() as promise:
            yield promise
            self._end_of_block()

    @contextmanager
    def progress(self) -> Iterator[SqlProgressWrites]:
        with self._fated(), super().progress() as progress:
            yield progress
            self._end_of_block()

    def prune(self, before_s: int, *, most: int = MOST_ROWS) -> Pruned:
        with self._fated():
            return super().prune(before_s, most=most)

    @contextmanager
    def _fated(self) -> Iterator[None]:
        if self.is_failed:
            raise StoreFailed("its disk failed before; restart the service")
        self.transactions += 1
        self._meets = self._fate()
        if self._meets is DiskFault.FULL_BEFORE:
            raise Full("its disk has no room")
        yield
        if self._meets is DiskFault.FAILED_AFTER:
            self.is_failed = True
            raise StoreFailed("its disk fails")
        if self._meets is DiskFault.DIED_AFTER:
            raise Died

    def _end_of_block(self) -> None:
        """All has been written, and nothing is on the disk yet."""
        if self._meets is DiskFault.FULL:
            raise Full("its disk has no room")
        if self._meets is DiskFault.READ_ONLY:
            raise ReadOnly("it cannot be written")
        if self._meets is DiskFault.FAILED_BEFORE:
            self.is_failed = True
            raise StoreFailed("its disk fails")
        if self._meets is DiskFault.DIED_BEFORE:
            raise Died
