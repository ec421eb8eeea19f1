"""`outrider sim convert` and `outrider sim generate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.sim.workload.formats.convert import read_trace
from outrider.sim.workload.formats.swf import read_log
from outrider.sim.workload.formats.thesis import published_trace
from tests.repository import ROOT


def test_published_trace_survives_generating_and_converting(tmp_path: Path) -> None:
    native, log = tmp_path / "III.jsonl", tmp_path / "III.swf"

    assert main(["sim", "generate", "published", "--trace", "III", "-o", str(native)]) == 0
    assert main(["sim", "convert", str(native), str(log)]) == 0

    assert read_trace(native).submissions == published_trace("III").submissions
    assert len(read_log(log)) == 62


def test_a_log_that_stays_one_keeps_its_header(tmp_path: Path) -> None:
    source = ROOT / "tests" / "data" / "datastar-excerpt.swf"
    target = tmp_path / "copy.swf.gz"

    assert main(["sim", "convert", str(source), str(target), "--limit", "5"]) == 0

    assert read_log(target).header == read_log(source, limit=5).header
    assert len(read_log(target)) == 5


@pytest.mark.parametrize(
    "line",
    [
        ["mixed", "--row", "long,000-025,25-75"],
        ["disk"],
        ["feasible", "--reservations", "5"],
        ["leases", "--best-effort", "20", "--reservations", "2"],
    ],
)
def test_a_seed_draws_the_same_workload_twice_and_another_a_different_one(
    line: list[str], tmp_path: Path
) -> None:
    texts = []
    for number, seed in enumerate(("1", "1", "2")):
        path = tmp_path / f"{number}.jsonl"
        assert main(["sim", "generate", *line, "--seed", seed, "-o", str(path)]) == 0
        texts.append(path.read_text())

    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_reservations_do_not_become_jobs_silently(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    native, log = tmp_path / "I.jsonl", tmp_path / "I.swf"
    main(["sim", "generate", "published", "--trace", "I", "-o", str(native)])
    capsys.readouterr()

    assert main(["sim", "convert", str(native), str(log)]) != 0
    assert "reservation" in capsys.readouterr().err
    assert not log.exists()
