"""Connections to a PostgreSQL server, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8Dumper

from outrider.store.errors import (
    Conflict,
    ConnectionLost,
    Damaged,
    Full,
    NotLeader,
    ReadOnly,
    StoreError,
    StoreFailed,
    StoreMissing,
    TooMuch,
)
from outrider.store.postgresql import schema

CONNECT_S = 3
# A server that is cut off is given up in seconds, or users would wait for as long as TCP does.
PATIENCE: dict[str, str | int] = {
    "connect_timeout": CONNECT_S,
    "keepalives": 1,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 5_000,
}
BOUNDS = "-c idle_in_transaction_session_timeout=5000 -c lock_timeout=3000"
"""A transaction whose service stands still is rolled back, so that nobody waits for its rows."""

_KINDS: tuple[tuple[type[psycopg.Error], type[StoreError], str], ...] = (
    (psycopg.errors.NotNullViolation, NotLeader, "another head leads now: nothing was written"),
    (psycopg.errors.DiskFull, Full, "its disk has no room: free some and try again"),
    (psycopg.errors.OutOfMemory, Full, "the server has no memory left"),
    (psycopg.errors.ReadOnlySqlTransaction, ReadOnly, "the server takes no writes: is it a replica?"),
    (psycopg.errors.InsufficientPrivilege, ReadOnly, "its role may not do this: see who owns the tables"),
    (psycopg.errors.UndefinedTable, StoreMissing, "there is none; make one with outriderd --init"),
    (psycopg.errors.DataCorrupted, Damaged, "it is damaged: see the server's log"),
    (psycopg.errors.IndexCorrupted, Damaged, "it is damaged: see the server's log"),
    (psycopg.IntegrityError, Conflict, "this contradicts what is in it"),
    (psycopg.DataError, TooMuch, "a value cannot be written"),
    (
        psycopg.OperationalError,
        ConnectionLost,
        "the server was not reached or failed; whether the last change is on its disk is not known",
    ),
)


def shown(place: str) -> str:
    """A database's address without its password."""
    fields = conninfo_to_dict(place)
    host = fields.get("host") or fields.get("hostaddr") or "localhost"
    port = f":{fields['port']}" if fields.get("port") else ""
    return f"postgresql://{host}{port}/{fields.get('dbname') or fields.get('user') or ''}"


def connect(place: str, purpose: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection that commits synchronously. `purpose` tells it from others of this program."""
    with named_errors(place):
        given = conninfo_to_dict(place)
        options = f"{given.get('options') or ''} {BOUNDS}"
        text = make_conninfo(
            place,
            **{name: value for name, value in PATIENCE.items() if name not in given},
            application_name=purpose,
            options=options.strip(),
        )
        connection = psycopg.connect(text, autocommit=True, prepare_threshold=1)
        # Whatever its size a number has one type, so that a statement is prepared once.
        connection.adapters.register_dumper(int, Int8Dumper)
        try:
            connection.execute(schema.SYNC_ALWAYS)
            _check_server(connection, place)
        except BaseException:
            connection.close()
            raise
    return connection


def _check_server(connection: psycopg.Connection[tuple[Any, ...]], place: str) -> None:
    row = connection.execute(schema.SETTINGS).fetchone()
    assert row is not None
    name, encoding, fsync, pages, activities = row
    if name is None:
        raise StoreMissing(f"store {shown(place)}: none of the schemas of its search_path is there")
    if encoding != "UTF8":
        raise Damaged(f"store {shown(place)}: its encoding is {encoding}: make the database with UTF8")
    for setting, value in (("fsync", fsync), ("full_page_writes", pages), ("track_activities", activities)):
        if value != "on":
            raise StoreFailed(
                f"store {shown(place)}: the server's {setting} is {value}: promises could be lost; set it on"
            )


@contextmanager
def named_errors(place: str) -> Iterator[None]:
    """Errors of the database as those of a store."""
    try:
        yield
    except psycopg.Error as error:
        raise of_postgresql(error, place) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise TooMuch(f"store {shown(place)}: a value cannot be written: {error}") from error


def of_postgresql(error: psycopg.Error, place: str) -> StoreError:
    """What an error of PostgreSQL's means. Its own text is at the end."""
    kind, text = next(
        ((kind, text) for theirs, kind, text in _KINDS if isinstance(error, theirs)),
        (StoreError, "it did not do what it was asked"),
    )
    own = " ".join(str(error).split())
    return kind(f"store {shown(place)}: {text} (PostgreSQL: {own})")


@lru_cache(maxsize=1_024)
def statement_of(text: str) -> bytes:
    """A statement of the store's in the form that psycopg takes: values have their places as `%s`."""
    return text.replace("%", "%%").replace("?", "%s").encode()
