"""The store in a PostgreSQL database."""

from __future__ import annotations

from typing import Self

from outrider.store.postgresql.tables import PostgresTables, create_tables
from outrider.store.sql.reading import SqlStore


class PostgresStore(SqlStore):
    """A store in a database that several heads share. It writes for as long as its epoch lasts."""

    @classmethod
    def create(cls, place: str, now_s: int) -> Self:
        """An empty store where there is none."""
        create_tables(place, now_s)
        return cls.open(place)

    @classmethod
    def open(cls, place: str, epoch: int | None = None) -> Self:
        """The store that is there; NotLeader if it has another epoch by now."""
        return cls(PostgresTables(place, epoch))
