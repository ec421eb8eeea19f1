"""jobs.csv: its columns, its numbers, and that nothing is lost on the way."""

from __future__ import annotations

import csv
import io

import pytest

from outrider.sim.results.joblog import JobRow, intervals_of, intervals_text, read_jobs, write_jobs

ROWS = [
    JobRow(
        number=7,
        workload="kth, first week",
        submit_s=10,
        requested_s=100,
        start_s=30,
        end_s=70,
        allocated=((0, 3), (7, 7)),
    ),
    JobRow(
        number=8,
        workload="kth, first week",
        submit_s=20,
        requested_s=50,
        start_s=20,
        end_s=20,
        allocated=((4, 4),),
        is_success=False,
    ),
]


def written(rows: list[JobRow]) -> io.StringIO:
    file = io.StringIO()
    write_jobs(rows, file)
    file.seek(0)
    return file


def test_the_columns_are_those_that_batsim_writes_and_evalys_reads() -> None:
    first, second = csv.DictReader(written(ROWS))

    assert first == {
        "job_id": "7",
        "workload_name": "kth, first week",
        "submission_time": "10",
        "requested_number_of_resources": "5",
        "requested_time": "100",
        "success": "1",
        "starting_time": "30",
        "execution_time": "40",
        "finish_time": "70",
        "waiting_time": "20",
        "turnaround_time": "60",
        "stretch": "1.5",
        "allocated_resources": "0-3 7",
    }
    assert (second["success"], second["execution_time"]) == ("0", "0")
    assert second["stretch"] == "1.0"


def test_what_was_written_is_read_back_the_same() -> None:
    assert read_jobs(written(ROWS)) == ROWS


@pytest.mark.parametrize("text", ["0-3 7", "5", "", "0-1 3-4 6"])
def test_intervals_and_their_text_are_the_same_thing(text: str) -> None:
    assert intervals_text(intervals_of(text)) == text


def test_a_job_that_starts_before_its_submission_is_refused() -> None:
    with pytest.raises(ValueError, match=r"job 1 was submitted at 5 s.*not in this order"):
        JobRow(
            number=1,
            workload="w",
            submit_s=5,
            requested_s=1,
            start_s=4,
            end_s=5,
            allocated=((0, 0),),
        )
