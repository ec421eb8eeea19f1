"""Machines that cannot be saved, and those that are saved while no service is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.rms.base import JobState
from tests.contract.embedded_harness import EmbeddedHarness, SleepingCommand
from tests.contract.harness import Scene


@pytest.mark.parametrize("is_restarted", [False, True])
def test_job_whose_machine_cannot_be_saved_goes_on_within_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_restarted: bool
) -> None:
    monkeypatch.setattr(SleepingCommand, "signal", lambda self, name: None)
    scene = Scene(EmbeddedHarness(tmp_path, is_restarted=is_restarted))
    job = scene.running_job(limit_s=1000, machine=scene.harness.machine)
    found = scene.job(job)
    assert found is not None
    assert found.start_s is not None
    scene.system.save(job, found.start_s, "it makes way")
    scene.harness.pass_time(700)
    late = scene.job(job)

    scene.wait_for_state(job, JobState.ENDED, within_s=350)

    assert late is not None
    assert (late.state, late.start_s, late.is_held_by_us) == (JobState.RUNNING, found.start_s, False)


def test_machine_that_is_saved_while_no_service_is_there_waits_to_continue(tmp_path: Path) -> None:
    harness = EmbeddedHarness(tmp_path, is_restarted=True)
    scene = Scene(harness)
    job = scene.running_job(machine=harness.machine)
    found = scene.job(job)
    assert found is not None
    assert found.start_s is not None
    scene.system.save(job, found.start_s, "it makes way")
    harness._clock.sleep(60)

    held = scene.wait_for_state(job, JobState.HELD, within_s=5)

    assert held is not None
    assert held.is_held_by_us
