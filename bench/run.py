"""Every benchmark, one after the other, each in a process of its own, with how long it took.

One that lacks something (root, Slurm, Grid Engine, a log of the Parallel Workloads Archive in the
folder OUTRIDER_DATA) says so, and does not count. Without options it takes some ten minutes in all:
those that take long by themselves get fewer rounds or a smaller site, or run in their short form.
`--full` gives each the time that its figures in the documentation took: hours.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED
from cachemgr.base.clock import SystemClock

FOLDER = Path(__file__).parent
CLOCK = SystemClock()


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """A script of this folder, or a package; `brief` is what it is given unless everything is asked for."""

    name: str
    brief: tuple[str, ...] = ()

    def command(self, options: list[str]) -> list[str]:
        if (FOLDER / self.name).is_dir():
            return [sys.executable, "-m", f"bench.{self.name}", *options]
        return [sys.executable, str(FOLDER / f"{self.name}.py"), *options]


QUICK = ("--quick",)
BENCHMARKS = (
    # The simulator and the core.
    Benchmark(name="mixed"),
    Benchmark(name="leases", brief=("--repeats=2",)),
    Benchmark(name="gangs", brief=("--gangs=3000", "--short=300", "--nodes=64")),
    Benchmark(name="admission", brief=("--decisions=5000",)),
    Benchmark(name="options", brief=("--requests=10000", "--decisions=200")),
    Benchmark(name="backfill"),
    Benchmark(name="schedule"),
    Benchmark(name="switch", brief=QUICK),
    # The node.
    Benchmark(name="pool", brief=("--size-mib=256", "--images=10000")),
    Benchmark(name="hook", brief=("--size=256MiB",)),
    Benchmark(name="relay", brief=("--nodes=8", "--mib=64")),
    Benchmark(name="layers", brief=("--mib=200",)),
    Benchmark(name="apptainer"),
    Benchmark(name="machines", brief=("--rounds=1", "--memory-mib=128,512")),
    Benchmark(name="machines_beside", brief=("--memory-mib=128,512",)),
    # The service.
    Benchmark(name="service", brief=("--nodes=2000", "--reservations=2000", "--times=2")),
    Benchmark(name="heads", brief=("--nodes=2000", "--reservations=2000", "--decisions=100", "--starts=2")),
    Benchmark(name="page", brief=("--nodes=2000", "--reservations=2000", "--times=2")),
    Benchmark(name="desk_scale", brief=("--nodes=2000", "--jobs=1000", "--others=3000")),
    # Slurm and Grid Engine.
    Benchmark(name="racks", brief=("--mib=64",)),
    Benchmark(name="submit", brief=("--rounds=50",)),
    Benchmark(name="slurm_start", brief=("--rounds=10",)),
    Benchmark(name="burst_start", brief=("--rounds=3",)),
    Benchmark(name="slurm_naive", brief=QUICK),
    Benchmark(name="slurm_scale", brief=("--nodes=1000", "--jobs=300", "--images=10", "--seconds=15")),
    Benchmark(name="slurm_accuracy", brief=QUICK),
    Benchmark(name="waiting", brief=("--jobs=40", "--reservations=6", "--seconds=90")),
    Benchmark(name="consolidation", brief=QUICK),
    Benchmark(name="machine_story", brief=QUICK),
    Benchmark(name="jsv", brief=("--rounds=5",)),
    Benchmark(name="gridengine_start"),
    Benchmark(name="gridengine_jobs"),
    Benchmark(name="physical", brief=("--quick", "--only", "III/pool")),
    # What must stay right however it is treated.
    Benchmark(name="stress", brief=("--seconds=15",)),
    Benchmark(name="kill", brief=("--rounds=5",)),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the short form of each")
    parser.add_argument("--full", action="store_true", help="the long form of each; hours")
    names = [each.name for each in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"these only: {', '.join(names)}")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(names))
    if unknown:
        parser.error(f"no benchmark {unknown[0]}: there are {', '.join(names)}")
    failed = []
    for each in BENCHMARKS:
        if given.names and each.name not in given.names:
            continue
        options = QUICK if given.quick else () if given.full else each.brief
        print(f"== {each.name} {' '.join(options)}".rstrip(), flush=True)
        began_s = CLOCK.monotonic_s()
        code = subprocess.run(each.command(list(options)), check=False, cwd=FOLDER.parent).returncode
        print(f"-- {each.name}: {CLOCK.monotonic_s() - began_s:.0f} s", flush=True)
        if code not in (0, NOT_MEASURED):
            failed.append(each.name)
    print(f"failed or beyond a bound: {', '.join(failed)}" if failed else "nothing failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
