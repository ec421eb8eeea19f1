"""outriderd before a Slurm of 5,000 nodes and thousands of jobs that wait for their images.

slurmctld, the submit filter, outriderd and its store are real. The nodes are configured as State=CLOUD
and have no slurmd: a job that is released gets its nodes and stays CONFIGURING. The names of all of
them lead to one address, where one real cachemgr daemon answers over the network for whomever is
meant; so the pools are one pool, and what is measured is the head. The service's own histograms say how
long its desk took for events: their buckets give upper bounds. Needs root and Slurm.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import socket
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking
from bench.slurm_records import CLOCK, load, path_of, quantiles
from testbed.site import OutriderSite, ServedImage, site_cluster
from testbed.slurm import HEAD, SlurmCluster, missing

DECISION_S = 1.0
RATE_BITS_PER_S = 200_000_000
LINK_BYTES_PER_S = 22_000_000
NODE = "n1"
SAMPLE_S = 1.0
BUCKET = re.compile(r'outrider_desk_seconds_bucket\{event="(\w+)",le="([^"]+)"\} ([0-9.e+]+)')
CONTROL = """[cachemgr]
pool = /var/lib/outrider/pool
control_listen = 0.0.0.0:7011
relay_listen = 0.0.0.0:7010
relay_key = /etc/outrider/site.key
"""
# Hands the jobs in, several at a time, as the user on the head.
SUBMIT = """\
import json, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
def submit(order):
    began_s = time.monotonic()
    done = subprocess.run(["sbatch", "--parsable", *order["options"]], input=order["script"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if done.returncode:
        sys.exit(done.stderr)
    return time.monotonic() - began_s
with ThreadPoolExecutor(2) as pool:
    print(json.dumps(list(pool.map(submit, json.load(sys.stdin)))))
"""


@dataclass(slots=True)
class Watched:
    """What was seen each second."""

    sight_age_s: list[float] = field(default_factory=list)
    loop_lag_s: list[float] = field(default_factory=list)
    status_s: list[float] = field(default_factory=list)
    squeue_s: list[float] = field(default_factory=list)
    decision_s: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--nodes", 5000, 20)
    parser.add("--jobs", 3000, 12)
    parser.add("--images", 60, 2)
    parser.add("--seconds", 60, 5, "to watch after all jobs are handed in")
    given = parser.given()
    if lacking(missing()):
        return NOT_MEASURED
    with site_cluster(1, rate_bits_per_s=RATE_BITS_PER_S, slurm_conf_lines=lines(given.nodes)) as cluster:
        settings = {**SETTINGS, "backend": {"kind": "slurm", "nodes": f"c[0001-{given.nodes:04}]"}}
        site = ScaleSite(cluster, link_bytes_per_s=LINK_BYTES_PER_S, pool="4GiB", settings=settings)
        site.names = [f"c{number:04}" for number in range(1, given.nodes + 1)]
        began_s = CLOCK.monotonic_s()
        site.install()
        print(f"{given.nodes} nodes, {given.jobs} jobs; {load()}")
        print(f"installed and promising after {CLOCK.monotonic_s() - began_s:.1f} s", flush=True)
        return measured(site, given)


# Thousands of nodes are not asked every few seconds what they have.
SETTINGS = {
    "timings": {"look": "2s", "progress": "2s", "call": "20s", "away": "60s", "reconcile": "5m"},
    "limits": {"calls": 64},
}


def lines(nodes: int) -> list[str]:
    return [
        f"NodeName=c[0001-{nodes:04}] CPUs=64 RealMemory=256000 State=CLOUD",
        f"PartitionName=main Nodes=c[0001-{nodes:04}] Default=YES MaxTime=INFINITE State=UP",
        # slurmd of the only host that has one would not be heard otherwise.
        f"PartitionName=other Nodes={NODE}",
        "ResumeProgram=/bin/true",
        "SuspendProgram=/bin/true",
        "SuspendTime=36000",
        "ResumeTimeout=3600",
        "PrivateData=cloud",
        "MaxJobCount=20000",
    ]


class ScaleSite(OutriderSite):
    """All nodes' names lead to the only host that has a daemon, which answers for any of them."""

    names: list[str]

    def start_node(self, node: str) -> None:
        cluster = self.cluster
        cluster.write(node, "/etc/outrider/cachemgr.conf", CONTROL)
        hosts = cluster.read(HEAD, "/etc/hosts")
        table = "".join(f"{cluster.address(node)} {name}\n" for name in self.names)
        cluster.write(HEAD, "/etc/hosts", hosts + table)
        super().start_node(node)


def measured(site: OutriderSite, given: argparse.Namespace) -> int:
    random, cluster = Random(1), site.cluster
    images = [site.image(f"image{number}.qcow2", 4_000_000) for number in range(given.images)]
    orders = [
        {
            "options": ["-t60", f"-N{random.choice((1, 1, 1, 2, 4))}", "--cpus-per-task=64"],
            "script": f"#!/bin/sh\n{random.choice(images).lines}sleep 60\n",
        }
        for _ in range(given.jobs)
    ]
    watched, is_over = Watched(), threading.Event()
    watcher = threading.Thread(target=watch, args=(site, images[0], watched, is_over))
    watcher.start()
    try:
        began_s = CLOCK.monotonic_s()
        argv = ["/usr/bin/python3", "-c", SUBMIT]
        given_ = json.dumps(orders)
        done = cluster.run(HEAD, argv, user="ada", given=given_, timeout_s=max(240, given.jobs // 2))
        submits_s: list[float] = json.loads(done.stdout)
        took_s = CLOCK.monotonic_s() - began_s
        print(f"{given.jobs} jobs handed in within {took_s:.0f} s; {load()}", flush=True)
        is_over.wait(given.seconds)
    finally:
        is_over.set()
        watcher.join()
    return judged(given, is_good=told(site, watched, submits_s))


def watch(site: OutriderSite, image: ServedImage, watched: Watched, is_over: threading.Event) -> None:
    """Once a second what the service says of itself, and how long it takes for it, and a decision."""
    pid = process_of(site.cluster)
    path = path_of(site.cluster, HEAD, "/run/outrider/outriderd.sock")
    body = {
        "workspace": json.dumps(
            {
                "version": 1,
                "metadata": {
                    "name": "probe",
                    "image": {"uri": image.uri, "digest": image.digest, "size": image.size_bytes},
                },
                "deployment": {"nodes": 100, "cpus": 64, "duration": "1h", "start": "now+1h"},
            }
        ),
        "file": "ws.yaml",
        "zone": "UTC",
        "options": {},
    }
    while not is_over.wait(SAMPLE_S):
        try:
            text, _ = asked(path, "GET", "/metrics")
            watched.sight_age_s.append(value(text, "outrider_sight_age_seconds"))
            watched.loop_lag_s.append(value(text, "outrider_loop_lag_seconds"))
            watched.status_s.append(asked(path, "GET", "/v1/status")[1])
            if len(watched.status_s) % 3 == 0:
                watched.decision_s.append(asked(path, "POST", "/v1/plans", body)[1])
        except (OSError, http.client.HTTPException, ValueError) as error:
            watched.failures.append(f"{type(error).__name__}: {error}"[:300])
        began_s = CLOCK.monotonic_s()
        site.cluster.run(HEAD, ["squeue", "--noheader", "--states=running"], check=False)
        watched.squeue_s.append(CLOCK.monotonic_s() - began_s)
        watched.memory_bytes.append(resident_bytes(pid))
        watched.cpu_s.append(processor_s(pid))


def asked(path: Path, method: str, target: str, body: object = None) -> tuple[str, float]:
    """The service's answer, and the seconds until it was there."""
    began_s = CLOCK.monotonic_s()
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.settimeout(60)
    try:
        connection.sock.connect(str(path))
        content = None if body is None else json.dumps(body)
        connection.request(method, target, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        if response.status not in (200, 201):
            raise ValueError(f"{target}: {response.status} {text[:200]}")
        return text, CLOCK.monotonic_s() - began_s
    finally:
        connection.close()


def value(text: str, name: str, labels: str = "") -> float:
    start = f"{name}{labels} "
    return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(start)), 0.0)


def process_of(cluster: SlurmCluster) -> int:
    """The service's number on this machine."""
    space = os.readlink(f"/proc/{cluster.record.hosts[HEAD].pid}/ns/pid")
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            if b"outrider.service" in words and os.readlink(path / "ns/pid") == space:
                return int(path.name)
        except OSError:
            continue
    raise SystemExit("the service does not run")


def resident_bytes(pid: int) -> int:
    words = Path(f"/proc/{pid}/statm").read_text().split()
    return int(words[1]) * os.sysconf("SC_PAGESIZE")


def processor_s(pid: int) -> float:
    """What the service has used so far, of all its threads: that does not depend on what others do."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def told(site: OutriderSite, watched: Watched, submits_s: list[float]) -> bool:
    path = path_of(site.cluster, HEAD, "/run/outrider/outriderd.sock")
    text, _ = asked(path, "GET", "/metrics")
    print("in s: smallest / median / 95th of a hundred / largest")
    print(f"  sbatch, with the filter, two at a time     {quantiles(submits_s)}")
    print(f"  squeue of a user meanwhile                 {quantiles(watched.squeue_s)}")
    print(f"  age of what the service knows of the queue {quantiles(watched.sight_age_s)}")
    print(f"  an event's wait for the desk               {quantiles(watched.loop_lag_s)}")
    print(f"  GET /v1/status                             {quantiles(watched.status_s)}")
    print(f"  a decision on 100 of the nodes             {quantiles(watched.decision_s)}")
    memory = watched.memory_bytes or [0]
    print(f"  memory of the service: {memory[0] / 1e6:.0f} MB at first, {max(memory) / 1e6:.0f} MB at most")
    used = watched.cpu_s or [0.0]
    print(f"  processor time of the service: {used[-1] - used[0]:.1f} s in {len(used)} rounds; {load()}")
    states = ("resolving", "refused", "waiting", "staging", "staged", "running")
    found = {state: value(text, "outrider_jobs", f'{{state="{state}"}}') for state in states}
    print("  jobs at the end: " + ", ".join(f"{state} {number:.0f}" for state, number in found.items()))
    nodes = {
        state: value(text, "outrider_nodes", f'{{state="{state}"}}') for state in ("up", "not-up", "away")
    }
    print("  nodes at the end: " + ", ".join(f"{state} {number:.0f}" for state, number in nodes.items()))
    over = desk_told(text)
    for words in watched.failures[:5]:
        print(f"  not answered: {words}")
    slow = [each for each in (*watched.decision_s, *watched.status_s) if each > DECISION_S]
    print(f"  {len(slow)} answers and {over} events of the desk took longer than {DECISION_S:g} s")
    return not (slow or over or watched.failures)


def desk_told(text: str) -> int:
    """The desk's events by kind; how many took longer than a decision may."""
    kinds: dict[str, list[tuple[float, int]]] = {}
    for event, bound, count in BUCKET.findall(text):
        kinds.setdefault(event, []).append((float(bound), int(float(count))))
    over = 0
    print(f"  {'the desk, by event':20} {'number':>8} {'median':>9} {'p99':>9} {'longest':>9}")
    for event, buckets in sorted(kinds.items()):
        total = buckets[-1][1]
        if not total:
            continue
        bounds = [
            next(bound for bound, count in buckets if count >= share * total) for share in (0.5, 0.99, 1)
        ]
        shown = " ".join(f"{f'< {bound:g} s':>9}" for bound in bounds)
        print(f"  {event:20} {total:8} {shown}")
        over += total - next(count for bound, count in buckets if bound >= DECISION_S)
    return over


if __name__ == "__main__":
    raise SystemExit(main())
