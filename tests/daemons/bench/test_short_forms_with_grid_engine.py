"""The short forms of the benchmarks that need a private Grid Engine, or play its shepherd."""

from __future__ import annotations

import pytest

from tests.daemons.bench.forms import measured


@pytest.mark.parametrize(
    ("name", "options", "end"),
    [
        ("gridengine_start", (), "hooks, job with image"),
        ("gridengine_jobs", (), "with 8 jobs a look takes"),
        ("jsv", (), "ours"),
        pytest.param(
            "burst_start",
            ("--system", "gridengine"),
            "beside the scheduler's own cycle",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "machine_story", ("--on", "gridengine"), "every promise was kept", marks=pytest.mark.long
        ),
        pytest.param("physical", ("--only", "III/pool"), "III/pool", marks=pytest.mark.long),
    ],
)
@pytest.mark.repeats(
    "tests/daemons/bench/test_short_forms.py::test_short_form_runs_to_its_end_for_a_plain_user"
)
def test_short_form_runs_to_its_end(name: str, options: tuple[str, ...], end: str) -> None:
    said = measured(name, *options)

    assert end in said.splitlines()[-1]
