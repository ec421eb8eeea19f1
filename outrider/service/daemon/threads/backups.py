"""Copies of the store: one when it is asked for, and one every now and then, of which some stay.

A copy is made beside the running service, checked, and only then gets its name. How one is put
back is told in docs/howto/operations.md.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from cachemgr.base.clock import WallClock
from outrider.service.answers.reply import Trouble
from outrider.service.front import BackedUp, NotDone
from outrider.service.meter import Log, Meter
from outrider.store.errors import Conflict, StoreError, of_sqlite
from outrider.store.sqlite.backup import back_up

NAME = re.compile(r"outriderd-(\d{8}T\d{6}Z)\.sqlite")
_FORM = "%Y%m%dT%H%M%SZ"
SUFFIXES = (".sqlite", ".db")
RETRY_S = 300
"""How long after a copy that failed the next is tried."""
_COUNT = "SELECT count(*) FROM reservations"


def copy_store(store: Path, target: Path) -> BackedUp:
    """A copy with that name. Raises StoreError."""
    back_up(store, target)
    try:
        with closing(sqlite3.connect(f"{target.absolute().as_uri()}?mode=ro", uri=True)) as copy:
            reservations = int(copy.execute(_COUNT).fetchone()[0])
    except sqlite3.Error as error:
        raise of_sqlite(error, target) from error
    return BackedUp(path=str(target), reservations=reservations)


def copy_asked_for(store: Path, text: str) -> BackedUp:
    """The copy that an administrator asked for. Raises NotDone."""
    target = Path(text)
    if not target.is_absolute() or ".." in target.parts or "\x00" in text:
        words = f"backup {text!r}: write a full path, without .., of a file that is not there yet"
        raise NotDone(Trouble(code="invalid", message=words))
    if target.suffix not in SUFFIXES:
        # A service of root writes anywhere: no copy may pass for a file that others read and obey.
        words = f"backup {target}: let its name end with {' or '.join(SUFFIXES)}"
        raise NotDone(Trouble(code="invalid", message=words))
    if not target.parent.is_dir():
        words = f"backup {target}: its folder {target.parent} is not there, or the service may not see it"
        raise NotDone(Trouble(code="invalid", message=words))
    try:
        return copy_store(store, target)
    except Conflict as error:
        raise NotDone(Trouble(code="conflict", message=str(error))) from error
    except StoreError as error:
        raise NotDone(Trouble(code="unavailable", message=str(error))) from error


class Backups:
    """Copies into one folder, each named for its time. `tend` is called by one thread at a time."""

    def __init__(
        self,
        store: Path,
        folder: Path,
        *,
        every_s: int,
        keep: int,
        clock: WallClock,
        log: Log,
        meter: Meter,
        copy: Callable[[Path, Path], BackedUp] = copy_store,
    ) -> None:
        self._store = store
        self._folder = folder
        self._every_s = every_s
        self._keep = keep
        self._clock = clock
        self._log = log
        self._meter = meter
        self._copy = copy
        self._due_s = 0
        last_s = max((made_s for made_s, _ in self._copies()), default=0)
        self._note(last_s)

    @property
    def is_due(self) -> bool:
        left_s = self._due_s - self._clock.now_s()
        # Never later than the interval says: the last copy may be of a clock that was ahead.
        return left_s <= 0 or left_s > self._every_s

    def tend(self) -> None:
        """Make a copy if it is time, and remove those that are too many. Raises nothing."""
        if not self.is_due:
            return
        now_s = self._clock.now_s()
        target = self._folder / f"outriderd-{datetime.fromtimestamp(now_s, UTC).strftime(_FORM)}.sqlite"
        try:
            made = self._copy(self._store, target)
            self._remove_oldest()
        except (StoreError, OSError) as error:
            self._due_s = now_s + min(RETRY_S, self._every_s)
            self._meter.count("outrider_backups_total", "failed")
            self._log.error("store not copied", target=target, error=error)
            return
        self._note(now_s)
        self._meter.count("outrider_backups_total", "done")
        self._log.info("store copied", target=target, reservations=made.reservations)

    def _note(self, last_s: int) -> None:
        self._due_s = last_s + self._every_s
        self._meter.set("outrider_last_backup_timestamp_seconds", last_s)

    def _remove_oldest(self) -> None:
        """Only what has a name of ours, and never the newest. What claims to be of a later time was made
        by a clock that was wrong: it goes first."""
        now_s = self._clock.now_s()
        copies = sorted(self._copies(), key=lambda copy: (copy[0] <= now_s, copy), reverse=True)
        for _, path in copies[self._keep :]:
            path.unlink(missing_ok=True)

    def _copies(self) -> list[tuple[int, Path]]:
        """What copies there are, and of when. A folder that cannot be read has none."""
        found = []
        try:
            names = [each.name for each in self._folder.iterdir()]
        except OSError:
            return []
        for name in names:
            if match := NAME.fullmatch(name):
                made = datetime.strptime(match[1], _FORM).replace(tzinfo=UTC)
                found.append((int(made.timestamp()), self._folder / name))
        return found
