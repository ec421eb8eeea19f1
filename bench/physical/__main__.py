"""Run the experiments, some side by side, and write what came out.

    python -m bench.physical                 the thesis' twelve runs, and what it did not have
    python -m bench.physical --quick         the first requests of each trace, in a faster time
    python -m bench.physical --only III/pool one of them, printed and not written

Needs root, Grid Engine, gcc and matplotlib, and a machine that does little else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.frame import NOT_MEASURED, lacking
from bench.physical import experiments, measured, report
from bench.slurm_records import load
from cachemgr.base.clock import SystemClock
from testbed.gridengine import missing

FACTOR, LANES = 40, 4
QUICK_FACTOR, QUICK_REQUESTS = 60, 10
RUN_S = 1200
POLL_S = 0.2


def main() -> int:
    given = _arguments()
    if lacking(missing()):
        return NOT_MEASURED
    if given.one:
        clock = SystemClock()
        outcome = measured.measure(given.one, factor=given.factor, clock=clock, most_requests=given.requests)
        Path(given.json).write_text(json.dumps(outcome))
        return 0
    if given.quick:
        given.factor, given.requests = QUICK_FACTOR, given.requests or QUICK_REQUESTS
    names = given.only or [
        *(each.name for each in experiments.THESIS),
        *([] if given.thesis else [each.name for each in experiments.BEYOND]),
    ]
    unknown = sorted(set(names) - set(experiments.ALL))
    if unknown:
        print(f"no experiment {unknown[0]}: there are {', '.join(experiments.ALL)}", file=sys.stderr)
        return 2
    print(f"{len(names)} runs, {given.lanes} at a time, 1 s for {given.factor} s; {load()}", flush=True)
    found = _all(names, given)
    print(f"at the end {load()}")
    report.print_all(found)
    if given.output is not None:
        report.write_all(found, given.output)
        # What draws is loaded last: most runs draw nothing.
        from bench.physical import plots

        plots.draw_all(found, given.output / "figures")
    return 0 if len(found) == len(names) and not any(each["leftovers"] for each in found) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.physical", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--factor", type=int, default=FACTOR, help="of time and sizes (default: %(default)s)")
    parser.add_argument("--lanes", type=int, default=LANES, help="runs at a time (default: %(default)s)")
    parser.add_argument("--requests", type=int, help="only the first of each trace")
    parser.add_argument("--thesis", action="store_true", help="not what the thesis did not have")
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_REQUESTS} requests, factor {QUICK_FACTOR}"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these runs, such as III/pool")
    parser.add_argument(
        "--output", type=Path, metavar="DOCS", help="write results/ and figures/ of this folder"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--json", help=argparse.SUPPRESS)
    return parser.parse_args()


def _all(names: list[str], given: argparse.Namespace) -> list[report.Found]:
    """Each run is a process of its own, so that a cluster ends with it, however it ends."""
    clock = SystemClock()
    # The longest first, so that no lane is left with one of them in the end.
    waiting = sorted(names, key=lambda name: experiments.ALL[name].strategy is None)
    running: dict[str, tuple[subprocess.Popen[str], float]] = {}
    found: dict[str, report.Found] = {}
    with tempfile.TemporaryDirectory(prefix="physical-") as folder:
        while waiting or running:
            while waiting and len(running) < given.lanes:
                name = waiting.pop(0)
                running[name] = (_begun(name, _file(folder, name), given), clock.monotonic_s())
            clock.sleep(POLL_S)
            for name, (process, since_s) in list(running.items()):
                took_s = clock.monotonic_s() - since_s
                if process.poll() is None and took_s > RUN_S:
                    process.kill()
                if process.poll() is None:
                    continue
                del running[name]
                said = process.communicate()[1].strip()
                if process.returncode == 0:
                    found[name] = json.loads(_file(folder, name).read_text())
                    print(f"  {name}: {took_s:.0f} s", flush=True)
                else:
                    print(f"  {name}: failed after {took_s:.0f} s: {said[-2000:]}", flush=True)
    return [found[name] for name in names if name in found]


def _begun(name: str, file: Path, given: argparse.Namespace) -> subprocess.Popen[str]:
    # However this process ends, its runs end, and with each its cluster.
    argv = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "bench.physical"]
    argv += ["--one", name, "--json", str(file)]
    argv += ["--factor", str(given.factor)]
    argv += [] if given.requests is None else ["--requests", str(given.requests)]
    root = Path(__file__).parents[2]
    return subprocess.Popen(argv, cwd=root, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


def _file(folder: str, name: str) -> Path:
    return Path(folder, name.replace("/", "-") + ".json")


if __name__ == "__main__":
    raise SystemExit(main())
