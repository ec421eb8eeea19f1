"""jobs.csv: one row a job, with Batsim's columns, which evalys plots as they are."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

from outrider.sim.batch.counted import Intervals
from outrider.sim.results.metrics import slowdown

COLUMNS = (
    "job_id",
    "workload_name",
    "submission_time",
    "requested_number_of_resources",
    "requested_time",
    "success",
    "starting_time",
    "execution_time",
    "finish_time",
    "waiting_time",
    "turnaround_time",
    "stretch",
    "allocated_resources",
)
NAME = "name"
"""A column of ours behind them, where a workload has names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRow:
    """A job that has ended, and the processors it had."""

    number: int
    workload: str
    submit_s: int
    requested_s: int
    start_s: int
    end_s: int
    allocated: Intervals
    is_success: bool = True
    name: str = ""
    """What a workload calls it; nothing where it has a number alone."""

    def __post_init__(self) -> None:
        if not self.submit_s <= self.start_s <= self.end_s:
            raise ValueError(
                f"job {self.number} was submitted at {self.submit_s} s, started at "
                f"{self.start_s} s and ended at {self.end_s} s: not in this order"
            )

    @property
    def processors(self) -> int:
        return sum(high - low + 1 for low, high in self.allocated)


def write_jobs(rows: Iterable[JobRow], file: TextIO) -> None:
    """Writes jobs.csv. Open the file with newline='', as the csv module wants it."""
    writer = csv.writer(file, lineterminator="\n")
    rows = list(rows)
    has_names = any(row.name for row in rows)
    writer.writerow((*COLUMNS, NAME) if has_names else COLUMNS)
    for row in rows:
        run_s = row.end_s - row.start_s
        wait_s = row.start_s - row.submit_s
        writer.writerow(
            (
                row.number,
                row.workload,
                row.submit_s,
                row.processors,
                row.requested_s,
                int(row.is_success),
                row.start_s,
                run_s,
                row.end_s,
                wait_s,
                wait_s + run_s,
                slowdown(wait_s, run_s),
                intervals_text(row.allocated),
                *((row.name,) if has_names else ()),
            )
        )


def read_jobs(file: TextIO) -> list[JobRow]:
    """Reads what `write_jobs` wrote; derived columns are not looked at."""
    return [
        JobRow(
            number=int(fields["job_id"]),
            workload=fields["workload_name"],
            submit_s=int(fields["submission_time"]),
            requested_s=int(fields["requested_time"]),
            start_s=int(fields["starting_time"]),
            end_s=int(fields["finish_time"]),
            allocated=intervals_of(fields["allocated_resources"]),
            is_success=fields["success"] == "1",
            name=fields.get(NAME, ""),
        )
        for fields in csv.DictReader(file)
    ]


def intervals_text(intervals: Intervals) -> str:
    """For instance "0-3 7"."""
    return " ".join(f"{low}-{high}" if low < high else f"{low}" for low, high in intervals)


def intervals_of(text: str) -> Intervals:
    """The intervals of, for instance, "0-3 7"."""
    intervals = []
    for part in text.split():
        low, _, high = part.partition("-")
        intervals.append((int(low), int(high or low)))
    return tuple(intervals)
