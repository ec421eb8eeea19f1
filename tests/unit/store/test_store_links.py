"""One store by several names: links, folders that were moved, mounts. It is one store with one log, for
one service."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from outrider.store.errors import Conflict, Locked
from outrider.store.sqlite.backup import back_up, put_back
from outrider.store.sqlite.store import SqliteStore
from tests.daemons.kill.loopdisk import need, run
from tests.unit.store.samples import new_store, promise_all
from tests.unit.store.test_store_damage import in_child


def killed(path: Path) -> None:
    """A service that makes a promise in the store of that name and dies at once."""

    def promise_and_die() -> None:
        store = SqliteStore.create(path, 0)
        promise_all(store, "w1", 1)
        os._exit(0)

    in_child(promise_and_die)


def names(store: SqliteStore) -> list[str]:
    return [each.name for each in store.live_reservations()]


@pytest.fixture
def real(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk/real.sqlite"


@pytest.fixture
def link(tmp_path: Path, real: Path) -> Path:
    """Another name of the store, in another folder."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state/store.sqlite").symlink_to(real)
    return tmp_path / "state/store.sqlite"


@pytest.mark.parametrize("is_by_link_after", [True, False])
def test_log_of_a_killed_service_is_found_behind_a_link(
    link: Path, real: Path, is_by_link_after: bool
) -> None:
    killed(link)

    with SqliteStore.open(link if is_by_link_after else real, 1) as store:
        assert names(store) == ["w1"]
    assert sorted(each.name for each in link.parent.iterdir()) == ["store.sqlite"]
    assert (real.parent / "real.sqlite.lock").exists()


def test_link_to_a_link_in_a_folder_behind_a_link_is_the_same_store(
    tmp_path: Path, link: Path, real: Path
) -> None:
    killed(link)
    (tmp_path / "again").symlink_to(tmp_path / "state")
    (tmp_path / "last.sqlite").symlink_to("again/store.sqlite")

    with SqliteStore.open(tmp_path / "last.sqlite", 1) as store:
        assert names(store) == ["w1"]
        assert in_child(lambda: SqliteStore.open(real, 1)) == "Locked"


@pytest.mark.parametrize("is_by_link_first", [True, False])
def test_second_service_by_another_name_is_refused(link: Path, real: Path, is_by_link_first: bool) -> None:
    SqliteStore.create(link, 0).close()
    first, second = (link, real) if is_by_link_first else (real, link)

    with (
        SqliteStore.open(first, 1),
        pytest.raises(Locked, match=f"store {real}: process {os.getpid()} uses it"),
    ):
        SqliteStore.open(second, 1)


def test_hard_link_is_locked_while_it_is_used_and_refused_after(tmp_path: Path, real: Path) -> None:
    SqliteStore.create(real, 0).close()
    with SqliteStore.open(real, 1) as store:
        os.link(real, tmp_path / "other.sqlite")
        while_used = in_child(lambda: SqliteStore.open(tmp_path / "other.sqlite", 1))
        promise_all(store, "w1", 1)

    assert while_used == "Locked"
    for path in (real, tmp_path / "other.sqlite"):
        with pytest.raises(Conflict, match=r"the file has 2 names \(hard links\).*find -samefile"):
            SqliteStore.open(path, 2)
    (tmp_path / "other.sqlite").unlink()
    with SqliteStore.open(real, 3) as store:
        assert names(store) == ["w1"]


def test_folder_that_was_renamed_under_a_running_service_is_not_opened_by_another(real: Path) -> None:
    SqliteStore.create(real, 0).close()
    with SqliteStore.open(real, 1):
        moved = real.parent.with_name("moved")
        real.parent.rename(moved)
        found = in_child(lambda: SqliteStore.open(moved / real.name, 1))
        moved.rename(real.parent)

    assert found == "Locked"


def test_link_that_is_turned_elsewhere_does_not_take_a_running_service_along(
    tmp_path: Path, link: Path, real: Path
) -> None:
    SqliteStore.create(link, 0).close()
    SqliteStore.create(tmp_path / "other.sqlite", 0).close()
    with SqliteStore.open(link, 1) as store:
        link.unlink()
        link.symlink_to(tmp_path / "other.sqlite")
        promise_all(store, "w1", 1)
    with SqliteStore.open(real, 2) as store:
        there = names(store)
    with SqliteStore.open(link, 2) as store:
        elsewhere = names(store)

    assert (there, elsewhere) == (["w1"], [])


def test_folder_that_is_mounted_elsewhere_is_the_same_store(tmp_path: Path, real: Path) -> None:
    need("mount", "umount")
    killed(real)
    (tmp_path / "bound").mkdir()
    run("mount", "--bind", str(real.parent), str(tmp_path / "bound"))
    try:
        with SqliteStore.open(tmp_path / "bound" / real.name, 1) as store:
            found = names(store)
            second = in_child(lambda: SqliteStore.open(real, 1))
    finally:
        run("umount", str(tmp_path / "bound"))

    assert (found, second) == (["w1"], "Locked")


def test_file_that_is_mounted_alone_is_refused(tmp_path: Path, real: Path) -> None:
    need("mount", "umount")
    SqliteStore.create(real, 0).close()
    bound = tmp_path / "a b.sqlite"
    bound.touch()
    run("mount", "--bind", str(real), str(bound))
    try:
        with SqliteStore.open(real, 1):
            while_used = in_child(lambda: SqliteStore.open(bound, 1))
        with pytest.raises(Conflict, match="the file alone is a mount"):
            SqliteStore.open(bound, 1)
    finally:
        run("umount", str(bound))

    assert while_used == "Locked"


def test_backup_that_is_put_back_through_a_link_leaves_the_link(
    tmp_path: Path, link: Path, real: Path
) -> None:
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
    back_up(tmp_path / "store.sqlite", tmp_path / "copy.sqlite")
    killed(link)
    moved = put_back(tmp_path / "copy.sqlite", link, 7)

    assert link.is_symlink()
    assert real.parent / "real.sqlite.before-7-wal" in moved
    with SqliteStore.open(link, 8) as store:
        assert names(store) == ["w1"]


def test_link_beside_the_store_is_not_written_through_when_a_copy_is_put_back(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        promise_all(store, "w1", 1)
    back_up(tmp_path / "store.sqlite", tmp_path / "copy.sqlite")
    (tmp_path / "precious").write_text("of somebody")
    (tmp_path / "store.sqlite.draft").symlink_to(tmp_path / "precious")
    with pytest.raises(Conflict, match="is in the way"):
        put_back(tmp_path / "copy.sqlite", tmp_path / "store.sqlite", 7)

    assert (tmp_path / "precious").read_text() == "of somebody"
    assert (tmp_path / "store.sqlite.draft").is_symlink()
    with SqliteStore.open(tmp_path / "store.sqlite", 8) as store:
        assert names(store) == ["w1"]


def test_locks_of_sqlite_outlive_a_second_service_that_is_refused(real: Path) -> None:
    SqliteStore.create(real, 0).close()
    with SqliteStore.open(real, 1) as store:
        in_child(lambda: SqliteStore.open(real, 1))
        promise_all(store, "w1", 1)
        with store.promise():
            sqlite = shutil.which("sqlite3")
            writes = [sqlite or "python3", *(() if sqlite else ("-c", WRITES)), str(real)]
            done = subprocess.run([*writes, "BEGIN IMMEDIATE"], capture_output=True, text=True, timeout=240)

    assert "locked" in done.stderr + done.stdout


WRITES = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute(sys.argv[2])"
