"""A simulation that finds nothing proves nothing: each planted fault is found within some seeds."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.dst.knobs import draw
from tests.simulation.dst.planted import LATE_PLANTS, PLANTS, Plant
from tests.simulation.dst.simulation import simulate

MOST_SEEDS = 300
CALM_FIRST = sorted(range(MOST_SEEDS), key=lambda seed: not draw(Random(seed)).is_calm)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = next((seed for seed in range(MOST_SEEDS) if simulate(seed, is_harsh=True).violation), None)

    assert found is not None, f"{plant.__doc__} That was not found in {MOST_SEEDS} seeds"


@pytest.mark.parametrize("plant", LATE_PLANTS, ids=lambda plant: plant.__name__)
def test_planted_fault_that_makes_deadlines_late_is_found(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In worlds in which little goes wrong: in others much may be late."""
    plant(monkeypatch)
    found = next((seed for seed in CALM_FIRST if simulate(seed).violation), None)

    assert found is not None, f"{plant.__doc__} That was not found in {MOST_SEEDS} seeds"
