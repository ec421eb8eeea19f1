"""What the submit filter adds to an sbatch: without it, with it and no workspace, with a workspace.

Private Slurms run side by side: one without filters, one with that of slurmctld, which the bound
is for, one with that of the client, too, and one whose client has a filter that does nothing. In
each round every kind of job is handed in once, in turn, so that whatever else the machine does
meets all alike; the first kind comes twice, which shows how much of a difference is noise. All
jobs are held by their user, so that none of them runs. Needs root and Slurm.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench.frame import NOT_MEASURED, Arguments, judged, lacking, without_root
from tests.daemons.slurm.filter.slurm_site import ADA, PATH, Site, loader, missing, site

if TYPE_CHECKING:
    from collections.abc import Iterator

BOUND_MS = 1.0
# Scripts of megabytes are rare and slow by themselves: shown, not judged, and less often.
RARELY = 5
BODY = "#SBATCH --hold\n#SBATCH --output=/dev/null\n" + "# words of a usual script\n" * 20 + "hostname\n" * 30
PLAIN = "#!/bin/sh\n" + BODY
WORKSPACE = (
    "#!/bin/sh\n#OUTRIDER image: https://images.example.org/ubuntu.qcow2\n"
    f"#OUTRIDER digest: sha256:{'0' * 64}\n#OUTRIDER size: 2GiB\n" + BODY
)
LARGE = PLAIN + "# filler\n" * 400_000
EMPTY = "".join(
    f"function slurm_cli_{name}() return slurm.SUCCESS end\n"
    for name in ("setup_defaults", "pre_submit", "post_submit")
)
# Runs inside, so that nothing is measured but the command: a line in, nanoseconds out.
TIMER = """\
import os, sys, time
null = os.open(os.devnull, os.O_RDWR)
for line in sys.stdin:
    begin = time.monotonic_ns()
    child = os.posix_spawnp("sbatch", ["sbatch", line.strip()], os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)])
    code = os.waitpid(child, 0)[1]
    print(time.monotonic_ns() - begin, code, flush=True)
"""
KINDS = {
    "no filter": ("bare", PLAIN),
    "no filter, again": ("bare", PLAIN),
    "filter, no workspace": ("filtered", PLAIN),
    "filter, workspace": ("filtered", WORKSPACE),
    "client's, empty": ("empty", PLAIN),
    "both, no workspace": ("both", PLAIN),
    "both, workspace": ("both", WORKSPACE),
    "no filter, 3.6 MB": ("bare", LARGE),
    "filter, 3.6 MB": ("filtered", LARGE),
}


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--rounds", 300, 10)
    given = parser.given()
    if without_root("for private Slurms") or lacking(
        ", ".join(missing()) and f"needs {', '.join(missing())}"
    ):
        return NOT_MEASURED
    with ExitStack() as stack:
        submit = {"job_submit.lua": loader("job_submit.lua")}
        client = {"cli_filter.lua": loader("cli_filter.lua")}
        more = "JobSubmitPlugins=lua"
        sites = {
            "bare": stack.enter_context(site()),
            "filtered": stack.enter_context(site(files=submit, more=more)),
            "empty": stack.enter_context(
                site(files={"cli_filter.lua": EMPTY}, more="CliFilterPlugins=cli_filter/lua")
            ),
            "both": stack.enter_context(
                site(files=submit | client, more=f"{more}\nCliFilterPlugins=cli_filter/lua")
            ),
        }
        timers = {name: stack.enter_context(timer(each)) for name, each in sites.items()}
        times_ms = measured(sites, timers, given.rounds)
    return judged(given, is_good=told(times_ms, given.rounds))


@contextmanager
def timer(inside: Site) -> Iterator[subprocess.Popen[str]]:
    """A process inside that times each sbatch it is asked for."""
    environment = {"PATH": PATH, "SLURM_CONF": str(inside.folder / "slurm.conf"), "LC_ALL": "C"}
    argv = inside.command([sys.executable, "-c", TIMER], ADA if readable() else 0)
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def readable() -> bool:
    """Whether other users can start this Python."""
    return all(os.stat(each).st_mode & 0o001 for each in Path(sys.executable).resolve().parents)


def measured(
    sites: dict[str, Site], timers: dict[str, subprocess.Popen[str]], rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of each kind of job, in rounds of a random order with a fixed seed."""
    order = random.Random(1)
    for number, (where, script) in enumerate(KINDS.values()):
        (sites[where].folder / "jobs" / f"{number}.sh").write_text(script)
    times_ms: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for round_number in range(rounds + 5):
        for number, kind in order.sample(list(enumerate(KINDS)), len(KINDS)):
            if is_large(kind) and round_number % RARELY:
                continue
            process = timers[KINDS[kind][0]]
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{number}.sh\n")
            process.stdin.flush()
            elapsed_ns, code = process.stdout.readline().split()
            if code != "0":
                raise SystemExit(f"sbatch of {kind!r} failed with {code}\n{sites[KINDS[kind][0]].logs()}")
            if round_number >= 5:
                times_ms[kind].append(int(elapsed_ns) / 1e6)
    return times_ms


def is_large(kind: str) -> bool:
    return "MB" in kind


def told(times_ms: dict[str, list[float]], rounds: int) -> bool:
    medians = {kind: statistics.median(each) for kind, each in times_ms.items()}
    bare_ms = statistics.median(times_ms["no filter"] + times_ms["no filter, again"])
    print(f"sbatch, median of {rounds} rounds; the filter may add {BOUND_MS} ms")
    worst_ms = 0.0
    for kind, median_ms in medians.items():
        base_ms = medians["no filter, 3.6 MB"] if is_large(kind) else bare_ms
        if kind.startswith("filter") and not is_large(kind):
            worst_ms = max(worst_ms, median_ms - base_ms)
        print(
            f"  {kind:20} {median_ms:7.2f} ms  {median_ms - base_ms:+6.2f} ms  x {median_ms / base_ms:.3f}"
            f"   (quartiles {', '.join(f'{each:.2f}' for each in statistics.quantiles(times_ms[kind], n=4))})"
        )
    words = "within" if worst_ms <= BOUND_MS else "ABOVE"
    print(f"  the filter adds up to {worst_ms:+.2f} ms: {words} the bound")
    return worst_ms <= BOUND_MS


if __name__ == "__main__":
    raise SystemExit(main())
