"""The thesis' own trace files."""

from collections import Counter
from pathlib import Path

import pytest

from outrider.core.model import Resources
from outrider.sim.workload.formats.thesis import published_trace, read_thesis_trace
from outrider.sim.workload.trace import WorkloadError

AR = "26;nfs:///i.img;600;4;512;50;RW;277;60;AR"
BATCH = "30;nfs:///i.img;600;2;512;50;RW;NULL;45;BATCH"


def trace_file(folder: Path, *lines: str) -> Path:
    path = folder / "a.trace"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(
    ("number", "submissions", "images"),
    [("I", 36, 110), ("II", 35, 106), ("III", 62, 144), ("IV", 62, 144)],
)
def test_published_traces_have_the_sizes_of_table_8_1(number: str, submissions: int, images: int) -> None:
    trace = published_trace(number)

    assert len(trace.submissions) == submissions
    assert sum(one.workspace.instances for one in trace.submissions) == images


@pytest.mark.parametrize(
    ("number", "shares"),
    [("III", [23, 18, 15, 18, 24, 3]), ("IV", [55, 27, 6, 5, 3, 3])],
)
def test_images_are_shared_out_as_in_table_8_2(number: str, shares: list[int]) -> None:
    counted = Counter(
        one.workspace.image.uri for one in published_trace(number).submissions if one.workspace.image
    )

    assert [round(100 * counted[uri] / 62) for uri in sorted(counted)] == shares


def test_reservation_starts_its_deadline_after_its_submission(tmp_path: Path) -> None:
    trace = read_thesis_trace(trace_file(tmp_path, "# a comment", "", AR))

    (only,) = trace.submissions
    assert (only.at_s, only.workspace.start_s, only.workspace.duration_s) == (26, 303, 60)
    assert only.workspace.resources == Resources.of(cpus=1)
    assert only.workspace.image is not None
    assert only.workspace.image.size_bytes == 600_000_000


def test_batch_is_parallel_unless_told_otherwise_and_a_reservation_always(
    tmp_path: Path,
) -> None:
    path = trace_file(tmp_path, AR, BATCH)

    serial = read_thesis_trace(path, is_parallel=False)

    assert [one.workspace.is_parallel for one in serial.submissions] == [True, False]
    assert read_thesis_trace(path).submissions[1].workspace.is_parallel
    assert serial.submissions[1].workspace.is_best_effort


def test_given_duration_replaces_that_of_the_file() -> None:
    trace = published_trace("I", duration_s=1800)

    assert {(one.workspace.duration_s, one.run_s) for one in trace.submissions} == {(1800, 1800)}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("26;x;600;4;512;50;RW;277;60", "line 2: 9 fields"),
        (AR.replace("277", "NULL"), "line 2: kind 'AR' with deadline 'NULL'"),
        (BATCH.replace("NULL", "5"), "line 2: kind 'BATCH' with deadline '5'"),
        (AR.replace(";4;", ";four;"), r"line 2: field 4 \(nodes\) is 'four'"),
        (AR.replace(";4;", ";0;"), "line 2: .*0 instances"),
        (AR.replace(";600;", ";0;"), "line 2: .*0 bytes"),
        (AR.replace("AR", "ARE"), "line 2: kind 'ARE'"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        read_thesis_trace(trace_file(tmp_path, "# a comment", line))


def test_lines_out_of_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"a\.trace: .*not in order"):
        read_thesis_trace(trace_file(tmp_path, BATCH, AR))


def test_trace_that_the_thesis_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="has I, II, III, IV"):
        published_trace("V")
