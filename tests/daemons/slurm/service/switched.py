"""Machines of a real Slurm that a switch moves: how they are set up, and what has to hold of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.site import NODE_DAEMON, OutriderSite
from testbed.slurm import HEAD
from tests.daemons.reservations import Site
from tests.daemons.slurm.service.failing import kill_service
from tests.daemons.slurm.service.in_machines import BOOT_S, MB, said, submit, wait_until_said
from tests.daemons.slurm.service.jobs import seen, wait_for

SWITCH_S = 600
SCRATCH = "#OUTRIDER scratch: 8MiB\n"
# Each number is on the guest's own disk, synced, before it is said.
COUNTING_ON_DISK = """
echo began
echo 0 >/scratch/count
i=0
while [ $i -lt {last} ]; do
    read -r was </scratch/count
    [ "$was" = $i ] || echo "disk: $was, not $i"
    i=$((i+1))
    echo $i >/scratch/count
    sync
    echo $i
    sleep 1
done
"""


@dataclass(frozen=True)
class Pair:
    """Two machines on nodes that have no room for another, and jobs that leave none on the others."""

    jobs: tuple[str, str]
    firm: tuple[str, ...]

    def nodes(self, site: OutriderSite) -> tuple[str, str]:
        one, other = (seen(site, job).nodes for job in self.jobs)
        return one, other


def counting(site: OutriderSite, name: str, *options: str, last: int = 1_000_000, user: str = "ada") -> str:
    image = site.image(f"{name}.qcow2", 4 * MB)
    return submit(site, image, COUNTING_ON_DISK.format(last=last), *options, more=SCRATCH, user=user)


def full_pair(site: OutriderSite, name: str, *options: str, last: int = 1_000_000) -> Pair:
    """Both count."""
    one, other = (counting(site, f"{name}{each}", "-c3", *options, last=last) for each in (1, 2))
    pair = Pair((one, other), ())
    for job in pair.jobs:
        wait_for(site, job, "RUNNING")
    taken = pair.nodes(site)
    firm = [
        site.submit("#!/bin/sh\nsleep 86400\n", "-t1440", f"-w{node}", "--exclusive", "-Jfill")
        for node in site.cluster.nodes
        if node not in taken
    ]
    for job in pair.jobs:
        wait_until_said(site, job, "3")
    return Pair(pair.jobs, tuple(firm))


def cancel(site: OutriderSite, jobs: Sequence[str]) -> None:
    site.cluster.run(HEAD, ["scancel", *jobs], user="ada")


def switch_of(site: Site) -> dict[str, object]:
    """The switch that goes on, or the last one; nothing while no service answers."""
    with suppress(json.JSONDecodeError):
        found: dict[str, object] = json.loads(site.told("switch", "show", "--json"))
        return found
    return {}


def steps_of(found: dict[str, object]) -> list[dict[str, object]]:
    steps = found.get("steps", [])
    assert isinstance(steps, list)
    return steps


def networks(site: Site) -> dict[str, str]:
    """Whose processes are those of which node: this machine's root sees those of other sites, too."""
    firsts = {node: Path(site.cluster.from_outside(node, "/")).parent for node in site.cluster.nodes}
    return {os.readlink(first / "ns/net"): node for node, first in firsts.items()}


def running_on(site: Site, job: str) -> list[str]:
    """On which nodes there is a process for a job's machine, as this machine's root sees them."""
    names, found = networks(site), set()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes()
            if b"qemu-system" in words.partition(b"\0")[0] and f"/job-{job}/".encode() in words:
                found.add(names.get(os.readlink(path / "ns/net"), ""))
    return sorted(found - {""})


def switched(
    site: Site,
    pair: Sequence[str],
    meanwhile: Callable[[dict[str, object]], None] = lambda found: None,
    *,
    most: int = 1,
) -> dict[str, object]:
    """Until the switch that goes on is over; no machine may be on more than so many nodes at any look. One
    that arrives alive is on two: its counter tells whether it has run on both."""
    found: dict[str, object] = {}

    def is_over() -> bool:
        for job in pair:
            assert len(running_on(site, job)) <= most, f"job {job} is on {running_on(site, job)}"
        found.clear()
        found.update(switch_of(site))
        meanwhile(found)
        return found.get("state") in ("done", "failed")

    site.cluster.wait_for("the end of the switch", is_over, SWITCH_S, lambda: f"{found}\n{site.logs()}")
    return found


def swap(site: OutriderSite, pair: Pair) -> tuple[str, str]:
    """Begin a switch in which they change places; where they were."""
    one, other = pair.nodes(site)
    fences = [f"--fence={pair.jobs[0]}={other}", f"--fence={pair.jobs[1]}={one}"]
    site.outrider("switch", "run", *fences, user="root")
    return one, other


def counts_on(site: OutriderSite, job: str, user: str = "ada") -> int:
    """How far it has counted, without a gap or a repeat and as its disk has it. When it starts again its
    output is empty for a moment, until its machine goes on."""
    text = said(site, job, user)
    words = [line for line in text.rpartition("\n")[0].splitlines() if not line.startswith("slurmstepd-")]
    assert words == (words and ["began", *map(str, range(1, len(words)))]), text
    return max(0, len(words) - 1)


def wait_until_counted(site: OutriderSite, job: str, beyond: int) -> None:
    """Until it has counted further than that."""
    site.cluster.wait_for(f"job {job} to count", lambda: counts_on(site, job) > beyond, BOOT_S, site.logs)


@dataclass(frozen=True)
class Strike:
    """Who is killed while a stage of a switch goes on, and how long after that was first seen."""

    victim: str
    stage: int
    late_s: float


def struck(site: OutriderSite, pair: Pair, *strikes: Strike) -> tuple[dict[str, object], int]:
    """They change places, and somebody is killed meanwhile and started again, once for each of these; the
    switch when it is over, and how often somebody was."""
    left = list(strikes)

    def strike(found: dict[str, object]) -> None:
        running = {each["stage"]: each for each in steps_of(found) if each["state"] == "runs"}
        for each in [each for each in left if each.stage in running]:
            left.remove(each)
            site.cluster.clock.sleep(each.late_s)
            step = running[each.stage]
            kill(site, "" if each.victim == "service" else str(step[each.victim] or step["source"]))

    swap(site, pair)
    return switched(site, pair.jobs, strike), len(strikes) - len(left)


def kill(site: OutriderSite, node: str) -> None:
    """Kill the service, or a node's daemon, and start it again."""
    if node:
        site.cluster.kill(node, NODE_DAEMON)
        site.start_node(node)
    else:
        kill_service(site)
        site.start_service()
