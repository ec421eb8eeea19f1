"""Two heads over one database: whatever becomes of the one that leads, what was told holds."""

from __future__ import annotations

import io
import statistics
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from outrider.service.daemon.lead.standby import LOOK_S
from outrider.service.daemon.world.start_markers import StartMarkerFolder
from outrider.store.postgresql.leadership import STALE_S
from testbed.records import TestbedError
from tests.amount import first
from tests.daemons.kill.loopdisk import fill, in_memory
from tests.daemons.kill.pair import Pair, Users, pair_of_heads
from tests.daemons.kill.victim import CLOCK, Preloaded
from tests.daemons.kill.wires import Break
from tests.unit.service.daemon.fakes import text_log

PER_S, MOST_PER_S = 8, 20
"""Requests a second; the most in the long form."""
TAKEN_OVER_S = 10.0
CALM_S = 1.0
ROUNDS = 2
UNIT_S, REST_S = 0.005, 0.1
DISK = "160m"
LOG_FILES = 200
WAITED_S = STALE_S + LOOK_S


class Slowness:
    """How much slower than alone a program runs here meanwhile: what it waits for a processor counts for
    neither head."""

    def __enter__(self) -> Slowness:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def factor(self) -> float:
        return max(1.0, self._wall_s / self._busy_s)

    def _run(self) -> None:
        self._wall_s = self._busy_s = 1e-9
        while not self._stop.wait(REST_S):
            began_s, busy_s = CLOCK.monotonic_s(), time.thread_time()
            while time.thread_time() - busy_s < UNIT_S:
                pass
            self._wall_s += CLOCK.monotonic_s() - began_s
            self._busy_s += time.thread_time() - busy_s


def killed(pair: Pair) -> float:
    """SIGKILL to the leader; how long until a head promised: the other one, or the same, started again, if
    that was faster."""
    leader = pair.await_leader()
    began_s = CLOCK.monotonic_s()
    leader.victim.kill()
    pair.await_leader()
    return CLOCK.monotonic_s() - began_s


def cut_off(pair: Pair) -> float:
    """No network for the leader; how long until another head promised. It joins again."""
    leader = pair.await_leader()
    began_s = CLOCK.monotonic_s()
    leader.cut_off()
    pair.await_leader(leader)
    took_s = CLOCK.monotonic_s() - began_s
    leader.join()
    return took_s


def rounds(pair: Pair, count: int, per_s: int) -> tuple[list[float], list[str], int]:
    """Under load, kills and cuts in turn; how long each took, what was wrong, how much was accepted."""
    took_s: list[float] = []
    walls_s: list[float] = []
    with Users(pair.heads, pair.image, per_s=per_s) as users:
        for number in range(count):
            CLOCK.sleep(CALM_S)
            with Slowness() as slowness:
                wall_s = (killed, cut_off)[number % 2](pair)
            walls_s.append(wall_s)
            # What is waited for by the clock is no shorter on a machine of one's own.
            took_s.append(min(wall_s, WAITED_S + max(0.0, wall_s - WAITED_S) / slowness.factor))
            pair.revive()
            users.await_answers()
        CLOCK.sleep(CALM_S)
    pair.await_leader()
    sys.stdout.write(f"by the wall: median {statistics.median(walls_s):.1f} s, most {max(walls_s):.1f} s\n")
    return took_s, pair.wrong(users.load), len(users.load.accepted)


def told(took_s: list[float], accepted: int) -> str:
    words = f"median {statistics.median(took_s):.1f} s, most {max(took_s):.1f} s, {accepted} accepted"
    sys.stdout.write(f"taken over {len(took_s)} times: {words}\n")
    return words


def test_a_standby_takes_over_in_time_and_nothing_is_lost_or_doubled(
    preloaded: Preloaded,
) -> None:
    with pair_of_heads(preloaded) as pair:
        took_s, wrong, accepted = rounds(pair, ROUNDS, PER_S)
    words = told(took_s, accepted)

    assert wrong == [], words
    assert max(took_s) <= TAKEN_OVER_S, words
    assert accepted >= len(took_s), words


@pytest.mark.long
def test_a_hundred_times_a_standby_takes_over_in_time(preloaded: Preloaded) -> None:
    with pair_of_heads(preloaded) as pair:
        took_s, wrong, accepted = rounds(pair, 100, MOST_PER_S)
    words = told(took_s, accepted)

    assert wrong == [], words
    assert max(took_s) <= TAKEN_OVER_S, words
    assert accepted >= len(took_s), words


@pytest.mark.repeats(
    "tests/unit/store/test_store_of_heads.py::test_every_write_of_an_old_leader_fails_and_leaves_nothing"
)
def test_a_paused_leader_that_wakes_changes_nothing(preloaded: Preloaded) -> None:
    with pair_of_heads(preloaded) as pair, Users(pair.heads, pair.image, per_s=PER_S) as users:
        old = pair.await_leader()
        board = Path(old.victim.socket).parent / "begin"
        StartMarkerFolder(str(old.victim.socket), text_log(io.StringIO())).tell([("w0-0", True)])
        assert (board / "w0-0").exists()
        old.pause()
        new = pair.await_leader(old)
        before = pair.server.sql("SELECT epoch, head FROM leader")
        old.wake()
        old.victim.eventually("its end", lambda: old.has_ended)
        assert old.victim.reap() == 30, old.victim.last_words()
        assert pair.server.sql("SELECT epoch, head FROM leader") == before
        assert new.leads
        old.start()
        old.victim.eventually(
            "its standing by", lambda: "stands by" in str(old.victim.asked("GET", "/v1/status"))
        )
        # Hooks on its machine believe no more what it knew as the leader.
        assert not (board / "w0-0").exists()
        users.__exit__()
        assert pair.wrong(users.load) == []


def test_what_is_told_holds_when_the_server_is_restarted_or_dies(preloaded: Preloaded) -> None:
    with pair_of_heads(preloaded) as pair, Users(pair.heads, pair.image, per_s=PER_S) as users:
        for stop in (pair.server.stop, pair.server.kill):
            CLOCK.sleep(CALM_S)
            stop()
            pair.server.start()
            pair.await_leader()
        users.await_answers()
        users.__exit__()
        assert pair.wrong(users.load) == []
        assert users.load.counts["accepted"] > 3


def test_full_disk_of_the_database_costs_no_promise(preloaded: Preloaded, folder: Path) -> None:
    """First its tables have no room to grow; then its log has none, and the server dies of that."""
    with (
        in_memory(folder / "data", DISK) as data,
        pair_of_heads(preloaded, data=data) as pair,
        Users(pair.heads, pair.image, per_s=PER_S) as users,
    ):
        leader = pair.await_leader()
        ballast = fill(data)
        leader.victim.eventually(
            "words about it", lambda: "its disk has no room" in leader.victim.last_words()
        )
        with suppress(TestbedError):
            # The files that it keeps for its log are used up one after the other.
            for _ in range(LOG_FILES):
                pair.server.sql("SELECT pg_create_restore_point('x'); SELECT pg_switch_wal()")
        ballast.unlink()
        pair.server.restart()
        words = pair.server.log()
        pair.await_leader()
        before = users.load.counts["accepted"]
        leader.victim.eventually("new promises", lambda: users.load.counts["accepted"] > before)
        users.__exit__()
        refused = [each for each in users.load.failures if "its disk has no room" in each]
        found = set(pair.server.sql("SELECT name FROM reservations").split())
        wrong = [each for each in pair.wrong(users.load) if each not in refused]

    assert "PANIC" in words
    assert wrong == []
    # What was refused for want of room is not there.
    names = {name.rpartition("-")[0] for name in found}
    assert names.isdisjoint(each.partition(":")[0] for each in refused)


@pytest.mark.parametrize("where", first(reversed(Break)))
@pytest.mark.repeats(
    "tests/unit/store/test_store_of_heads.py"
    "::test_a_connection_that_is_cut_loses_what_was_not_committed_and_nothing_else"
)
def test_a_commit_that_is_cut_off_is_resolved_by_asking_again(preloaded: Preloaded, where: Break) -> None:
    with pair_of_heads(preloaded) as pair, Users(pair.heads, pair.image, per_s=PER_S) as users:
        for _ in range(3):
            leader = pair.await_leader()
            leader.database.break_next(where)
            assert leader.database.broken.wait(60), leader.victim.last_words()
        pair.await_leader()
        users.await_answers()
        users.__exit__()
        assert pair.wrong(users.load) == []
        assert users.load.counts["accepted"] > 3
