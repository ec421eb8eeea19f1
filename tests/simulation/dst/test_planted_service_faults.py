"""A simulation that finds nothing proves nothing: each planted fault is found within some seeds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from random import Random

import pytest

from tests.amount import LONG
from tests.simulation.dst.knobs import draw
from tests.simulation.dst.planted import KIND_PLANTS, LATE_PLANTS, PLANTS, Plant
from tests.simulation.dst.simulation import simulate

MOST_SEEDS = 300
CALM_FIRST = sorted(range(MOST_SEEDS), key=lambda seed: not draw(Random(seed)).is_calm)
FOUND_BY = {
    "takes_all_for_preemptible": 0,
    "answers_before_writing": 1,
    "ignores_lost_reservation": 14,
    "plans_for_good": 22,
    "loses_transfers_at_birth": 14,
    "gives_no_alarm": 14,
    "never_mends": 17,
    "waits_for_lost_looks": 17,
    "keeps_memory_after_failure": 1,
    "ends_too_early": 14,
    "forgets_decisions": 14,
    "forgets_held_jobs": 100,
    "crowds_out_deadlines": 162,
    "does_not_slow_down": 162,
    "holds_deadlines_back": 186,
    "slows_both_down": 186,
    "lets_nobody_go": 186,
    "requeues_by_and_by": 186,
    "starts_late_after_events": 22,
}
"""What finds a fault today is tried first, to save a minute; those not named are found by the very first."""
FOUND_BEFORE = tuple(dict.fromkeys((20, *FOUND_BY.values())))
LATE = LATE_PLANTS if os.environ.get(LONG) else LATE_PLANTS[::2]


def seeds(plant: Plant, rest: Iterable[int]) -> Iterator[int]:
    yield from dict.fromkeys((FOUND_BY.get(plant.__name__, FOUND_BEFORE[0]), *FOUND_BEFORE, *rest))


def found_by(plant: Plant, patch: pytest.MonkeyPatch, rest: Iterable[int], **world: bool) -> int | None:
    """The first seed of such worlds that finds a fault."""
    plant(patch)
    return next((seed for seed in seeds(plant, rest) if _fails(seed, **world)), None)


def _fails(seed: int, *, is_harsh: bool = False, has_kinds: bool = False) -> bool:
    return bool(simulate(seed, is_harsh=is_harsh, has_kinds=has_kinds).violation)


def not_found(plant: Plant) -> str:
    return f"{plant.__doc__} That was not found in {MOST_SEEDS} seeds"


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_by(plant, monkeypatch, range(MOST_SEEDS), is_harsh=True)

    assert found is not None, not_found(plant)


@pytest.mark.parametrize("plant", LATE, ids=lambda plant: plant.__name__)
def test_planted_fault_that_makes_deadlines_late_is_found(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In worlds in which little goes wrong: in others much may be late."""
    found = found_by(plant, monkeypatch, CALM_FIRST)

    assert found is not None, not_found(plant)


@pytest.mark.parametrize("plant", KIND_PLANTS, ids=lambda plant: plant.__name__)
def test_planted_fault_in_a_kind_of_lease_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_by(plant, monkeypatch, range(MOST_SEEDS), has_kinds=True)

    assert found is not None, not_found(plant)
