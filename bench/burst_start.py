"""What it costs that a job's image is asked for, where it is on all nodes already: one job, and a burst.

A Slurm or a Grid Engine of three nodes with four slots each, with Outrider as its installer sets it up: it
looks at the batch system every 10 s, and a submit filter wakes it. In each round, in turn: one job without an
image, one with, a burst without, a burst with. The time is from the call of the first sbatch or qsub until
the last job's first line runs. Of a burst it is also said on how many nodes the jobs ran. With `--asleep`
the filter does not wake the service. Needs root, and the batch system.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking
from bench.slurm_records import CLOCK, load
from testbed import gridenginesite, slurm
from testbed.batchcluster import HEAD, BatchCluster
from testbed.clustersite import ServedImage
from testbed.gridenginesite import GridEngineSite
from testbed.site import OutriderSite
from testbed.site import site_cluster as slurm_site_cluster

NODES = 3
RATE_BITS_PER_S = 1_000_000_000
LINK_BYTES_PER_S = 100_000_000
IMAGE_BYTES = 8_000_000
TIMINGS = {"timings": {"look": "10s"}}
MORE_MS = 1000
SETTINGS = {
    "slurm": {"default": "batch_sched_delay=3", "quick": "batch_sched_delay=0,sched_interval=2"},
    "gridengine": {"default": "0:0:15", "quick": "0:0:1"},
}
# So long a job that is released waits for the scheduler at the most, however quickly that was done.
CYCLES_S = {
    ("slurm", "default"): 3,
    ("slurm", "quick"): 1,
    ("gridengine", "default"): 15,
    ("gridengine", "quick"): 1,
}
SCRIPT = "#!/bin/sh\n{lines}echo $(date +%s.%N) $(hostname) end\n"
# Runs on the head as the user: an order in; of each job when it was called, its first line, its host out.
CLIENT = """\
import json, os, subprocess, sys, time
for line in sys.stdin:
    order = json.loads(line)
    jobs, told = {}, []
    for number in range(order["count"]):
        path = f"burst-{order['round']}-{number}.out"
        began_s = time.time()
        done = subprocess.run([*order["argv"], "-o", os.path.abspath(path)], input=order["script"], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        jobs[path] = began_s
        if done.returncode:
            told.append([began_s, 0, done.stderr])
            del jobs[path]
    until_s = time.time() + 120
    while jobs and time.time() < until_s:
        time.sleep(0.02)
        for path in list(jobs):
            words = open(path).read().split() if os.path.exists(path) else []
            if words and words[-1] == "end":
                told.append([jobs.pop(path), float(words[0]), words[1]])
    told += [[began_s, 0, "it has not run within 120 s"] for began_s in jobs.values()]
    print(json.dumps(told), flush=True)
"""


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--rounds", 10, 1)
    parser.add("--jobs", 20, 4)
    parser.add_argument("--system", choices=sorted(SETTINGS), default="slurm")
    parser.add_argument(
        "--scheduler",
        choices=("default", "quick"),
        default="quick",
        help="its interval as a new site has it, or about a second",
    )
    parser.add_argument("--asleep", action="store_true", help="the filter does not wake the service")
    given = parser.given()
    lacks = slurm.missing() if given.system == "slurm" else gridenginesite.missing()
    if lacking(lacks):
        return NOT_MEASURED
    interval = SETTINGS[given.system][given.scheduler]
    with installed(given.system, interval, is_asleep=given.asleep) as site, client(site.cluster) as process:
        image = site.image("warm.qcow2", IMAGE_BYTES)
        bring(site, given.system, image, process)
        print(f"{given.system}, {interval}: {given.rounds} rounds, {load()}", flush=True)
        times, hosts = measured(site, given.system, image, process, given.rounds, given.jobs)
        print(f"at the end {load()}")
    return judged(given, is_good=told(times, hosts, given.jobs, CYCLES_S[given.system, given.scheduler]))


@contextmanager
def installed(system: str, interval: str, *, is_asleep: bool) -> Iterator[OutriderSite | GridEngineSite]:
    made: OutriderSite | GridEngineSite
    if system == "slurm":
        lines = [f"SchedulerParameters={interval}"]
        with slurm_site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S, slurm_conf_lines=lines) as cluster:
            made = OutriderSite(cluster, link_bytes_per_s=LINK_BYTES_PER_S, settings=TIMINGS)
            if is_asleep:
                text = cluster.run(HEAD, ["cat", "/etc/slurm/job_submit.lua"]).stdout
                cluster.write(HEAD, "/etc/slurm/job_submit.lua", f"outrider_wake = false\n{text}")
            made.install()
            yield made
        return
    # As Debian's package sets it, but for the interval.
    scheduler = {"schedule_interval": interval}
    with gridenginesite.site_cluster(
        NODES, rate_bits_per_s=RATE_BITS_PER_S, scheduler=scheduler
    ) as ge_cluster:
        made = GridEngineSite(ge_cluster, link_bytes_per_s=LINK_BYTES_PER_S, settings=TIMINGS)
        if is_asleep:
            ge_cluster.write(HEAD, "/etc/outrider/jsv.json", '{"wake": ""}')
        made.install()
        yield made


@contextmanager
def client(cluster: BatchCluster) -> Iterator[subprocess.Popen[str]]:
    """A process on the head that hands jobs in, and waits until they have run."""
    argv, environment = cluster.command(HEAD, ["/usr/bin/python3", "-c", CLIENT], user="ada")
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def argv_of(system: str, image: ServedImage | None, node: str | None = None) -> tuple[list[str], str]:
    """The command and the script of a job that wants one slot."""
    if system == "slurm":
        lines = "" if image is None else image.lines
        return ["sbatch", "--parsable", "-t1", *([f"-w{node}"] if node else [])], SCRIPT.format(lines=lines)
    context = [] if image is None else ["-ac", f"OUTRIDER=image={image.uri};digest={image.digest}"]
    on = ["-l", f"h={node}"] if node else []
    return ["qsub", "-terse", "-j", "y", *context, *on], SCRIPT.format(lines="")


def bring(
    site: OutriderSite | GridEngineSite, system: str, image: ServedImage, process: subprocess.Popen[str]
) -> None:
    """The image on all nodes."""
    for number, node in enumerate(site.cluster.nodes):
        run(site, process, *argv_of(system, image, node), 1, f"bring-{number}")


def run(
    site: OutriderSite | GridEngineSite,
    process: subprocess.Popen[str],
    argv: list[str],
    script: str,
    count: int,
    number: str,
) -> tuple[float, int]:
    """So many jobs; how long it took in ms, and on how many nodes they ran."""
    assert process.stdin is not None
    assert process.stdout is not None
    order = {"argv": argv, "script": script, "count": count, "round": number}
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()
    told = json.loads(process.stdout.readline())
    lost = [words for _, at_s, words in told if not at_s]
    if lost:
        raise SystemExit(f"{number}: {lost[0]}\n{site.logs()}")
    took_s = max(at_s for _, at_s, _ in told) - min(called_s for called_s, _, _ in told)
    return 1000 * took_s, len({host for _, _, host in told})


def measured(
    site: OutriderSite | GridEngineSite,
    system: str,
    image: ServedImage,
    process: subprocess.Popen[str],
    rounds: int,
    jobs: int,
) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """By kind of round, how long each took in ms, and on how many nodes its jobs ran."""
    kinds: dict[str, tuple[ServedImage | None, int]] = {
        "one job, no image": (None, 1),
        "one job, image on all nodes": (image, 1),
        f"{jobs} jobs, no image": (None, jobs),
        f"{jobs} jobs, image on all nodes": (image, jobs),
    }
    random = Random(1)
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    hosts: dict[str, list[int]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        for kind, (wanted, count) in kinds.items():
            # A scheduler's rhythm must not meet ours, and what ran before is over.
            CLOCK.sleep(2 + random.uniform(0, 3))
            took_ms, found = run(
                site,
                process,
                *argv_of(system, wanted),
                count,
                f"{number}-{count}-{wanted is not None}",
            )
            times[kind].append(took_ms)
            hosts[kind].append(found)
    return times, hosts


def told(times: dict[str, list[float]], hosts: dict[str, list[int]], jobs: int, cycle_s: int) -> bool:
    """Whether neither one job nor a burst takes longer by more than it may."""
    print(f"{'':32} {'median ms':>10} {'least':>8} {'most':>8} {'nodes':>6}")
    for kind, found_ms in times.items():
        print(
            f"{kind:32} {statistics.median(found_ms):10.0f} {min(found_ms):8.0f} {max(found_ms):8.0f} "
            f"{min(hosts[kind]):6}"
        )
    plain_one, one, plain_burst, burst = (statistics.median(each) for each in times.values())
    more_ms = max(one - plain_one, burst - plain_burst)
    words = "within" if more_ms <= MORE_MS + 1000 * cycle_s else "ABOVE"
    print(
        f"an image that is there costs one job {one - plain_one:+.0f} ms and {jobs} jobs "
        f"{burst - plain_burst:+.0f} ms, {words} {MORE_MS} ms beside the scheduler's own cycle of {cycle_s} s"
    )
    return words == "within"


if __name__ == "__main__":
    raise SystemExit(main())
