"""Submissions a second into a real Grid Engine: without a filter, with an empty one, with ours.

Each filter has a Grid Engine of its own, all on this machine. In a round each of them gets jobs of each
kind, in an order of chance and a few at a time, so that a machine that is busy for a while is busy for
all; what is compared is what a round's jobs took. The empty filter is persistent and in Python, too, and
accepts what it is told. `empty, ahead` differs from it in when it says STARTED, as ours does: what is
left is our verdict. `at the median` is the ratio of medians, then the quartiles of the rounds' ratios.
"""

from __future__ import annotations

import random
import shutil
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.frame import NOT_MEASURED, Arguments, lacking
from tests.contract.gridengine_cluster import Cluster, ClusterError, missing

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
AHEAD = """#!/usr/bin/python3 -ISBWignore
import os, sys
os.write(1, b"STARTED\\n")
for line in sys.stdin.buffer:
    if line == b"BEGIN\\n":
        os.write(1, b"RESULT STATE ACCEPT\\nSTARTED\\n")
    elif line == b"QUIT\\n":
        break
"""
NONE, FIRST = "no filter", "empty"
FILTERS = (NONE, FIRST, "empty, ahead", "ours")
SEED = 5
IMAGE = "'OUTRIDER=image=http://repository/ubuntu.qcow2;digest=sha256:" + "ab" * 32 + "'"
KINDS = {"plain jobs": "", "jobs with an image": f"-ac {IMAGE}"}
# Submitters at once, and jobs of each in a round.
LOADS = {"one after another": (1, 1), "4 at once": (4, 1)}
Case = tuple[str, str]


def submit(cluster: Cluster, options: str, submitters: int, jobs: int) -> float:
    """Jobs a second. They are held, so that nothing runs."""
    some = "; ".join([f"qsub -terse -b y -h {options} sleep 1"] * jobs)
    script = f"for each in {' '.join(map(str, range(submitters)))}; do ({some}) & done; wait"
    begun_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    status, output, error = cluster.attempt(["sh", "-c", script], user="alice")
    took_s = time.clock_gettime(time.CLOCK_MONOTONIC) - begun_s
    if status or output.count("\n") != submitters * jobs:
        raise ClusterError(f"not all jobs were taken: {error}")
    return submitters * jobs / took_s


def with_filter(cluster: Cluster, name: str) -> Cluster:
    if name == "ours":
        # The filter is one file and its parts beside it.
        for part in FILTER.parent.glob("outrider_jsv*.py"):
            shutil.copy(part, cluster.disk / "bin" / (part.name if part != FILTER else "filter"))
    else:
        cluster.write("bin/filter", EMPTY if name == FIRST else AHEAD)
    (cluster.disk / "bin" / "filter").chmod(0o755)
    cluster.set_global(jsv_url="none" if name == NONE else "script:/media/bin/filter")
    # Each of the qmaster's threads starts a filter of its own.
    submit(cluster, "", 4, 5)
    return cluster


def compared(rates: list[float], base: list[float]) -> str:
    """The median of both, and how they relate in the rounds."""
    ratios = [ours / its for ours, its in zip(rates, base, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    of_medians = statistics.median(rates) / statistics.median(base)
    return f"{statistics.median(rates):8.1f}{of_medians:14.0%}   ({low:.0%} to {high:.0%})"


def measured(clusters: dict[str, Cluster], rounds: int) -> dict[tuple[str, Case], list[float]]:
    chance = random.Random(SEED)
    blocks = [(name, load, kind) for name in clusters for load in LOADS for kind in KINDS]
    rates: dict[tuple[str, Case], list[float]] = {}
    for _ in range(rounds):
        chance.shuffle(blocks)
        for name, load, kind in blocks:
            rate = submit(clusters[name], KINDS[kind], *LOADS[load])
            rates.setdefault((name, (load, kind)), []).append(rate)
        for cluster in clusters.values():
            cluster.run(["qdel", "-u", "*"])
    return rates


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--rounds", 60, 2)
    given = parser.given()
    if lacking(missing() and f"needs {missing()}"):
        return NOT_MEASURED
    with ExitStack() as stack:
        clusters = {name: with_filter(stack.enter_context(Cluster()), name) for name in FILTERS}
        rates = measured(clusters, given.rounds)
    print(f"{'jobs a second':>61}    of the empty filter's, at the median")
    for load in LOADS:
        for kind in KINDS:
            for name in FILTERS:
                case = (load, kind)
                words = compared(rates[name, case], rates[FIRST, case])
                print(f"{load:20}{kind:20}{name:13}{words}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
