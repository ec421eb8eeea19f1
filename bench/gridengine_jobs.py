"""What it costs to change one job of a real Grid Engine in which many wait, against a look at all of them.

For each number of waiting jobs: a whole look, and a note at one of them. What a change costs should not
grow with the jobs of others, so the last line compares the changes among most and fewest, beside the same
ratio of looks. Half of the jobs are the changed job's owner's, which is what is listed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.frame import NOT_MEASURED, Arguments, lacking
from tests.contract.gridengine_cluster import missing
from tests.contract.gridengine_harness import GridEngineHarness, the_cluster
from tests.contract.harness import Scene

JOBS = (10, 300, 1000)
ROUNDS = 15
QUICK_JOBS = (4, 8)
QUICK_ROUNDS = 2
METADATA = "OUTRIDER=image=http://repository/ubuntu.qcow2"
QSUB = f"qsub -terse -h -b y -l h_rt=600 -ac {METADATA} sleep 1"


def took_s(what: Callable[[], object], rounds: int) -> float:
    """The median of some rounds."""
    found = []
    for _ in range(rounds):
        begin_s = time.perf_counter()
        what()
        found.append(time.perf_counter() - begin_s)
    return statistics.median(found)


def main() -> int:
    parser = Arguments(__doc__)
    parser.add_argument("jobs", type=int, nargs="*", help="how many wait; several numbers")
    given = parser.given()
    if lacking(missing() and f"needs {missing()}"):
        return NOT_MEASURED
    rounds = QUICK_ROUNDS if given.quick else ROUNDS
    counts = sorted(set(given.jobs or (QUICK_JOBS if given.quick else JOBS)))
    cluster = the_cluster()
    harness = GridEngineHarness(cluster)
    harness.empty()
    system, job = harness.system, Scene(harness).waiting_job()
    seen = []
    print(f"{'jobs':>6} {'a look':>10} {'a note at one':>14} {'of a look':>10}")
    for count in counts:
        wanted = count - len(system.look().jobs)
        for user, some in (("alice", wanted // 2), ("bob", wanted - wanted // 2)):
            script = f"i=0; while [ $i -lt {some} ]; do {QSUB}; i=$((i + 1)); done >/dev/null"
            cluster.attempt(["sh", "-ec", script], user=user, timeout_s=600)
        look_s, note_s = (
            took_s(system.look, rounds),
            took_s(lambda: system.note(job, "is on its way"), rounds),
        )
        seen.append((look_s, note_s))
        print(f"{count:6} {look_s * 1000:7.0f} ms {note_s * 1000:11.0f} ms {note_s / look_s:9.0%}")
    looks, notes = zip(*seen, strict=True)
    print(
        f"with {counts[-1]} jobs a look takes {looks[-1] / looks[0]:.1f} times as long as with {counts[0]}, "
        f"a note {notes[-1] / notes[0]:.1f} times"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
