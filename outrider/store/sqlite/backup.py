"""Copies of a store: made while it is in use, checked, and put back."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from outrider.store.errors import Conflict, Damaged, Full, ReadOnly, StoreMissing, of_sqlite, of_system
from outrider.store.sqlite import schema
from outrider.store.sqlite.database import Lock, check_whole, resolved
from outrider.store.sqlite.migrations import version_of


def back_up(store: Path, target: Path) -> None:
    """Copy a store as it is at one instant, even while it is in use. May be called from any thread.

    The copy is checked before it gets its name, so that what is called `target` is whole.
    """
    draft = _draft(target)
    if target.exists():
        raise Conflict(f"backup {target}: there is one already; it is not overwritten")
    if not store.exists():
        raise StoreMissing(f"store {store}: there is none")
    with _named_errors(store, target):
        _make_draft(draft)
        try:
            with closing(_read_only(store)) as source, closing(sqlite3.connect(draft)) as copy:
                source.backup(copy)
                # Without a log beside it, so that it is one file.
                copy.execute(schema.ONE_FILE)
            verify(draft)
            _sync(draft)
            _name(draft, target)
            _sync(target.parent)
        finally:
            draft.unlink(missing_ok=True)


def verify(path: Path) -> int:
    """Read a store or a copy through; its schema's version. Raises what is wrong with it."""
    if not path.exists():
        raise StoreMissing(f"store {path}: there is none")
    with _named_errors(path, path), closing(_read_only(path)) as connection:
        check_whole(connection, path, schema.CHECK_WHOLLY)
        version = version_of(connection, path)
        if not version:
            raise Damaged(f"store {path}: it is empty; name the right file")
        broken = connection.execute(schema.BROKEN_REFERENCES).fetchone()
        if broken is not None:
            raise Damaged(f"store {path}: a row of {broken[0]} names one of {broken[2]} that is not there")
        return version


def put_back(backup: Path, store: Path, now_s: int) -> list[Path]:
    """Let a copy be the store; the files that were there before, under their new names.

    No service may use the store. What was there is kept: it may hold later promises.
    """
    verify(backup)
    store = resolved(store)
    lock = Lock(store)
    draft, is_ours = _draft(store), False
    try:
        with _named_errors(backup, store):
            _make_draft(draft)
            is_ours = True
            shutil.copyfile(backup, draft, follow_symlinks=True)
            verify(draft)
            _sync(draft)
            if store.exists():
                lock.take_file()
            # From here on there is no store until the last step, and no service makes one in silence.
            moved = _set_aside(store, now_s)
            draft.rename(store)
            _sync(store.parent)
            lock.write("closed")
    finally:
        if is_ours:
            draft.unlink(missing_ok=True)
        lock.release()
    return moved


def _set_aside(store: Path, now_s: int) -> list[Path]:
    """A log that stayed beside another file would be read into it."""
    pairs = [
        (store.with_name(store.name + ending), store.with_name(f"{store.name}.before-{now_s}{ending}"))
        for ending in ("", "-wal", "-shm")
    ]
    taken = [aside for _, aside in pairs if aside.exists()]
    if taken:
        raise Conflict(f"{taken[0]} exists already: move it away")
    moved: list[Path] = []
    for path, aside in pairs:
        if path.exists():
            path.rename(aside)
            moved.append(aside)
    _sync(store.parent)
    return moved


def _draft(path: Path) -> Path:
    return path.with_name(path.name + ".draft")


def _make_draft(draft: Path) -> None:
    """What lies there already is somebody's, even if that is a copy that was cut off."""
    try:
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError as error:
        raise Conflict(
            f"{draft} is in the way: if no copy is being made now, one was cut off; remove the file"
        ) from error


def _name(draft: Path, target: Path) -> None:
    """Give a copy its name, if nobody has taken that meanwhile."""
    try:
        os.link(draft, target)
    except FileExistsError as error:
        raise Conflict(f"backup {target}: there is one already; it is not overwritten") from error
    except OSError:
        # A file system without hard links.
        draft.rename(target)


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def _named_errors(store: Path, target: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        found = of_sqlite(error, store)
        if isinstance(found, (Full, ReadOnly)):
            # A store is only read here: it is the copy that there is no room for.
            found = of_sqlite(error, target)
        raise found from error
    except OSError as error:
        raise of_system(error, target) from error
