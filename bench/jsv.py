"""Submissions a second into a real Grid Engine: without a filter, with an empty one, with ours.

    python bench/jsv.py [jobs]

The empty one is persistent and in Python, too, and accepts whatever it is told: what is
measured is our decision, not Grid Engine's own way of talking to a filter. Rounds alternate, so that a
machine that is busy for a while slows all of them.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.rms.gridengine.cluster import Cluster, missing

FILTER = Path(__file__).resolve().parents[1] / "plugins" / "gridengine" / "outrider_jsv.py"
EMPTY = """#!/usr/bin/python3 -ISBWignore
import os, sys
for line in sys.stdin.buffer:
    if line == b"START\\n":
        os.write(1, b"STARTED\\n")
    elif line == b"BEGIN\\n":
        os.write(1, b"RESULT STATE ACCEPT\\n")
    elif line == b"QUIT\\n":
        break
"""
ROUNDS = 5
WARM = 6
PLAIN: tuple[str, ...] = ()
MANAGED = ("-ac", "OUTRIDER=image=http://repository/ubuntu.qcow2;digest=sha256:" + "ab" * 32)


def rate_per_s(cluster: Cluster, jobs: int, options: tuple[str, ...]) -> float:
    argv = ["qsub", "-b", "y", "-h", *options, "sleep", "1"]
    # Each of the qmaster's threads starts a filter of its own.
    for _ in range(WARM):
        cluster.run(argv, user="alice")
    begun_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    for _ in range(jobs):
        cluster.run(argv, user="alice")
    return jobs / (time.clock_gettime(time.CLOCK_MONOTONIC) - begun_s)


def main(argv: list[str]) -> int:
    absent = missing()
    if absent:
        print(f"this needs {absent}", file=sys.stderr)
        return 1
    jobs = int(argv[0]) if argv else 60
    cases = (("no filter", "none", MANAGED), ("empty filter", "empty", MANAGED),
             ("ours, plain jobs", "ours", PLAIN), ("ours, jobs with an image", "ours", MANAGED))  # fmt: skip
    rates: dict[str, list[float]] = {name: [] for name, _, _ in cases}
    with Cluster() as cluster:
        cluster.write("bin/empty", EMPTY)
        shutil.copy(FILTER, cluster.disk / "bin" / "ours")
        for name in ("empty", "ours"):
            (cluster.disk / "bin" / name).chmod(0o755)
        for _ in range(ROUNDS):
            for name, url, options in cases:
                cluster.set_global(jsv_url="none" if url == "none" else f"script:/media/bin/{url}")
                rates[name].append(rate_per_s(cluster, jobs, options))
    empty = statistics.median(rates["empty filter"])
    for name, found in rates.items():
        median = statistics.median(found)
        print(f"{name:26} {median:6.1f} jobs/s  {100 * median / empty:4.0f} % of the empty filter's")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
