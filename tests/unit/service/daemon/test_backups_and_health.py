"""Copies of the store on time, and what counts as being well."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from outrider.service.daemon.measures.health import OLDEST_BEAT_S, judge
from outrider.service.daemon.measures.metrics import Metrics
from outrider.service.daemon.threads.backups import Backups, copy_asked_for, copy_store
from outrider.service.front import BackedUp, NotDone
from outrider.store.errors import Full
from outrider.store.sqlite.store import SqliteStore
from tests.unit.service.daemon.fakes import status, text_log

NOON = 1_800_000_000


class Clock:
    at_s = NOON

    def now_s(self) -> int:
        return self.at_s

    def monotonic_s(self) -> float:
        return float(self.at_s)


class Copying:
    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder = folder
        self.clock = Clock()
        self.metrics = Metrics()
        self.fails = False
        self.stream = io.StringIO()
        self.keep = keep
        self.backups = self.make()

    def make(self) -> Backups:
        return Backups(
            Path("store"),
            self.folder,
            every_s=3600,
            keep=self.keep,
            clock=self.clock,
            log=text_log(self.stream),
            meter=self.metrics,
            copy=self._copy,
        )

    def _copy(self, store: Path, target: Path) -> BackedUp:
        if self.fails:
            raise Full("store store: no room")
        target.write_text("copy")
        return BackedUp(path=str(target), reservations=0)

    @property
    def names(self) -> list[str]:
        return sorted(each.name for each in self.folder.iterdir())


def test_copies_are_made_on_time_and_the_oldest_go(tmp_path: Path) -> None:
    copying = Copying(tmp_path)
    (tmp_path / "mine.sqlite").write_text("not ours")
    for _ in range(5):
        copying.backups.tend()
        copying.backups.tend()
        copying.clock.at_s += 3600

    assert copying.names == [
        "mine.sqlite",
        "outriderd-20270115T100000Z.sqlite",
        "outriderd-20270115T110000Z.sqlite",
        "outriderd-20270115T120000Z.sqlite",
    ]
    assert copying.metrics.value("outrider_backups_total", "done") == 5


def test_restarted_service_does_not_copy_before_it_is_time(tmp_path: Path) -> None:
    copying = Copying(tmp_path)
    copying.backups.tend()
    copying.clock.at_s += 1800
    again = copying.make()

    assert not again.is_due
    copying.clock.at_s += 1800
    assert again.is_due


@pytest.mark.parametrize("ahead_s", [86_400, 10 * 31_557_600])
def test_copies_go_on_after_a_clock_that_was_ahead_whose_copies_go_first(
    tmp_path: Path, ahead_s: int
) -> None:
    copying = Copying(tmp_path, keep=2)
    copying.clock.at_s += ahead_s
    for _ in range(2):
        copying.backups.tend()
        copying.clock.at_s += 3600
    wrong = copying.names
    copying.clock.at_s = NOON + 7200
    for _ in range(2):
        copying.backups.tend()
        copying.clock.at_s += 3600
    copying.backups.tend()

    assert len(wrong) == 2
    assert len(copying.names) == 2
    assert not set(wrong) & set(copying.names)


def test_what_lies_where_a_copy_is_made_is_not_deleted(tmp_path: Path) -> None:
    SqliteStore.create(tmp_path / "s.sqlite", NOON).close()
    (tmp_path / "copy.sqlite.draft").write_text("of somebody")
    with pytest.raises(NotDone, match=r"copy\.sqlite\.draft is in the way") as caught:
        copy_asked_for(tmp_path / "s.sqlite", f"{tmp_path}/copy.sqlite")

    assert caught.value.trouble.code == "conflict"
    assert (tmp_path / "copy.sqlite.draft").read_text() == "of somebody"


def test_failed_copy_removes_none_and_is_tried_again_soon(tmp_path: Path) -> None:
    copying = Copying(tmp_path, keep=1)
    copying.backups.tend()
    copying.clock.at_s += 3600
    copying.fails = True
    copying.backups.tend()
    assert not copying.backups.is_due
    copying.clock.at_s += 300

    assert copying.backups.is_due
    assert len(copying.names) == 1
    assert copying.metrics.value("outrider_backups_total", "failed") == 1
    assert "no room" in copying.stream.getvalue()


def test_copy_of_a_store_in_use_is_a_store(tmp_path: Path) -> None:
    with SqliteStore.create(tmp_path / "s.sqlite", NOON):
        made = copy_store(tmp_path / "s.sqlite", tmp_path / "copy.sqlite")

    assert made == BackedUp(path=str(tmp_path / "copy.sqlite"), reservations=0)
    SqliteStore.open(tmp_path / "copy.sqlite", NOON).close()


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("copy.sqlite", "invalid"),
        ("{}/../x", "invalid"),
        ("{}/none/x", "invalid"),
        ("{}/s.sqlite", "conflict"),
    ],
)
def test_copy_goes_only_where_it_can(tmp_path: Path, target: str, code: str) -> None:
    SqliteStore.create(tmp_path / "s.sqlite", NOON).close()
    with pytest.raises(NotDone) as caught:
        copy_asked_for(tmp_path / "s.sqlite", target.format(tmp_path))

    assert caught.value.trouble.code == code


def test_service_that_promises_is_alive_and_ready() -> None:
    health = judge(beat_age_s=0.5, is_running=True, status=status())

    assert (health.is_alive, health.is_ready, health.troubles) == (True, True, ())


def test_service_that_does_not_promise_says_why() -> None:
    health = judge(beat_age_s=0.5, is_running=True, status=status(is_promising=False))

    assert (health.is_alive, health.is_ready) == (True, False)
    assert health.troubles == ("the batch system was not seen",)


def test_service_that_hangs_is_not_alive() -> None:
    assert judge(beat_age_s=OLDEST_BEAT_S, is_running=True, status=status()).is_alive
    assert not judge(beat_age_s=OLDEST_BEAT_S + 1, is_running=True, status=status()).is_alive


def test_service_that_stops_or_has_just_started_is_not_ready() -> None:
    assert not judge(beat_age_s=0, is_running=False, status=status()).is_ready
    assert not judge(beat_age_s=0, is_running=True, status=None).is_ready
