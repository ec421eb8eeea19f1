"""Outrider's own trace form."""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.model import Image, Node, Resources, Workspace
from outrider.sim.workload.formats import native
from outrider.sim.workload.formats.native import read_native, write_native
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError
from tests.repository import ROOT

FORMATS = ROOT / "docs" / "reference/formats.md"
HEADER = {"format": "outrider-trace", "version": 1, "name": "t", "images": {
    "i1": {"uri": "a", "size_bytes": 5}}}  # fmt: skip
LINE = {"at_s": 0, "name": "w", "instances": 1, "resources": {"cpus": 1}, "duration_s": 9}

texts = st.text(max_size=8)
names = st.text(min_size=1, max_size=8)
amounts = st.dictionaries(names, st.integers(0, 10**15), max_size=3).map(Resources.from_mapping)
images = st.builds(Image, uri=names, size_bytes=st.integers(1, 10**15), digest=texts)
nodes = st.builds(Node, name=texts, capacity=amounts, pool_bytes=st.none() | st.integers(0, 10**15))


@st.composite
def submissions(draw: st.DrawFn) -> TraceSubmission:
    duration_s = draw(st.integers(1, 10**9))
    start_s = draw(st.none() | st.integers(0, 10**10))
    slack_s = draw(st.none() | st.integers(0, 10**9))
    has_deadline = start_s is not None and slack_s is not None
    workspace = Workspace(
        name=draw(texts),
        instances=draw(st.integers(1, 10**6)),
        resources=draw(amounts),
        duration_s=duration_s,
        image=draw(st.none() | images),
        start_s=start_s,
        finish_by_s=(start_s or 0) + duration_s + (slack_s or 0) if has_deadline else None,
        is_parallel=draw(st.booleans()),
        is_preemptible=draw(st.booleans()),
    )
    return TraceSubmission(
        at_s=draw(st.integers(-(10**6), 10**10)),
        workspace=workspace,
        run_s=draw(st.integers(0, duration_s)),
        user=draw(texts),
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    arrived = sorted(draw(st.lists(submissions(), max_size=5)), key=lambda one: one.at_s)
    return Trace(
        name=draw(texts),
        submissions=tuple(arrived),
        nodes=tuple(draw(st.lists(nodes, max_size=3))),
    )


def trace_file(folder: Path, *lines: object) -> Path:
    path = folder / "t.jsonl"
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines))
    return path


@settings(deadline=None)
@given(trace=traces(), suffix=st.sampled_from([".jsonl", ".jsonl.gz"]))
def test_what_is_written_is_read_back_exactly(trace: Trace, suffix: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, f"t{suffix}")
        write_native(path, trace)

        assert read_native(path) == trace


def test_same_trace_gives_the_same_packed_bytes(tmp_path: Path) -> None:
    trace = Trace(name="t", submissions=())
    write_native(tmp_path / "a.jsonl.gz", trace)
    write_native(tmp_path / "b.jsonl.gz", trace)

    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_absent_keys_have_the_documented_values(tmp_path: Path) -> None:
    (only,) = read_native(trace_file(tmp_path, HEADER, LINE)).submissions

    assert (only.run_s, only.user, only.workspace.image) == (9, "", None)
    assert only.workspace.is_best_effort
    assert only.workspace.is_parallel
    assert only.workspace.is_preemptible


def test_image_is_found_by_its_label(tmp_path: Path) -> None:
    (only,) = read_native(trace_file(tmp_path, HEADER, LINE | {"image": "i1"})).submissions

    assert only.workspace.image == Image(uri="a", size_bytes=5)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: not JSON"),
        ("[" * 100_000, "line 3: not JSON"),
        ("[1]", "line 3: not a JSON object"),
        (LINE | {"start": 5}, "line 3: unknown key 'start'"),
        (LINE | {"at_s": 1.5}, "line 3: 'at_s' is 1.5; it must be a whole number"),
        (LINE | {"at_s": True}, "line 3: 'at_s' is True"),
        ({"at_s": 0}, "line 3: 'name' is missing"),
        (LINE | {"resources": {"cpus": -1}}, "line 3: resource cpus is -1"),
        (LINE | {"resources": [1]}, "line 3: 'resources' is .*an object"),
        (LINE | {"image": "i9"}, "line 3: image 'i9' is not among"),
        (LINE | {"run_s": 10}, "line 3: .*runs 10 s"),
        (LINE | {"instances": 0}, "line 3: .*0 instances"),
        (LINE | {"is_parallel": 1}, "line 3: 'is_parallel' is 1; it must be true or false"),
        (LINE | {"finish_by_s": 5}, "line 3: .*a deadline needs"),
        (LINE | {"at_s": -1}, "not in order of arrival"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, line: object, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        read_native(trace_file(tmp_path, HEADER, LINE, line))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("", "empty; the first line is the header"),
        ({"name": "t"}, "line 1: no .*another format"),
        (HEADER | {"version": 2}, "line 1: version 2, but .* reads version 1"),
        (HEADER | {"node": []}, "line 1: unknown key 'node'"),
        (HEADER | {"images": {"i1": {"uri": "a", "size_bytes": 0}}}, "line 1: .*0 bytes"),
        (
            HEADER | {"images": {"i1": {"uri": "a", "size": 1}}},
            "line 1: unknown key 'size'",
        ),
        (
            HEADER | {"nodes": [{"name": "n", "capacity": {}, "pool_bytes": -1}]},
            "line 1: node n",
        ),
    ],
)
def test_bad_header_is_named(tmp_path: Path, header: object, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        read_native(trace_file(tmp_path, header))


def test_failed_writing_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    write_native(path, Trace(name="old", submissions=()))
    broken = Trace(name="new", submissions=(), nodes=(None,))  # type: ignore[arg-type]

    with pytest.raises(AttributeError):
        write_native(path, broken)

    assert read_native(path).name == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_unwritable_folder_is_an_error_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"t\.jsonl: cannot be written"):
        write_native(tmp_path / "nowhere" / "t.jsonl", Trace(name="t", submissions=()))


def test_documentation_lists_exactly_the_keys_of_a_submission() -> None:
    section = FORMATS.read_text().split("| key of a submission")[1].split("\n\n")[0]

    assert set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE)) == native._SUBMISSION_KEYS
