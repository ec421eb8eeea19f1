"""What a log means as a trace, and the thesis' excerpt of the DataStar log."""

import os
from itertools import cycle
from pathlib import Path

import pytest

from outrider.core.model import Image, Resources
from outrider.sim.workload.formats.swf import SwfLog, read_log
from outrider.sim.workload.formats.swf_trace import COMPLETED, log_nodes, log_trace
from outrider.sim.workload.formats.thesis import published_trace
from outrider.sim.workload.images import uniform_images
from outrider.sim.workload.trace import Trace, WorkloadError
from tests.repository import ROOT

EXCERPT = ROOT / "tests" / "data" / "datastar-excerpt.swf"
EXPRESS_QUEUE = 1
JOBS = range(21543, 21665)
WHOLE_LOG = "SDSC-DS-2004-2.1-cln.swf.gz"


def small_log(**changed: list[int]) -> SwfLog:
    columns = {
        "job": [1, 2],
        "submit_s": [20, 10],
        "wait_s": [-1, -1],
        "run_s": [60, 90],
        "processors": [8, 5],
        "requested_processors": [8, 5],
        "requested_s": [100, -1],
        "status": [1, 1],
        "user": [3, -1],
        "group": [-1, -1],
        "executable": [-1, -1],
        "queue": [1, 1],
    }
    return SwfLog(header=("; MaxProcs: 10",), **(columns | changed))


def rows(trace: Trace) -> list[tuple[int, int, int]]:
    return [(one.at_s, one.run_s, one.workspace.instances) for one in trace.submissions]


def datastar_excerpt(log: SwfLog) -> Trace:
    """The 62 submissions that the thesis took from the DataStar log for traces III and IV.

    Which image each one got is not in the log, so six are dealt in turn.
    """
    found = [
        row
        for row in range(len(log))
        if log.queue[row] == EXPRESS_QUEUE and log.status[row] == COMPLETED and log.job[row] in JOBS
    ]
    return log_trace(
        log.rows(found),
        name="datastar-excerpt",
        processors_per_instance=4,
        images=cycle(uniform_images(6).images),
        origin_s=min(log.submit_s[row] for row in found),
    )


def test_datastar_excerpt_has_the_figures_of_the_thesis() -> None:
    trace = datastar_excerpt(read_log(EXCERPT))

    instances = [one.workspace.instances for one in trace.submissions]
    moved = [
        one.workspace.instances * one.workspace.image.size_bytes
        for one in trace.submissions
        if one.workspace.image
    ]
    runs = [one.run_s for one in trace.submissions]
    assert (len(instances), sum(instances), sum(moved)) == (62, 144, 86_400_000_000)
    assert round(sum(runs) / len(runs), 2) == 53.06


@pytest.mark.parametrize("number", ["III", "IV"])
def test_datastar_excerpt_equals_the_published_trace_row_by_row(number: str) -> None:
    assert rows(datastar_excerpt(read_log(EXCERPT))) == rows(published_trace(number))


@pytest.mark.skipif(
    not Path(os.environ.get("OUTRIDER_DATA", ""), WHOLE_LOG).is_file(),
    reason="OUTRIDER_DATA names no folder with the whole DataStar log",
)
def test_whole_datastar_log_gives_the_same_excerpt() -> None:
    whole = read_log(Path(os.environ["OUTRIDER_DATA"], WHOLE_LOG))

    assert len(whole) == 96_069
    assert datastar_excerpt(whole).submissions == datastar_excerpt(read_log(EXCERPT)).submissions


def test_jobs_come_in_order_of_arrival_and_round_up_to_instances() -> None:
    trace = log_trace(small_log(), name="t", processors_per_instance=4, origin_s=10)

    assert rows(trace) == [(0, 90, 2), (10, 60, 2)]
    assert [one.workspace.name for one in trace.submissions] == ["job2", "job1"]
    assert [one.user for one in trace.submissions] == ["", "3"]


def test_job_asks_for_its_request_or_else_for_its_run_time() -> None:
    trace = log_trace(small_log(), name="t")

    assert [one.workspace.duration_s for one in trace.submissions] == [90, 100]


def test_job_that_ran_longer_than_requested_is_cut_there() -> None:
    trace = log_trace(small_log(requested_s=[50, 50]), name="t")

    assert [one.run_s for one in trace.submissions] == [50, 50]


@pytest.mark.parametrize("column", ["run_s", "processors"])
def test_job_that_cannot_be_played_is_left_out(column: str) -> None:
    trace = log_trace(small_log(**{column: [-1, 4]}), name="t")

    assert [one.workspace.name for one in trace.submissions] == ["job2"]


def test_images_are_dealt_in_order_of_arrival_and_must_last() -> None:
    first, second = (Image(uri=uri, size_bytes=1) for uri in ("a", "b"))

    trace = log_trace(small_log(), name="t", images=cycle([first, second]))

    assert [one.workspace.image for one in trace.submissions] == [first, second]
    with pytest.raises(WorkloadError, match="1 images for 2 jobs"):
        log_trace(small_log(), name="t", images=[first])


def test_nodes_follow_the_header() -> None:
    nodes = log_nodes(small_log(), processors_per_node=5)

    assert [(node.name, node.capacity) for node in nodes] == [
        ("n1", Resources.of(cpus=5)),
        ("n2", Resources.of(cpus=5)),
    ]
    with pytest.raises(WorkloadError, match="no MaxProcs"):
        log_nodes(SwfLog())
