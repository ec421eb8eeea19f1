"""Jobs that wait on a private Slurm: a file of its own, since no limit of Slurm's is below a minute."""

from __future__ import annotations

import pytest

from tests.daemons.bench.forms import measured


@pytest.mark.long
def test_few_jobs_wait_live_and_in_the_simulator() -> None:
    said = measured("waiting")

    assert "jobs 6, reservations 1;" in said
    assert said.splitlines()[-1].startswith("medians")
