"""What Grid Engine's hooks cost a warm job: prolog, starter and epilog as a shepherd runs them, and none.

One node with a daemon, as it is installed: the guard, the scripts, an image in the pool. In turn, in the
same run: a job's command alone; the same between the hooks for a job that has no image; and for one that
has. The median of each, and what the hooks add. Needs root and a C compiler.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, lacking, without_root
from cachemgr.base.clock import SystemClock
from tests.daemons.gridengine.hooks.node import ARGUMENTS, USER, Node, node, ticket

CLOCK = SystemClock()
LONGEST_S = 600
# Two of these start for a job with an image: nothing in Python can be faster.
PYTHON = ("/usr/bin/python3", "-I", "-S")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--runs", 40, 2)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.given()
    if without_root("to be the shepherd") or lacking(None if shutil.which("cc") else "needs a C compiler"):
        return NOT_MEASURED
    if not given.inside:
        words = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, "--inside"]
        return subprocess.run([*words, "--runs", str(given.runs)], timeout=LONGEST_S).returncode
    with node() as found:
        # Hooks look below /run: this bench has one of its own, which ends with it.
        subprocess.run(["mount", "--bind", str(found.run_folder), "/run"], check=True, timeout=20)
        found.serve()
        measure(found, given.runs)
        found.end()
        subprocess.run(["umount", "--lazy", "/run"], check=True, timeout=20)
    return 0


def measure(found: Node, runs: int) -> None:
    kinds: dict[str, Callable[[], None]] = {
        "no hooks": lambda: command([], {}),
        "a bare python3 -I -S": lambda: hook([*PYTHON, "-c", "pass"], {}),
        "hooks, job without image": lambda: between(found, {}),
        "hooks, job with image": lambda: between(found, {"OUTRIDER_TICKET": ticket()}),
    }
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(runs):
        for kind, run in kinds.items():
            begin_s = CLOCK.monotonic_s()
            run()
            taken[kind].append((CLOCK.monotonic_s() - begin_s) * 1000)
    none_ms = statistics.median(taken["no hooks"])
    print(f"{runs} runs each, median and 90 % of wall ms of the whole job (true), for user {USER}")
    for kind, times in taken.items():
        median_ms, late_ms = statistics.median(times), sorted(times)[len(times) * 9 // 10]
        print(f"{kind:26} {median_ms:7.1f} {late_ms:7.1f}   adds {median_ms - none_ms:6.1f}")


def between(found: Node, variables: dict[str, str]) -> None:
    folder = found.lib / "gridengine"
    hook([str(folder / "prolog"), *ARGUMENTS["prolog"]], variables)
    command([str(folder / "starter")], variables)
    hook([str(folder / "epilog"), *ARGUMENTS["epilog"]], variables)


def hook(argv: list[str], variables: dict[str, str]) -> None:
    subprocess.run(argv, env={"PATH": PATH, **variables}, check=True, timeout=60)


def command(starter: list[str], variables: dict[str, str]) -> None:
    given = {"PATH": PATH, "JOB_ID": "17", "JOB_SCRIPT": "/media/job_scripts/17", **variables}
    mode = {"SGE_STARTER_SHELL_PATH": "/bin/sh", "SGE_STARTER_SHELL_START_MODE": "unix_behavior"}
    subprocess.run([*starter, "/bin/true"], env={**given, **mode}, check=True, timeout=60)


if __name__ == "__main__":
    raise SystemExit(main())
