"""The short forms of the benchmarks that need a private Slurm."""

from __future__ import annotations

import pytest

from tests.daemons.bench.forms import measured


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("submit", "the bound"),
        ("slurm_start", "a warm job's first line comes"),
        ("burst_start", "beside the scheduler's own cycle"),
        pytest.param("slurm_naive", "Outrider, reservation", marks=pytest.mark.long),
        pytest.param("slurm_scale", "events of the desk took longer than 1 s", marks=pytest.mark.long),
    ],
)
def test_short_form_runs_to_its_end(name: str, end: str) -> None:
    said = measured(name)

    assert end in said.splitlines()[-1]
