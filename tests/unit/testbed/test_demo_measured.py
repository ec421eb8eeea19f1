"""What the demo on Slurm says of a job's start is what the logs say."""

from __future__ import annotations

import pytest

from testbed.demo.measured import ComparedJob, MeasuredStart, sent_bytes, start_of, table

LOG = """[2026-11-22T23:59:58.900] _slurm_rpc_submit_batch_job: JobId=17 InitPrio=4294901757 usec=512
[2026-11-22T23:59:59.000] _slurm_rpc_submit_batch_job: JobId=18 InitPrio=4294901756 usec=512
[2026-11-22T23:59:59.400] sched: Allocate JobId=17 NodeList=n[1-2] #CPUs=2 Partition=main
[2026-11-23T00:00:01.100] sched/backfill: _start_job: Started JobId=18 in main on n[3-4]
"""
OUTPUT = """23:59:59.700  the job begins
23:59:59.900  the image is on n2
00:00:02.400  the image is on n1: /var/lib/outrider/pool/instances/1/disk
"""


def test_delay_runs_from_submission_to_the_last_node_also_over_midnight() -> None:
    start = start_of("17", LOG, OUTPUT, 5)

    assert (start.waited_ms, start.own_ms, start.delay_ms) == (500, 3_000, 3_500)


def test_job_that_backfilling_has_started_is_found() -> None:
    assert start_of("18", LOG, OUTPUT, 5).waited_ms == 2_100


def test_job_of_a_reservation_waits_from_its_start_on() -> None:
    begins_ms = ((23 * 60 + 59) * 60 + 59) * 1_000

    assert start_of("17", LOG, OUTPUT, 5, begins_ms).waited_ms == 400


def test_bytes_are_counted_for_each_image() -> None:
    log = """10.77.1.1 - - [22/Nov/2026 04:57:06] "GET /render.qcow2 HTTP/1.1" 200 -
10.77.1.1 - - [22/Nov/2026 04:57:07] sent bytes=100 path=/render.qcow2
10.77.1.1 - - [22/Nov/2026 04:57:08] sent bytes=7 path=/render.qcow2
10.77.1.1 - - [22/Nov/2026 04:57:08] sent bytes=30 path=/train.qcow2
10.77.1.1 - - [22/Nov/2026 04:57:08] sent bytes=65 path=/train.qcow2.sha256
"""

    assert (sent_bytes(log, "render"), sent_bytes(log, "train"), sent_bytes(log, "solve")) == (107, 30, 0)


@pytest.mark.parametrize("wanted", ["render    3.50 s   3.00 s     1.0 MiB   0.60 s   0.10 s     0 B"])
def test_table_sums_up_both_ways(wanted: str) -> None:
    usual = MeasuredStart(waited_ms=500, own_ms=3_000, sent_bytes=1 << 20)
    ours = MeasuredStart(waited_ms=500, own_ms=100, sent_bytes=0)

    shown = table(
        [
            ComparedJob(name="render", usual=usual, ours=ours),
            ComparedJob(name="again", usual=usual, ours=ours),
        ]
    )

    assert wanted.split() == next(line for line in shown.splitlines() if line.startswith("render")).split()
    together = next(line for line in shown.splitlines() if line.startswith("together")).split()
    assert " ".join(together) == "together 7.00 s 6.00 s 2.0 MiB 1.20 s 0.20 s 0 B"
