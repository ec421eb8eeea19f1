"""Every scenario with a crash, a power cut or a refusal at each of its steps.

The short form tries what finds all planted faults. `OUTRIDER_CRASH_THOROUGHNESS`
set to 2 or more tries more ways in which a power cut may leave the disk, and interrupts each recovery at more
of its steps.
"""

from __future__ import annotations

import pytest

from tests.simulation.crash.kit import Kit
from tests.simulation.crash.scenarios import SCENARIOS, Scenario


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_promises_are_kept_whatever_step_is_the_last_or_refused(scenario: Scenario) -> None:
    kit = Kit()
    kit.run(scenario)

    assert kit.violations == []
    assert kit.cases > 10


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_promises_are_kept_when_the_recovery_is_interrupted_too(scenario: Scenario) -> None:
    kit = Kit()
    kit.run_twice(scenario)

    assert kit.violations == []
    assert kit.cases > 0
