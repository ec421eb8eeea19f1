"""Hostile texts in a real qmaster with the submit filter: others' commands are answered meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.contract.gridengine_cluster import Cluster
from tests.contract.gridengine_harness import cannot_run
from tests.daemons.gridengine.filter.filtered import filtered, submit
from tests.daemons.node.daemons import eventually

OTHERS_S = 30
# The longest argument that a program can be given is 128 KiB.
CONTEXT = "K=" + "\n" * 125_000
# Four at once, beside whatever is asked next: a host answers one question at a time.
HOSTILE = """rm -f /tmp/ends; for _ in 1 2 3 4; do
  (qsub -h -b y -ac "$1" sleep 1; echo $? >>/tmp/ends) >/dev/null 2>&1 </dev/null &
done"""
IMAGE = "OUTRIDER=image=" + "x" * 100_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cannot_run()
    with filtered() as made:
        yield made


@pytest.mark.parametrize("context", [CONTEXT, IMAGE, f"{CONTEXT},{IMAGE}"[:125_000]])
def test_others_are_answered_while_a_hostile_context_is_judged(cluster: Cluster, context: str) -> None:
    """Several at once, as many as the qmaster has filters or more."""
    cluster.attempt(["sh", "-c", HOSTILE, "sh", context], user="alice")
    begin_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    plain = submit(cluster)
    managed = submit(cluster, "-ac", "OUTRIDER=http://h/a")
    shown = cluster.attempt(["qstat", "-u", "*"], user="alice")
    took_s = time.clock_gettime(time.CLOCK_MONOTONIC) - begin_s

    def has_ended() -> bool:
        return len(cluster.attempt(["cat", "/tmp/ends"], user="alice")[1].split()) == 4

    eventually("the end of what is hostile", has_ended)

    assert (plain.code, managed.code, shown[0]) == (0, 0, 0), (plain, managed)
    assert took_s < OTHERS_S


@pytest.mark.parametrize("count", [3_000, 60_000])
def test_script_of_many_metadata_lines_is_refused_and_does_not_end_qsub(cluster: Cluster, count: int) -> None:
    """The filter of the client answered with a line that qsub has no room for: it ended with 139."""
    path = cluster.write("home/alice/lines.sh", "#!/bin/sh\n" + "#OUTRIDER image: x\n" * count)
    argv = ["qsub", "-jsv", "/media/bin/outrider_client_jsv.py", path]
    status, _, said = cluster.attempt(argv, user="alice")

    assert status == 1
    assert "at most 4000 can be handed on: write each key once" in said
