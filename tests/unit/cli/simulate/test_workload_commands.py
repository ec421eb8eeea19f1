"""`outrider sim convert` and `outrider sim generate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.sim.workload.formats.convert import read_trace
from outrider.sim.workload.formats.swf import read_log
from outrider.sim.workload.formats.thesis import published_trace
from outrider.sim.workload.trace import Trace
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


ROW = "long,000-025,25-75"


def drawn(tmp_path: Path, *line: str) -> Trace:
    path = tmp_path / "drawn.jsonl"
    assert main(["sim", "generate", "mixed", "--row", ROW, *line, "-o", str(path)]) == 0
    return read_trace(path)


def test_every_parameter_of_the_mixed_generator_is_taken(tmp_path: Path) -> None:
    trace = drawn(
        tmp_path,
        *(
            "--requests",
            "60",
            "--length",
            "7200",
            "--nodes",
            "4",
            "--slots",
            "3",
            "--best-effort-share",
            "40",
        ),
        *("--tolerance", "30", "--best-effort-mean", "500", "--best-effort-deviation", "0", "--spread", "20"),
        *("--work", "1000-90000", "--reservation-nodes", "2-3", "--reservation-duration", "600-900"),
        *("--lead", "100-100", "--transfer", "20", "--granularity", "30", "--attempts", "200"),
        *("--images", "2", "--image-size", "1GB", "--instances-per-transfer", "3", "--late"),
    )

    leases = [each for each in trace.submissions if not each.workspace.is_best_effort]
    jobs = [each.workspace for each in trace.submissions if each.workspace.is_best_effort]
    assert leases
    assert jobs
    assert [node.capacity["cpus"] for node in trace.nodes] == [3] * 4
    assert {job.duration_s for job in jobs} == {500}
    assert {image.size_bytes for each in trace.submissions if (image := each.workspace.image)} == {10**9}
    assert len({image.uri for each in trace.submissions if (image := each.workspace.image)}) == 2
    for each in leases:
        workspace, start_s = each.workspace, each.workspace.start_s or 0
        assert workspace.instances in (2, 3)
        assert 600 <= workspace.duration_s <= 900
        assert start_s % 30 == workspace.duration_s % 30 == 0
        # One transfer of 20 s for up to three instances, and as long again, rounded up to 30 s.
        assert start_s == -(-(each.at_s + 40) // 30) * 30 <= 7200 + 30


def test_every_parameter_of_the_other_generators_is_taken(tmp_path: Path) -> None:
    disk, feasible = tmp_path / "disk.jsonl", tmp_path / "feasible.jsonl"
    images = ("--image-shares", "1,0,3", "--image-size", "1GB")

    assert main([
        "sim", "generate", "disk", "-o", str(disk), *images, "--reservations", "40",
        "--reservation-nodes", "2-3", "--length", "7200", "--mean", "300", "--spread", "0",
        "--transfer", "20", "--granularity", "50", "--nodes", "4", "--slots", "3",
    ]) == 0  # fmt: skip
    assert main([
        "sim", "generate", "feasible", "-o", str(feasible), *images, "--reservations", "10",
        "--reservation-nodes", "2-2", "--length", "9000", "--duration", "77", "--window", "60",
        "--period", "1000", "--tightness", "200-200", "--transfer", "20", "--overhead", "0", "--slots", "4",
        "--attempts", "5000",
    ]) == 0  # fmt: skip

    one, other = read_trace(disk), read_trace(feasible)
    assert [node.capacity["cpus"] for node in one.nodes] == [3] * 4
    assert (len(one.submissions), len(other.submissions)) == (40, 10)
    for each in (*one.submissions, *other.submissions):
        image = each.workspace.image
        assert image is not None
        assert (image.uri in ("image-1", "image-3"), image.size_bytes) == (True, 10**9)
    for each in one.submissions:
        workspace, start_s = each.workspace, each.workspace.start_s or 0
        assert (workspace.duration_s, start_s % 50) == (300, 0)
        assert workspace.instances in (2, 3)
        # Its own transfers of 20 s come first.
        assert 40 <= start_s <= 7250
    for each in other.submissions:
        start_s = each.workspace.start_s or 0
        assert (each.workspace.instances, each.workspace.duration_s) == (2, 77)
        assert start_s % 1000 < 60
        assert start_s < 9000
        assert start_s - each.at_s == 2 * 2 * 20


def test_a_generator_that_cannot_draw_so_many_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "few.jsonl")

    assert main(["sim", "generate", "feasible", "-o", path, "--slots", "4", "--length", "300"]) == 1
    assert "reservations could be admitted" in capsys.readouterr().err


def test_a_mixture_has_every_row_with_its_part(tmp_path: Path) -> None:
    trace = drawn(tmp_path, "--row", "short,075-100,75-25")

    work: dict[str, int] = {}
    for each in trace.submissions:
        kind = each.workspace.name.partition("-")[0]
        work[kind] = work.get(kind, 0) + each.workspace.instances * each.workspace.duration_s
    # 10 to 10.5 hours of 16 slots, half of it of each row.
    assert all(16 * 36_000 / 2 <= each <= 16 * 37_800 / 2 for each in work.values())
    assert sorted(work) == ["1", "2"]
    nodes = {each.workspace.instances for each in trace.submissions if each.workspace.start_s is not None}
    assert min(nodes) <= 4
    assert max(nodes) >= 13


@pytest.mark.parametrize(
    "line",
    [
        ["--work", "5"],
        ["--reservation-nodes", "3-2"],
        ["--reservation-nodes", "9-99"],
        ["--image-shares", "0,0"],
    ],
)
def test_impossible_parameters_are_refused(line: list[str], tmp_path: Path) -> None:
    path = tmp_path / "drawn.jsonl"

    assert main(["sim", "generate", "mixed", "--row", ROW, *line, "-o", str(path)]) == 1
    assert not path.exists()
