"""A real qmaster with jobs that are sent back, and with whatever users can put into names, is read whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outrider.rms.gridengine import parsing
from testbed.batchcluster import HEAD
from testbed.gridengine import GridEngineCluster
from tests.daemons.testbed.clusters import needs_gridengine

ODD = ("<b>", "&", "]]>", "<!--", "&#1;", "\x01", "\x1b[0m", "\n", "é", "'\"", "<JATASK: 1.>", "%s", "&lt;")
PLACES = {
    "-N": "x{}", "-A": "x{}", "-ac": "K=x{}", "-v": "K=x{}", "-wd": "/tmp/x{}", "-o": "/tmp/x{}",
    "-M": "ada{}@x", "-S": "/bin/x{}", "-l": "h=x{}", "-q": "x{}",
}  # fmt: skip
LOOKS = 100
SUBMIT = """for option in "$@"; do
  name=${option%%:*} value=${option#*:}
  [ "$name" = argument ] && set -- -b y /bin/true "$value" || set -- "$name" "$value" -b y /bin/true
  qsub -terse -h "$@" 2>/dev/null
done; true"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[GridEngineCluster]:
    needs_gridengine()
    # Two reports long a node is cleaned up.
    configuration = {"load_report_time": "00:00:05"}
    with GridEngineCluster(
        nodes=2, configuration=configuration, scheduler={"schedd_job_info": "true"}
    ) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_jobs(cluster: GridEngineCluster) -> Iterator[None]:
    yield
    cluster.run(HEAD, ["qdel", "-f", "-u", "*"], check=False)
    cluster.wait_idle()


def printed(cluster: GridEngineCluster, *words: str) -> str:
    return cluster.run(HEAD, ["qstat", "-xml", *words]).stdout


@pytest.mark.repeats(
    "tests/contract/test_contract_of_requeues.py::test_requeue_means_one_run_and_no_later_one"
)
def test_jobs_that_are_sent_back_are_read(cluster: GridEngineCluster) -> None:
    """While nodes are cleaned up after them, qstat may print an element whose name has a blank: it depends on
    when it is asked, so it is asked often, and whatever comes has to be read."""
    again = ("-r", "y", "-o", "/dev/null", "-j", "y")
    jobs = [cluster.qsub("#!/bin/sh\nsleep 1; exit 99\n", *again, *more) for more in ((), ("-t", "1-2"))]
    lost: list[str] = []
    texts: list[str] = []

    def is_enough() -> bool:
        texts.append(printed(cluster, "-j", "*"))
        return "<job ids>" in texts[-1] or len(texts) == LOOKS

    cluster.wait_for(f"{LOOKS} looks, or an element whose name has a blank", is_enough)
    found = [parsing.details(text, lost.append) for text in texts]

    assert [sorted(each) for each in found] == [jobs] * len(found)
    assert lost == []


def test_whatever_users_write_is_read(cluster: GridEngineCluster) -> None:
    wanted = [f"{name}:{form.format(odd)}" for name, form in PLACES.items() for odd in ODD]
    wanted += [f"argument:{odd}" for odd in ODD]
    done = cluster.run(HEAD, ["sh", "-c", SUBMIT, "sh", *wanted], user="ada")
    jobs = {line.partition(".")[0] for line in done.stdout.split()}
    lost: list[str] = []

    details = parsing.details(printed(cluster, "-j", "*"), lost.append)
    rows = parsing.tasks(printed(cluster, "-g", "t", "-u", "*"), lost.append)

    # Some of it is refused by qsub.
    assert len(jobs) > len(wanted) // 2
    assert (set(details), {row.number for row in rows}) == (jobs, jobs)
    assert lost == []
