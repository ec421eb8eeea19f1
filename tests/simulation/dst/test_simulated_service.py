"""The service in simulated worlds that go wrong: every promise is met, or somebody was told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest

from outrider.core.model import Workspace
from outrider.service.desk.state.documents import read_document, write_document
from outrider.store.records import ReservationRecord
from tests.amount import examples, few
from tests.repository import ROOT
from tests.simulation.dst.invariants import safety
from tests.simulation.dst.simulation import Run, simulate

SEEDS = int(os.environ.get("OUTRIDER_DST_SEEDS", few(160)))
A_PART = 20
FIRST_AND_LAST = examples(18)
SOMEBODY_MOVES = range(48, 248)
"""In some of these worlds a lease with a deadline makes way for others, today in the first of them."""
OTHER_HASH_SEED = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"
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


def test_preemptible_jobs_are_asked_to_go_in_many_worlds() -> None:
    runs = part(0)

    assert sum(1 for run in runs if run.yielded) > len(runs) // 20


def test_harsh_worlds_keep_their_promises_too() -> None:
    runs = [simulate(seed, is_harsh=True) for seed in range(few(40))]

    assert [f"{run.seed}: {run.violation}" for run in runs if run.violation] == []
    assert sum(run.deaths for run in runs) > len(runs)


def test_worlds_with_several_links_keep_their_promises_too() -> None:
    runs = [simulate(seed, has_links=True) for seed in range(few(100))]

    assert [f"{run.seed}: {run.violation}" for run in runs if run.violation] == []
    assert sum(run.told for run in runs) > len(runs)


def test_worlds_with_leases_of_all_kinds_keep_their_promises_too() -> None:
    runs = [simulate(seed, has_kinds=True) for seed in range(few(100))]

    assert [f"{run.seed}: {run.violation}" for run in runs if run.violation] == []
    assert sum(run.told for run in runs) > 3 * len(runs)


def test_worlds_with_images_in_layers_keep_their_promises_too() -> None:
    runs = [simulate(seed, has_layers=True) for seed in range(50, 50 + few(100))]

    assert [f"{run.seed}: {run.violation}" for run in runs if run.violation] == []
    assert sum(run.told for run in runs) > len(runs)


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
    one, other = digests(OTHER_HASH_SEED), [run.digest for run in part(0)[:FIRST_AND_LAST]]

    assert len(set(one)) == FIRST_AND_LAST
    assert one == other


def test_troubled_worlds_kill_the_service_and_calm_ones_do_not() -> None:
    runs = part(0)
    dead = [run for run in runs if run.deaths]

    assert 0 < len(dead) < len(runs)


def test_only_deadlines_excuse_that_a_reservation_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[ReservationRecord, int]] = []
    ask = safety._was_moved

    def remember(record: ReservationRecord, duration_s: int) -> bool:
        seen.append((record, duration_s))
        return ask(record, duration_s)

    monkeypatch.setattr(safety, "_was_moved", remember)
    worlds = iter(SOMEBODY_MOVES)
    while not any(ask(*each) for each in seen):
        simulate(next(worlds))
    moved, duration_s = next(each for each in seen if ask(*each))
    reservation = moved.reservation
    now_there = replace(reservation.workspace, start_s=reservation.start_s, finish_by_s=None)
    mended = with_workspace(moved, now_there)
    later = with_workspace(moved, replace(now_there, start_s=reservation.start_s - 1))

    assert ask(moved, duration_s)
    assert not ask(moved, duration_s + 1)
    assert ask(mended, duration_s)
    assert not ask(later, duration_s)
    assert not ask(without_deadline(mended), duration_s)


def with_workspace(record: ReservationRecord, workspace: Workspace) -> ReservationRecord:
    return replace(record, reservation=replace(record.reservation, workspace=workspace))


def without_deadline(record: ReservationRecord) -> ReservationRecord:
    """As if its user had not asked for one."""
    document = read_document(record.document)
    file = json.loads(document.file)
    file["deployment"]["finish_by_s"] = None
    return replace(record, document=write_document(replace(document, file=json.dumps(file))))
