"""Telling the form of a workload file, and turning one form into another."""

import gzip
from pathlib import Path

import pytest

from outrider.core.model import Image, Resources, Workspace
from outrider.sim.workload.formats.convert import Form, form_of, read_trace, trace_log, write_trace
from outrider.sim.workload.formats.thesis import published_trace
from outrider.sim.workload.images import uniform_images
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError
from tests.repository import ROOT

DATA = ROOT / "tests" / "data"
EXCERPT, LEASES = DATA / "datastar-excerpt.swf", DATA / "leases.lwf"
THESIS = "# a comment; with semicolons\n26;nfs:///i.img;600;4;512;50;RW;277;60;AR\n"


def sample(folder: Path, form: Form) -> bytes:
    if form is Form.SWF:
        return EXCERPT.read_bytes()
    if form is Form.HAIZEA:
        return LEASES.read_bytes()
    if form is Form.THESIS:
        return THESIS.encode()
    write_trace(folder / "sample.jsonl", published_trace("III"))
    return (folder / "sample.jsonl").read_bytes()


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("is_packed", [False, True])
def test_form_is_told_by_content_when_the_name_does_not_tell(
    tmp_path: Path, form: Form, is_packed: bool
) -> None:
    data = sample(tmp_path, form)
    path = tmp_path / "workload"
    path.write_bytes(gzip.compress(data) if is_packed else data)

    assert form_of(path) is form
    assert len(read_trace(path).submissions) > 0


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.swf", Form.SWF),
        ("a.SWF.gz", Form.SWF),
        ("a.trace", Form.THESIS),
        ("a.lwf", Form.HAIZEA),
        ("a.xml", Form.HAIZEA),
        ("a.jsonl.gz", Form.NATIVE),
    ],
)
def test_form_is_told_by_name_without_opening_the_file(name: str, form: Form) -> None:
    assert form_of(name if form is not Form.SWF else Path(name.lower())) is form


def test_log_without_a_header_is_told_by_its_eighteen_fields(tmp_path: Path) -> None:
    path = tmp_path / "workload"
    path.write_text(" ".join(["1"] * 18) + "\n")

    assert form_of(path) is Form.SWF


def test_unknown_content_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "workload"
    path.write_text("once upon a time\n")

    with pytest.raises(WorkloadError, match=r"workload: no known form.*name it \.swf"):
        read_trace(path)


@pytest.mark.parametrize("form", Form)
def test_limit_keeps_the_first_submissions(tmp_path: Path, form: Form) -> None:
    path = tmp_path / f"a{form.value}"
    path.write_bytes(sample(tmp_path, form))
    everything = read_trace(path)

    assert read_trace(path, limit=1).submissions == everything.submissions[:1]


def test_option_of_another_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"duration_s is for \.trace files.*is \.swf"):
        read_trace(EXCERPT, duration_s=5)
    with pytest.raises(WorkloadError, match=r"images is for \.swf files"):
        read_trace(LEASES, images=uniform_images(1).images)


@pytest.mark.parametrize("source", [EXCERPT, LEASES])
def test_anything_becomes_our_own_form_and_stays_the_same(tmp_path: Path, source: Path) -> None:
    trace = read_trace(source)

    write_trace(tmp_path / "t.jsonl.gz", trace)

    assert read_trace(tmp_path / "t.jsonl.gz") == trace


def test_parallel_best_effort_survives_the_way_through_a_log(tmp_path: Path) -> None:
    trace = published_trace("IV")

    write_trace(tmp_path / "t.swf", trace)

    back = read_trace(tmp_path / "t.swf")
    assert [(one.at_s, one.run_s, one.workspace.instances) for one in back.submissions] == [
        (one.at_s, one.run_s, one.workspace.instances) for one in trace.submissions
    ]


def test_images_and_users_of_a_log_are_numbered_in_order_of_appearance() -> None:
    first, second = (Image(uri=uri, size_bytes=9) for uri in ("b\n", "a"))
    trace = Trace(
        name="t",
        submissions=tuple(
            TraceSubmission(
                at_s=0,
                workspace=Workspace(
                    name="w",
                    instances=2,
                    resources=Resources.of(cpus=4),
                    duration_s=5,
                    image=image,
                ),
                run_s=5,
                user=user,
            )
            for image, user in ((first, "zoe"), (second, ""), (first, "ada"), (None, "zoe"))
        ),
    )

    log = trace_log(trace)

    assert log.executable == [1, 2, 1, -1]
    assert log.user == [1, -1, 2, 1]
    assert log.processors == [8, 8, 8, 8]
    assert log.header[-2:] == (
        "; Executable: 1 b\\n (9 bytes)",
        "; Executable: 2 a (9 bytes)",
    )


def test_empty_trace_is_an_empty_log() -> None:
    assert len(trace_log(Trace(name="t", submissions=()))) == 0


def test_reservation_and_serial_workspace_are_refused_in_a_log(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="vw1 is a reservation"):
        write_trace(tmp_path / "t.swf", published_trace("I"))
    serial = Workspace(
        name="s",
        instances=2,
        resources=Resources.of(cpus=1),
        duration_s=1,
        is_parallel=False,
    )
    with pytest.raises(WorkloadError, match="s is serial"):
        trace_log(Trace(name="t", submissions=(TraceSubmission(at_s=0, workspace=serial, run_s=1),)))
    assert list(tmp_path.iterdir()) == []


def test_form_that_is_not_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"t\.xml: traces are written as"):
        write_trace(tmp_path / "t.xml", published_trace("I"))
