"""Stores that are damaged, foreign, taken or gone, sockets that are removed: said, and not made worse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.amount import first
from tests.daemons.kill.conftest import Make
from tests.daemons.kill.requests_of_tests import ask_for, names
from tests.daemons.kill.victim import Victim, processes_of


@pytest.fixture
def dead(make: Make, folder: Path) -> Victim:
    """A site with a promise, whose service was killed."""
    victim = serving(make(), folder)
    victim.kill()
    return victim


def serving(victim: Victim, folder: Path) -> Victim:
    victim.init()
    victim.start()
    victim.await_ready()
    assert ask_for(victim, folder / "image", 0).status == 201
    return victim


def store_of(victim: Victim) -> Path:
    return victim.state / "outriderd.sqlite"


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * 3_000)


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(5_000)


def cut_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def make_newer(path: Path) -> None:
    # Who closes a store in good order takes its log along.
    program = (
        f"import os, sqlite3; c = sqlite3.connect({str(path)!r}, isolation_level=None); "
        "c.execute('INSERT INTO schema VALUES (99, 0)'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True, timeout=240)


DAMAGES: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "overwritten": (overwrite, 22, "put a backup back"),
    "truncated": (truncate, 22, "put a backup back"),
    "without its log": (cut_log, 22, "its log outriderd.sqlite-wal is gone"),
    "newer": (make_newer, 23, "99"),
    "removed": (Path.unlink, 21, "there is none"),
}


@pytest.mark.parametrize("damage", first(DAMAGES, 3))
def test_store_that_cannot_be_trusted_ends_the_start_with_a_sentence(dead: Victim, damage: str) -> None:
    act, wanted, words = DAMAGES[damage]
    act(store_of(dead))
    before = {path.name: path.read_bytes() for path in dead.state.glob("outriderd.sqlite*")}
    code, said = dead.run()
    dead.eventually("nobody is left", lambda: not processes_of(dead.folder))
    after = {path.name: path.read_bytes() for path in dead.state.glob("outriderd.sqlite*")}

    assert code == wanted, said
    assert f"store {store_of(dead)}: " in said
    assert words in said
    assert "Traceback" not in said
    assert set(before) >= set(after) - {"outriderd.sqlite-shm"}


def test_damaged_journal_of_the_batch_system_ends_the_start_with_a_sentence(dead: Victim) -> None:
    journal = dead.backend / "jobs.json"
    journal.write_bytes(journal.read_bytes()[:-20])
    code, said = dead.run()

    assert code == 5, said
    assert f"the journal {journal} cannot be read" in said
    assert "Traceback" not in said


def test_second_service_on_the_store_is_refused_and_the_first_goes_on(make: Make, folder: Path) -> None:
    first = serving(make(), folder)
    second = make("b", state=first.state)
    code, said = second.run()

    assert code == 24, said
    assert f"process {first.pid} uses it" in said
    assert ask_for(first, folder / "image", 1).status == 201
    assert names(first) == ["w0", "w1"]


def test_second_service_on_the_socket_is_refused_and_the_first_goes_on(make: Make, folder: Path) -> None:
    first = serving(make(), folder)
    second = make("b")
    second.config.write_text(first.config.read_text())
    code, said = second.run()

    assert code == 4, said
    assert str(first.socket) in said
    assert ask_for(first, folder / "image", 1).status == 201


@pytest.mark.parametrize("what", first(["state/outriderd.sqlite", "state", "state/outriderd.sqlite-wal"]))
def test_no_promise_is_made_to_a_store_that_was_taken_away(make: Make, folder: Path, what: str) -> None:
    victim = serving(make(), folder)
    (victim.folder / what).rename(folder / "elsewhere")
    refused = ask_for(victim, folder / "image", 1)
    (folder / "elsewhere").rename(victim.folder / what)
    victim.await_ready()
    again = ask_for(victim, folder / "image", 1)
    victim.kill()
    victim.start()
    victim.await_ready()

    assert (refused.status, refused.content["code"]) == (503, "unavailable")
    assert f"store {store_of(victim)}: it or its log was moved" in str(refused.content["message"])
    assert again.status == 201
    assert names(victim) == ["w0", "w1"]


def test_socket_that_was_removed_comes_back(make: Make, folder: Path) -> None:
    victim = serving(make(), folder)
    victim.socket.unlink()
    victim.eventually("an answer", lambda: victim.asked("GET", "/v1/status"))

    assert ask_for(victim, folder / "image", 1).status == 201
    assert str(victim.socket) in victim.last_words()
    assert victim.stop() == 0
    assert victim.leftovers() == []
