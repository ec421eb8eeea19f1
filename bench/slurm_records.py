"""What Slurm, the nodes' disks and their links have on record, read for benchmarks from outside.

Nothing here asks Outrider: when a job began is in slurmctld's own log, when an image arrived is in
the times of its files, and what a link has carried is the kernel's count.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench.admission import percentile
from cachemgr.base.clock import SystemClock
from testbed.slurm import HEAD, IMAGES, SlurmCluster

CLOCK = SystemClock()
STARTED = re.compile(r"^\[([0-9T:.-]+)\] .*(?:Allocate|Started) JobId=(?:\d+_\S+\()?(\d+)\)? ", re.MULTILINE)
FIELDS = "JobID:20,State:20,NodeList:60,StartTime:20,EndTime:20,SubmitTime:20,RestartCnt:12,Name:40"
WIDTHS = (20, 20, 60, 20, 20, 20, 12, 40)
POOL = "/var/lib/outrider/pool"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """A job as Slurm remembers it."""

    job: str
    name: str
    state: str
    nodes: tuple[str, ...]
    start_s: int
    end_s: int
    submit_s: int
    restarts: int


def path_of(cluster: SlurmCluster, host: str, path: str) -> Path:
    """A host's file, as this machine reads it without starting anything there."""
    return Path("/proc", str(cluster.record.hosts[host].pid), "root", path.lstrip("/"))


def jobs_of(cluster: SlurmCluster) -> dict[str, JobRecord]:
    """All jobs that Slurm remembers, by number."""
    argv = ["squeue", "--all", "--noheader", "--states=all", f"--Format={FIELDS}"]
    text = cluster.run(HEAD, argv, environment={"SLURM_TIME_FORMAT": "%s"}).stdout
    found = {}
    for line in text.splitlines():
        parts, at = [], 0
        for width in WIDTHS:
            parts.append(line[at : at + width].strip())
            at += width
        job, state, nodes, start, end, submit, restarts, name = parts
        found[job] = JobRecord(
            job=job,
            name=name,
            state=state,
            nodes=tuple(_names(nodes)),
            start_s=_number(start),
            end_s=_number(end),
            submit_s=_number(submit),
            restarts=_number(restarts),
        )
    return found


def starts_s(cluster: SlurmCluster) -> dict[str, float]:
    """To the millisecond, when slurmctld says in its log that it gave each job its nodes."""
    text = cluster.read(HEAD, "/var/log/slurm/slurmctld.log")
    # Its log is in the machine's local time, as is Python's reading of it.
    return {job: datetime.fromisoformat(when).timestamp() for when, job in STARTED.findall(text)}


def arrivals_s(cluster: SlurmCluster) -> dict[str, dict[str, float]]:
    """By node, by digest: when the last file of an image that is in the pool was last changed."""
    find = ["find", f"{POOL}/images", "-mindepth", "2", "-maxdepth", "2", "-type", "f"]
    print_ = ["(", "-name", "data", "-o", "-name", "image.json", ")", "-printf", "%h %C@\n"]
    found: dict[str, dict[str, float]] = {}
    for node in cluster.nodes:
        there = found.setdefault(node, {})
        for line in cluster.run(node, [*find, *print_]).stdout.splitlines():
            folder, changed_s = line.split()
            digest = folder.rpartition("/")[2]
            there[digest] = max(there.get(digest, 0.0), float(changed_s))
    return found


@dataclass(frozen=True, slots=True)
class Traffic:
    """What links have carried since their hosts came up."""

    received: Mapping[str, int]
    sent: Mapping[str, int]

    def since(self, earlier: Traffic) -> Traffic:
        return Traffic(
            {host: number - earlier.received[host] for host, number in self.received.items()},
            {host: number - earlier.sent[host] for host, number in self.sent.items()},
        )

    @property
    def served_bytes(self) -> int:
        """What the server of images has sent."""
        return self.sent[IMAGES]

    def received_bytes(self, hosts: Iterable[str]) -> int:
        return sum(self.received[host] for host in hosts)


def traffic_of(cluster: SlurmCluster) -> Traffic:
    received, sent = {}, {}
    for host in (IMAGES, *cluster.nodes):
        lines = cluster.run(host, ["cat", "/proc/net/dev"]).stdout.splitlines()
        words = next(line.split() for line in lines if "eth0:" in line)
        received[host], sent[host] = int(words[1]), int(words[9])
    return Traffic(received, sent)


def quantiles(values: Sequence[float]) -> str:
    """Smallest, median, 95th of a hundred, largest."""
    if not values:
        return "none"
    ordered = sorted(values)
    shown = (ordered[0], percentile(ordered, 50), percentile(ordered, 95), ordered[-1])
    return " / ".join(f"{each:.2f}" for each in shown)


def load() -> str:
    """How busy the machine is, for the reader to judge by."""
    return f"load {', '.join(f'{each:.1f}' for each in os.getloadavg())} on {os.cpu_count()} processors"


def _names(hostlist: str) -> list[str]:
    found = []
    for prefix, inside, plain in re.findall(r"([a-z]+)\[([^\]]*)\]|([a-z]+\d+)", hostlist):
        if plain:
            found.append(plain)
        for part in inside.split(",") if inside else ():
            first, _, last = part.partition("-")
            found += [f"{prefix}{number}" for number in range(int(first), int(last or first) + 1)]
    return found


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
