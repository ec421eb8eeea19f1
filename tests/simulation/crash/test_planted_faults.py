"""The crash kit finds what it is there to find: faults planted into the pool one at a time."""

from __future__ import annotations

import pytest

from cachemgr.base.errors import CacheError
from tests.simulation.crash.kit import Kit
from tests.simulation.crash.planted import PLANTED, Planted
from tests.simulation.crash.scenarios import SCENARIOS

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_planted_fault_is_found_by_the_accidents_that_can_show_it(
    fault: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault.plant(monkeypatch)
    kit = Kit()
    found_by = set()
    try:
        kit.run(BY_NAME[fault.scenario], ("EIO",) if fault.found_by == {"refusal"} else ("crash", "power"))
    except (AssertionError, CacheError):
        found_by.add("undisturbed")
    found_by |= {violation.accident for violation in kit.violations}

    assert found_by == fault.found_by


def test_kit_finds_nothing_where_nothing_is_planted() -> None:
    kit = Kit()
    kit.run(BY_NAME["evict by hand"])

    assert kit.violations == []


def test_case_at_every_step_is_run() -> None:
    """Making a pool takes 7 folders' and files' creations and 5 syncs at least."""
    kit = Kit()
    kit.run(BY_NAME["init"], ("crash",))

    assert kit.cases > 12
