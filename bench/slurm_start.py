"""What a warm job's start costs with Outrider: beside the same job on a Slurm that knows nothing of it.

Three private Slurms run side by side: one plain, one with hooks that do nothing in the places where
Outrider's are, and one with Outrider installed as on a site. In each
round every kind of job is handed in once, alone, in turn, so that whatever else the machine does
meets all alike; the first kind comes twice, which shows how much of a difference is noise. Three
moments of each: sbatch is called, slurmctld gives the job its nodes (its own log), and the first line
of the job's script runs. Needs root and Slurm.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking
from bench.slurm_records import CLOCK, load, starts_s
from testbed.site import OutriderSite, ServedImage, site_cluster
from testbed.slurm import HEAD, SlurmCluster, missing

BOUND_MS = 60
RATE_BITS_PER_S = 1_000_000_000
LINK_BYTES_PER_S = 100_000_000
IMAGE_BYTES = 8_000_000
NODES = 2
WARM_UP = 2
# What Slurm itself takes for running any hooks at these places.
IDLE = (
    "Prolog=/bin/true",
    "Epilog=/bin/true",
    "TaskProlog=/bin/true",
)
ROUND_S = 60
# Runs on the head as the user: a line of options in; job, and when it was called and answered, out.
CLIENT = """\
import json, os, subprocess, sys, time
for line in sys.stdin:
    order = json.loads(line)
    began_s = time.time()
    done = subprocess.run(["sbatch", "--parsable", *order["options"]], input=order["script"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    answered_s = time.time()
    job, path = done.stdout.strip(), ""
    until_s, told = time.time() + 60, ""
    while job and time.time() < until_s and not told.endswith("\\n"):
        time.sleep(0.01)
        path = f"slurm-{job}.out"
        told = open(path).read() if os.path.exists(path) else ""
    while job and time.time() < until_s:
        state = subprocess.run(["squeue", "-h", "-a", "-t", "all", "-j", job, "-o", "%T"],
            stdout=subprocess.PIPE, text=True).stdout.strip()
        if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
            break
        time.sleep(0.05)
    print(json.dumps([job, began_s, answered_s, told or done.stderr]), flush=True)
"""
SCRIPT = "#!/bin/sh\n{lines}date +%s.%N\n"


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to start a job."""

    name: str
    where: str
    options: tuple[str, ...] = ()
    lines: str = ""
    against: str = "plain Slurm"


@dataclass(slots=True)
class Times:
    """Milliseconds of each job of a kind."""

    submit: list[float] = field(default_factory=list)
    wait: list[float] = field(default_factory=list)
    begin: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SeenStarts:
    """What was seen of one job."""

    kind: str
    job: str
    called_s: float
    answered_s: float
    first_line_s: float


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--rounds", 40, 2)
    given = parser.given()
    if lacking(missing()):
        return NOT_MEASURED
    with ExitStack() as stack:
        plain = stack.enter_context(SlurmCluster(nodes=NODES, rate_bits_per_s=RATE_BITS_PER_S))
        idle = stack.enter_context(
            SlurmCluster(nodes=NODES, rate_bits_per_s=RATE_BITS_PER_S, slurm_conf_lines=IDLE)
        )
        cluster = stack.enter_context(site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S))
        site = OutriderSite(cluster, link_bytes_per_s=LINK_BYTES_PER_S)
        site.install()
        kinds = prepared(plain, site)
        clients = {
            "plain": stack.enter_context(client(plain)),
            "idle": stack.enter_context(client(idle)),
            "outrider": stack.enter_context(client(cluster)),
        }
        print(f"{given.rounds} rounds, {load()}", flush=True)
        seen = measured(kinds, clients, given.rounds, site)
        print(f"at the end {load()}")
        started = {"plain": starts_s(plain), "idle": starts_s(idle), "outrider": starts_s(cluster)}
    return judged(given, is_good=told(kinds, seen, started))


def prepared(plain: SlurmCluster, site: OutriderSite) -> list[Kind]:
    """Reservations that have begun on both, and the image on a node."""
    image = site.image("warm.qcow2", IMAGE_BYTES)
    plain.run(
        HEAD,
        [
            *("scontrol", "create", "reservation", "ReservationName=mine", "StartTime=now"),
            *("Duration=60", "Users=ada", "Nodes=n1", "Flags=IGNORE_JOBS"),
        ],
    )
    job = site.submit(SCRIPT.format(lines=image.lines), "-t1")
    site.cluster.wait_job(job)
    name, node = reserved(site, image)
    free = next(each for each in site.cluster.nodes if each != node)
    return [
        Kind("plain Slurm", "plain", ("-wn2",)),
        Kind("plain Slurm, again", "plain", ("-wn2",)),
        Kind("hooks that do nothing", "idle", ("-wn2",)),
        Kind("Outrider, job without an image", "outrider", (f"-w{free}",)),
        Kind("plain Slurm, reservation", "plain", ("--reservation=mine",)),
        Kind(
            "Outrider, warm, reservation",
            "outrider",
            (f"--reservation={name}",),
            against="plain Slurm, reservation",
        ),
        Kind("Outrider, warm, best effort", "outrider", (), image.lines),
    ]


def reserved(site: OutriderSite, image: ServedImage) -> tuple[str, str]:
    """A reservation that has begun, and its node, with the image there."""
    text = (
        f"version: 1\nmetadata: {{name: mine, image: {{uri: '{image.uri}', digest: '{image.digest}'}}}}\n"
        "deployment: {nodes: 1, duration: 1h}\n"
    )
    site.cluster.write(HEAD, f"{site.home()}/mine.yaml", text)
    answer = json.loads(
        site.outrider("reserve", f"{site.home()}/mine.yaml", "--start=now+5s", "--json").stdout
    )
    name = str(answer["name"])

    def is_active() -> bool:
        shown = site.cluster.run(HEAD, ["scontrol", "show", "reservation", name], check=False).stdout
        return "State=ACTIVE" in shown

    site.cluster.wait_for("the reservation to begin", is_active, ROUND_S, site.logs)
    return name, str(answer["nodes"])


@contextmanager
def client(cluster: SlurmCluster) -> Iterator[subprocess.Popen[str]]:
    """A process on the head that hands jobs in, and looks at them until they have ended."""
    argv, environment = cluster.command(HEAD, ["/usr/bin/python3", "-c", CLIENT], user="ada")
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def measured(
    kinds: list[Kind], clients: dict[str, subprocess.Popen[str]], rounds: int, site: OutriderSite
) -> list[SeenStarts]:
    """Rounds in a random order with a fixed seed. The first ones only warm up."""
    order, seen = Random(1), []
    for number in range(rounds + WARM_UP):
        for kind in order.sample(kinds, len(kinds)):
            # A scheduler's rhythm must not meet ours.
            CLOCK.sleep(order.uniform(0.05, 0.35))
            process = clients[kind.where]
            assert process.stdin is not None
            assert process.stdout is not None
            wanted = {"options": ["-t1", *kind.options], "script": SCRIPT.format(lines=kind.lines)}
            process.stdin.write(json.dumps(wanted) + "\n")
            process.stdin.flush()
            job, called_s, answered_s, said = json.loads(process.stdout.readline())
            try:
                first_line_s = float(said)
            except ValueError:
                raise SystemExit(f"{kind.name}: job {job!r} said {said!r}\n{site.logs()}") from None
            if number >= WARM_UP:
                seen.append(SeenStarts(kind.name, job, called_s, answered_s, first_line_s))
    return seen


def told(kinds: list[Kind], seen: list[SeenStarts], started: dict[str, dict[str, float]]) -> bool:
    times = {kind.name: Times() for kind in kinds}
    where = {kind.name: kind.where for kind in kinds}
    for each in seen:
        start_s, of = started[where[each.kind]][each.job], times[each.kind]
        of.submit.append(1000 * (each.answered_s - each.called_s))
        of.wait.append(1000 * (start_s - each.called_s))
        of.begin.append(1000 * (each.first_line_s - start_s))
        of.whole.append(1000 * (each.first_line_s - each.called_s))
    print("medians in ms (quartiles); more than: against the same job on a plain Slurm")
    print(f"{'':32} {'sbatch':>7} {'to start':>9} {'to first line':>26} {'more':>7} {'all':>8} {'more':>8}")
    more_ms = 0.0
    for kind in kinds:
        of, base = times[kind.name], times[kind.against]
        begin_more = statistics.median(of.begin) - statistics.median(base.begin)
        whole_more = statistics.median(of.whole) - statistics.median(base.whole)
        low, middle, high = statistics.quantiles(of.begin, n=4)
        print(
            f"{kind.name:32} {statistics.median(of.submit):7.1f} {statistics.median(of.wait):9.1f} "
            f"{middle:10.1f} ({low:6.1f}, {high:6.1f}) {begin_more:+7.1f} "
            f"{statistics.median(of.whole):8.1f} {whole_more:+8.1f}"
        )
        if "warm" in kind.name:
            more_ms = max(more_ms, begin_more)
    words = "within" if more_ms <= BOUND_MS else "ABOVE"
    print(f"a warm job's first line comes {more_ms:+.1f} ms later after its start, {words} the {BOUND_MS} ms")
    return more_ms <= BOUND_MS


if __name__ == "__main__":
    raise SystemExit(main())
