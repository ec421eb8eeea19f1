"""`outrider sim convert --moldable`: a log's jobs as reservations with options, which `sim run` takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.errors import InputError
from outrider.cli.main import main
from outrider.sim.workload.formats.swf import read_log
from outrider.sim.workload.options.moldable import amdahl

LOG = "tests/data/datastar-excerpt.swf"
JOBS = 20


def converted(tmp_path: Path, model: str) -> list[dict[str, Any]]:
    target = tmp_path / f"{model}.jsonl"

    assert main(["sim", "convert", LOG, str(target), "--moldable", model, "--limit", str(JOBS)]) == 0

    return [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("model", ["amdahl", "downey"])
def test_each_job_has_more_instances_for_a_shorter_time_and_one_way_is_its_own(
    tmp_path: Path, model: str
) -> None:
    log = read_log(LOG, limit=JOBS)
    requests = [line for line in converted(tmp_path, model) if "options" in line]
    own = {f"j{row}": (log.processors[row], log.run_s[row]) for row in range(len(log))}

    assert requests
    for line in requests:
        ways = [line, *line["options"]]
        sizes = [(each["instances"], each["duration_s"]) for each in ways]
        assert sizes == sorted(sizes)
        assert [time_s for _, time_s in sizes] == sorted({time_s for _, time_s in sizes}, reverse=True)
        assert own[line["name"]] in sizes
        start_s, finish_by_s = line["start_s"], line["finish_by_s"]
        assert 2 * sizes[0][1] <= finish_by_s - start_s <= 4 * sizes[0][1] + 601


def test_times_are_those_of_amdahls_law_for_one_parallel_part(tmp_path: Path) -> None:
    for line in converted(tmp_path, "amdahl"):
        if not line.get("options"):
            continue
        ways = [line, *line["options"]]
        sizes = [(each["instances"], each["duration_s"]) for each in ways]
        (fewer, longer_s), (most, shorter_s) = sizes[0], sizes[-1]
        bounds = [amdahl(part, most) / amdahl(part, fewer) for part in (0.9, 0.999)]

        assert bounds[0] * 0.95 - 0.1 <= longer_s / shorter_s <= bounds[1] * 1.05 + 0.1


def test_what_was_converted_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    converted(tmp_path, "downey")
    capsys.readouterr()

    assert main(["sim", "run", str(tmp_path / "downey.jsonl"), "--json"]) == 0

    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "words",
    [
        [LOG, "out.swf", "--moldable", "amdahl"],
        [LOG, "out.jsonl", "--moldable", "amdahl", "--processors-per-instance", "8"],
        ["tests/data/leases.lwf", "out.jsonl", "--moldable", "downey"],
    ],
)
def test_moldable_is_from_a_log_alone(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / word) if word.startswith("out.") else word for word in words]

    assert main(["sim", "convert", *words]) == InputError.exit_code
    assert "--moldable is from a log" in capsys.readouterr().err
