"""The service in simulated worlds that go wrong: every promise is met, or somebody was told."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from tests.amount import examples
from tests.repository import ROOT
from tests.simulation.dst.simulation import Run, simulate

SEEDS = int(os.environ.get("OUTRIDER_DST_SEEDS", examples(160)))
A_PART = 20
FIRST_AND_LAST = 12
PRINT_DIGESTS = f"""
from tests.simulation.dst.simulation import simulate
for seed in range({FIRST_AND_LAST}):
    print(simulate(seed).digest)
"""


@cache
def part(first: int) -> list[Run]:
    return [simulate(seed) for seed in range(first, min(first + A_PART, SEEDS))]


@pytest.mark.parametrize("first", range(0, SEEDS, A_PART))
def test_every_promise_is_met_or_reported(first: int) -> None:
    runs = part(first)
    failed = [run for run in runs if run.violation]
    told = "\n".join(
        [
            *(f"seed {run.seed}: {run.violation}" for run in failed),
            "see it with: python -m tools.dst --log --seed NUMBER",
        ]
    )

    assert not failed, told
    assert sum(run.told for run in runs) > len(runs), "hardly anything was promised"


def test_harsh_worlds_keep_their_promises_too() -> None:
    runs = [simulate(seed, is_harsh=True) for seed in range(examples(40))]

    assert [f"{run.seed}: {run.violation}" for run in runs if run.violation] == []
    assert sum(run.deaths for run in runs) > len(runs)


def digests(hash_seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PRINT_DIGESTS],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.split()


def test_seed_gives_the_same_run_under_any_hash_seed() -> None:
    one, other = digests("0"), digests("1")

    assert len(set(one)) == FIRST_AND_LAST
    assert one == other


def test_troubled_worlds_kill_the_service_and_calm_ones_do_not() -> None:
    runs = part(0)
    dead = [run for run in runs if run.deaths]

    assert 0 < len(dead) < len(runs)
