"""The store in one SQLite file."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from outrider.store.sql.reading import SqlStore
from outrider.store.sqlite.database import Database


class SqliteStore(SqlStore):
    """A store in a file of its own, which this process has locked."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database

    @classmethod
    def create(cls, path: Path, now_s: int) -> Self:
        """An empty store where there is none."""
        return cls(Database(path, now_s, is_new=True))

    @classmethod
    def open(cls, path: Path, now_s: int, *, accepts_loss: bool = False) -> Self:
        """The store that is there, brought to this version.

        `accepts_loss` opens one whose log is gone: what was promised last may be missing.
        """
        return cls(Database(path, now_s, accepts_loss=accepts_loss))

    @property
    def path(self) -> Path:
        return self._database.path
