"""Real processes on real file systems, killed with SIGKILL at random moments, again and again."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from bench.stress import StressAnswers, faults, make_pool, round_of
from tests.amount import few
from tests.daemons.kill.loopdisk import mounted

ROUNDS = int(os.environ.get("OUTRIDER_KILL_ROUNDS", few(100)))
MOST_ROUNDS = 10 * ROUNDS
OWNERS = ["job 1", "job 2", "job 3"]


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_nothing_that_was_acknowledged_is_lost_by_killing(kind: str, tmp_path: Path) -> None:
    random, told = Random(kind), StressAnswers()
    with mounted(kind, tmp_path) as place:
        root = str(place / "pool")
        make_pool(root)
        wrong: list[str] = []
        rounds = 0
        # On a busy machine processes get less done before they are killed: later rounds are longer.
        while not wrong and (rounds < ROUNDS or (told.counts["added"] <= ROUNDS and rounds < MOST_ROUNDS)):
            seconds = random.uniform(0.005, 0.06) * (1 + rounds // ROUNDS)
            round_of(root, told, OWNERS, rounds, seconds, is_killed=True)
            rounds += 1
            wrong = [f"round {rounds}: {each}" for each in faults(root, told)]

    assert wrong == []
    assert told.counts["added"] > ROUNDS
    assert told.counts["pinning"] > told.counts["added"] + told.counts["pinned"]
