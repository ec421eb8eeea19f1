"""How a service comes by its store: the file that is its own, or a database whose lead it has to win."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from cachemgr.base.clock import SystemClock
from outrider.service.daemon.configuration.model import Config
from outrider.service.daemon.errors import MissingLibraryError, ServiceInputError
from outrider.service.daemon.log import TracingLog
from outrider.service.daemon.sockets import Sockets
from outrider.store.errors import Conflict, StoreMissing
from outrider.store.place import is_database
from outrider.store.sql.reading import SqlStore
from outrider.store.sqlite.database import resolved
from outrider.store.sqlite.store import SqliteStore


class StoreKeeper(Protocol):
    """What a service that may serve knows of its store."""

    @property
    def head(self) -> str:
        """What this head is called; nothing if there is only one."""

    @property
    def since_s(self) -> int:
        """Since when it leads."""

    @property
    def shown(self) -> str:
        """What the store is called."""

    @property
    def path(self) -> Path | None:
        """The file, if it is one."""

    def open(self, now_s: int) -> SqlStore:
        """The store. Raises StoreError."""

    def is_sure(self) -> bool:
        """Whether nobody else can be the service now; waits some seconds to be sure."""

    def check(self) -> None:
        """Raises NotLeader once another head leads."""


class FileKeeper:
    """A file has one service: the lock beside it says so."""

    head = ""
    since_s = 0

    def __init__(self, path: Path, *, accepts_loss: bool) -> None:
        # Links are followed once: one that is turned elsewhere later leads to no other store.
        self.path: Path | None = resolved(path)
        self._file, self.shown = self.path, str(self.path)
        self._accepts_loss = accepts_loss
        if not self._file.exists():
            # What is not there need not be opened: the nodes' side is not started for nothing.
            raise StoreMissing(
                f"store {self.path}: there is none. On a new site make one: outriderd --init. If there was "
                "one, put a backup back (see docs/howto/operations.md): a new one would forget every promise"
            )

    def open(self, now_s: int) -> SqlStore:
        return SqliteStore.open(self._file, now_s, accepts_loss=self._accepts_loss)

    def is_sure(self) -> bool:
        return True

    def check(self) -> None:
        """Nobody can take it away."""


@contextmanager
def leading(
    config: Config,
    sockets: Sockets,
    stop: threading.Event,
    log: TracingLog,
    environment: Mapping[str, str],
    *,
    accepts_loss: bool,
) -> Iterator[StoreKeeper | None]:
    """Once this may be the service; None if it was told to stop before."""
    if not is_database(config.store_path):
        yield FileKeeper(Path(config.store_path), accepts_loss=accepts_loss)
        return
    try:
        from outrider.service.daemon.lead.winning import take_lead
    except ImportError as error:
        raise _library_is_missing(error) from error
    with take_lead(config, head_of(config), sockets, stop, log, environment) as keeper:
        yield keeper


def create(place: str, now_s: int, *, is_needed: bool) -> None:
    """An empty store where there has never been one. Raises Conflict, if one `is_needed` and there is one."""
    if not is_database(place):
        SqliteStore.create(Path(place), now_s).close()
        return
    try:
        from outrider.store.postgresql.store import PostgresStore
    except ImportError as error:
        raise _library_is_missing(error) from error
    try:
        PostgresStore.create(place, now_s).close()
    except Conflict:
        if is_needed:
            raise


def head_of(config: Config) -> str:
    """What this head is called."""
    return config.head.name or socket.gethostname()


def _library_is_missing(error: ImportError) -> MissingLibraryError:
    return MissingLibraryError(
        f"a store in PostgreSQL needs {error.name}: in a clone of Outrider, "
        "pip install '.[service,postgresql]'"
    )


def create_store(config: Config, *, only_if_empty: bool = False) -> None:
    """An empty store where there has never been one. Raises StoreError or ServiceInputError."""
    state = Path(config.state)
    try:
        state.mkdir(mode=0o711, parents=True, exist_ok=True)
        if only_if_empty and any(each.name != "lost+found" for each in state.iterdir()):
            return
    except OSError as error:
        raise ServiceInputError(f"the state folder {state} cannot be used ({error.strerror})") from error
    create(config.store_path, SystemClock().now_s(), is_needed=not only_if_empty)
