"""The short forms of the benchmarks that need a private Slurm."""

from __future__ import annotations

import re

import pytest

from tests.daemons.bench.forms import measured


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("submit", "the bound"),
        ("slurm_start", "a warm job's first line comes"),
        pytest.param("burst_start", "beside the scheduler's own cycle", marks=pytest.mark.long),
        pytest.param("slurm_naive", "Outrider, reservation", marks=pytest.mark.long),
        pytest.param("machine_story", "every promise was kept", marks=pytest.mark.long),
        pytest.param("consolidation", "consolidated to static", marks=pytest.mark.long),
        pytest.param("slurm_scale", "events of the desk took longer than 1 s", marks=pytest.mark.long),
    ],
)
@pytest.mark.repeats(
    "tests/daemons/bench/test_short_forms.py::test_short_form_runs_to_its_end_for_a_plain_user"
)
def test_short_form_runs_to_its_end(name: str, end: str) -> None:
    said = measured(name)

    assert end in said.splitlines()[-1]


@pytest.mark.repeats("tests/daemons/bench/test_short_forms.py::test_relay_reaches_all_nodes_in_each_way")
def test_link_of_a_rack_carries_an_image_once() -> None:
    """Twice: to both racks at once, and to each its own, one of which comes from the mirror."""
    found = re.findall(r"over the link of rack1 ([0-9.]+), rack2 ([0-9.]+)", measured("racks"))

    assert len(found) == 2
    assert all(0.99 < float(times) < 1.1 for pair in found for times in pair)
