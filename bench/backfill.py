"""How fast the batch queue is: EASY on a real log, absolutely and in ratios.

    python bench/backfill.py HPC2N-2002-2.2-cln.swf.gz

or with the folder of logs in OUTRIDER_DATA; the short form takes an excerpt of another log. CPU
time, because machines are shared; the ratios are of two measurements in the same run, because
machines differ.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from math import log
from pathlib import Path
from time import process_time

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, lacking
from outrider.core.besteffort.counted import POLICIES, CountedQueue, EasyQueue, ProfileQueue
from outrider.sim.batch.counted import BatchLog, BatchResult, cleaned, run_batch, run_queue
from outrider.sim.results.metrics import measure
from outrider.sim.workload.formats.swf import read_log

LOG_NAME = "HPC2N-2002-2.2-cln.swf.gz"
EXCERPT = Path(__file__).parents[1] / "tests" / "data" / "datastar-excerpt.swf"
CAPACITY = 240
JOBS = 100_000
SIZES = (10_000, 50_000, 100_000, 200_000)
BASELINE_JOBS = 20_000
# In the middle of what other EASY simulators give for the same jobs (44.26 to 45.4).
EXPECTED_BOUNDED_SLOWDOWN = 44.3
REPEATS = 3


def main() -> int:
    parser = Arguments(__doc__)
    parser.add_argument("log", type=Path, nargs="?", help=f"else {LOG_NAME} of the folder OUTRIDER_DATA")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    given = parser.given()
    path = find_log(given)
    if path is None:
        lacking(
            f"there is no log to run: give its path as the argument, or set OUTRIDER_DATA "
            f"to a folder that holds {LOG_NAME}. The Parallel Workloads Archive has it: "
            f"HPC2N Seth, version 2.2, cleaned."
        )
        return NOT_MEASURED
    if given.once:
        report_once(path)
        return 0
    report_whole_process(path)
    whole = read(path, max(SIZES))
    report_growth(whole)
    report_baseline(whole)
    return 0


def find_log(given: argparse.Namespace) -> Path | None:
    path: Path | None = given.log or (EXCERPT if given.quick else None)
    if path is None:
        path = Path(os.environ.get("OUTRIDER_DATA", ".")) / LOG_NAME
    return path if path.is_file() else None


def read(path: Path, count: int) -> BatchLog:
    log = read_log(path, limit=count)
    return cleaned(zip(log.submit_s, log.run_s, log.processors, log.requested_s, strict=True))


def first(jobs: BatchLog, count: int) -> BatchLog:
    return BatchLog(
        submit_s=jobs.submit_s[:count],
        run_s=jobs.run_s[:count],
        processors=jobs.processors[:count],
        requested_s=jobs.requested_s[:count],
    )


def capacity_of(jobs: BatchLog) -> int:
    """Of HPC2N; the log of a larger machine has wider jobs."""
    return max(CAPACITY, *jobs.processors)


def simulate(jobs: BatchLog) -> BatchResult:
    return run_batch(
        jobs.submit_s,
        jobs.run_s,
        jobs.processors,
        jobs.requested_s,
        capacity=capacity_of(jobs),
        policy=POLICIES["aggressive"],
    )


def report_once(path: Path) -> None:
    """One process from its start to the schedule; what it prints is read by the parent."""
    jobs = read(path, JOBS)
    result = simulate(jobs)
    cpu_s = process_time()
    measures = measure(
        jobs.submit_s, result.start_s, result.end_s, jobs.processors, capacity=capacity_of(jobs)
    )
    print(len(jobs), cpu_s, measures.bounded_slowdown.mean, measures.utilisation)


def report_whole_process(path: Path) -> None:
    runs = []
    for _ in range(REPEATS):
        command = [sys.executable, __file__, "--once", str(path)]
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
        runs.append([float(word) for word in output.split()])
    count, cpu_s, mean, used = min(runs, key=lambda run: run[1])
    print(
        f"EASY, first {count:,.0f} jobs, interpreter start and reading included: "
        f"{cpu_s:.3f} CPU-s, {count / cpu_s:,.0f} jobs per CPU-s (best of {REPEATS})"
    )
    known = f", {mean / EXPECTED_BOUNDED_SLOWDOWN - 1:+.1%} from {EXPECTED_BOUNDED_SLOWDOWN}"
    print(f"mean bounded slowdown {mean:.2f}{known if path.name == LOG_NAME else ''}; utilisation {used:.3f}")


def report_growth(jobs: BatchLog) -> None:
    base = 0.0
    for size in sorted({min(size, len(jobs)) for size in SIZES}):
        part = first(jobs, size)
        cpu_s = min(timed(part) for _ in range(REPEATS))
        scaled = cpu_s / (len(part) * log(len(part)))
        base = base or scaled
        print(
            f"EASY, {len(part):>7,} jobs, simulation alone: {cpu_s:.3f} CPU-s, "
            f"{len(part) / cpu_s:,.0f} jobs per CPU-s, "
            f"growth against n log n {scaled / base:.2f}"
        )


def timed(jobs: BatchLog) -> float:
    before_s = process_time()
    simulate(jobs)
    return process_time() - before_s


def report_baseline(jobs: BatchLog) -> None:
    part = first(jobs, BASELINE_JOBS)
    queues: list[CountedQueue] = [
        EasyQueue(capacity=capacity_of(part)),
        ProfileQueue(POLICIES["aggressive"], capacity=capacity_of(part)),
    ]
    times_s, results = [], []
    for queue in queues:
        before_s = process_time()
        results.append(run_queue(part, queue))
        times_s.append(process_time() - before_s)
    same = "the same schedule" if results[0] == results[1] else "DIFFERENT SCHEDULES"
    print(
        f"EASY against the profile implementation, {len(part):,} jobs: "
        f"{times_s[0]:.3f} and {times_s[1]:.3f} CPU-s, "
        f"ratio {times_s[1] / times_s[0]:.1f}, {same}"
    )


if __name__ == "__main__":
    sys.exit(main())
