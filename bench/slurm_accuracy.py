"""Promises and best effort on a real Slurm with slow links, checked from Slurm's and the disks' own records.

Reservations and best-effort jobs of mixed images, shared and private, on 1 to 4 nodes, arrive at
random times from a seed; among them are reservations that an administrator makes without
Outrider, for comparison. Nothing that is judged is Outrider's own word: when a job began is in
slurmctld's log, when an image arrived on a node is in the times of its files, what was moved
is in the kernel's counts. Then all is ended, and nothing may be left. Needs root and Slurm.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking
from bench.slurm_records import (
    CLOCK,
    JobRecord,
    Traffic,
    arrivals_s,
    jobs_of,
    load,
    path_of,
    quantiles,
    starts_s,
    traffic_of,
)
from testbed.records import TestbedError
from testbed.site import POOL as POOL_FOLDER
from testbed.site import OutriderSite, ServedImage, site_cluster
from testbed.slurm import HEAD, missing

RATE_BITS_PER_S = 100_000_000
LINK_BYTES_PER_S = 11_500_000
POOL = "600MiB"
USERS = ("ada", "bob", "eve")
SHARED_IMAGES, PRIVATE_IMAGES = 8, 12
# No limit of Slurm's is below a minute, and a job does not start whose limit reaches into the next
# reservation of its node.
RESERVED_S = 60
LEAST_LEAD_S = 15
DRAIN_S = 700
MOST_REFUSALS = 3
# What a job says of itself: which of its nodes can read the image.
SCRIPT = """#!/bin/sh
{lines}srun --quiet sh -c 'echo "$SLURMD_NODENAME $(head -c3 "$OUTRIDER_IMAGE")"'
sleep {seconds}
"""
PLAIN = "#!/bin/sh\nsleep 1\n"


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something that is asked for at some time after the beginning."""

    at_s: float
    kind: str
    user: str
    image: ServedImage
    nodes: int


@dataclass(slots=True)
class AcceptedReservation:
    """A reservation that was accepted, with or without Outrider."""

    name: str
    start_s: int
    job: str
    image: ServedImage | None
    nodes: tuple[str, ...] = ()


@dataclass(slots=True)
class AccuracyRun:
    """What happened."""

    promises: list[AcceptedReservation] = field(default_factory=list)
    plain: list[AcceptedReservation] = field(default_factory=list)
    jobs: dict[str, Arrival] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    late_s: float = 0.0


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--nodes", 8, 4)
    parser.add("--reservations", 50, 2)
    parser.add("--jobs", 200, 4)
    parser.add("--plain", 8, 1, "reservations without Outrider")
    parser.add("--seconds", 60, 1, "over which they are asked for")
    parser.add("--ahead", 420, 17, "seconds ahead that reservations begin at most")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.given()
    if lacking(missing()):
        return NOT_MEASURED
    timings = {
        "look": "1s",
        "progress": "1s",
        "call": "10s",
        "away": "10s",
        "reconcile": "15s",
        "grace": "5s",
    }
    with site_cluster(given.nodes, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        random = Random(given.seed)
        images = made_images(OutriderSite(cluster, link_bytes_per_s=LINK_BYTES_PER_S), random)
        settings = {"timings": timings, "images": catalogue(images)}
        site = OutriderSite(cluster, link_bytes_per_s=LINK_BYTES_PER_S, pool=POOL, settings=settings)
        site.install()
        plan = sorted(arrivals(given, random, images), key=lambda each: each.at_s)
        print(
            f"{given.nodes} nodes, links of {RATE_BITS_PER_S / 1e6:g} Mbit/s; seed {given.seed}; {load()}",
            flush=True,
        )
        before, began_s = traffic_of(cluster), CLOCK.monotonic_s()
        story = told_story(site, plan, random, given.ahead)
        waited_for_end(site)
        took_s = CLOCK.monotonic_s() - began_s
        traffic = traffic_of(cluster).since(before)
        print(f"all had ended after {took_s:.0f} s; {load()}")
        return judged(given, is_good=holds(site, story, traffic, took_s))


def made_images(site: OutriderSite, random: Random) -> list[tuple[str | None, ServedImage]]:
    """Images that all may use, and some of one user each."""
    found: list[tuple[str | None, ServedImage]] = []
    for number in range(SHARED_IMAGES):
        found.append((None, site.image(f"shared{number}.qcow2", random.randrange(4, 24) * 1_000_000)))
    for number in range(PRIVATE_IMAGES):
        image = site.image(f"private{number}.qcow2", random.randrange(4, 24) * 1_000_000)
        found.append((USERS[number % len(USERS)], image))
    return found


def catalogue(images: list[tuple[str | None, ServedImage]]) -> dict[str, object]:
    """The private ones by name, each with its only reader."""
    return {
        image.name: {
            "uri": image.uri,
            "digest": image.digest,
            "size": image.size_bytes,
            "readers": {"users": [owner]},
        }
        for owner, image in images
        if owner is not None
    }


def arrivals(
    given: argparse.Namespace, random: Random, images: list[tuple[str | None, ServedImage]]
) -> Iterator[Arrival]:
    """What is asked for, and when."""
    for kind, count in (("reserve", given.reservations), ("job", given.jobs), ("plain", given.plain)):
        for _ in range(count):
            owner, image = random.choice(images)
            yield Arrival(
                at_s=random.uniform(0, given.seconds),
                kind=kind if owner is None or kind == "plain" else f"private {kind}",
                user=owner or random.choice(USERS),
                image=image,
                nodes=random.choices((1, 2, 3, 4), (60, 25, 10, 5) if kind == "job" else (85, 9, 4, 2))[0],
            )


def told_story(site: OutriderSite, plan: list[Arrival], random: Random, ahead_s: int) -> AccuracyRun:
    """Ask for everything at its time, or as soon after it as this process gets round to."""
    story, began_s = AccuracyRun(), CLOCK.monotonic_s()
    for number, each in enumerate(plan):
        now_s, lead_s = CLOCK.monotonic_s() - began_s, random.randrange(LEAST_LEAD_S, ahead_s)
        if now_s < each.at_s:
            CLOCK.sleep(each.at_s - now_s)
        story.late_s = max(story.late_s, now_s - each.at_s)
        if each.kind.endswith("reserve"):
            reserve(site, story, each, number, lead_s)
        elif each.kind == "plain":
            reserve_plainly(site, story, each, number, lead_s)
        else:
            is_private = each.kind.startswith("private")
            named = f"#OUTRIDER image: {each.image.name}\n#OUTRIDER private: true\n"
            lines = named if is_private else each.image.lines
            script = SCRIPT.format(lines=lines, seconds=random.randrange(0, 3))
            job = site.submit(script, "-t1", *width(each), user=each.user)
            story.jobs[job] = each
    return story


def width(each: Arrival) -> tuple[str, ...]:
    return (f"-N{each.nodes}", f"-n{each.nodes}", "--ntasks-per-node=1")


def reserve(site: OutriderSite, story: AccuracyRun, each: Arrival, number: int, lead_s: int) -> None:
    """Ask for a reservation; when refused, for the earliest start that was named instead, some times."""
    is_private = each.kind.startswith("private")
    named = {"uri": each.image.name, "private": True}
    image = named if is_private else {"uri": each.image.uri, "digest": each.image.digest}
    workspace = {
        "version": 1,
        "metadata": {"name": f"w{number}", "image": image},
        "deployment": {"nodes": each.nodes, "duration": f"{RESERVED_S}s"},
    }
    path = f"{site.home(each.user)}/w{number}.yaml"
    site.cluster.write(HEAD, path, json.dumps(workspace))
    start = f"now+{lead_s}s"
    for _ in range(MOST_REFUSALS + 1):
        story.asked += 1
        done = site.outrider("reserve", path, f"--start={start}", "--json", user=each.user, check=False)
        if not done.stdout.startswith("{"):
            raise SystemExit(f"reserve said {done.stdout}{done.stderr}\n{site.logs()}")
        answer = json.loads(done.stdout)
        if answer["result"] == "accepted":
            name, start_s = str(answer["name"]), int(answer["start_s"])
            job = in_reservation(site, each, name, SCRIPT.format(lines="", seconds=1))
            story.promises.append(AcceptedReservation(name=name, start_s=start_s, job=job, image=each.image))
            return
        story.refused[str(answer["cause"])] += 1
        if answer["earliest_start_s"] is None:
            return
        start = f"uts{answer['earliest_start_s'] + 1}"


def in_reservation(site: OutriderSite, each: Arrival, name: str, script: str) -> str:
    """A job that waits for its reservation, which Slurm knows of very soon."""

    def is_known() -> bool:
        return site.cluster.run(HEAD, ["scontrol", "show", "reservation", name], check=False).returncode == 0

    site.cluster.wait_for(f"reservation {name} in Slurm", is_known, logs=site.logs)
    return site.submit(script, "-t1", *width(each), f"--reservation={name}", user=each.user)


def reserve_plainly(site: OutriderSite, story: AccuracyRun, each: Arrival, number: int, lead_s: int) -> None:
    """As an administrator does: some nodes that are not reserved yet, whatever runs there."""
    start_s = CLOCK.now_s() + lead_s
    for node in site.cluster.nodes:
        name = f"plain{number}"
        done = site.cluster.run(
            HEAD,
            [
                *("scontrol", "create", "reservation", f"ReservationName={name}", f"StartTime=uts{start_s}"),
                *(f"EndTime=uts{start_s + RESERVED_S}", f"Users={each.user}", f"Nodes={node}"),
                "Flags=IGNORE_JOBS",
            ],
            check=False,
        )
        if done.returncode == 0:
            job = site.submit(PLAIN, "-t1", f"--reservation={name}", user=each.user)
            story.plain.append(AcceptedReservation(name=name, start_s=start_s, job=job, image=None))
            return


def waited_for_end(site: OutriderSite) -> None:
    """Until no job and no reservation is left."""
    states = "--states=pending,configuring,running,completing,suspended"
    argv = ["squeue", "--all", "--noheader", states, "--format=%i %T %r %u"]

    def told() -> str:
        words = site.outrider("jobs", user="root", check=False).stdout
        return site.cluster.run(HEAD, argv).stdout + words + site.logs()

    site.cluster.wait_for(
        "all jobs to end", lambda: not site.cluster.run(HEAD, argv).stdout.strip(), DRAIN_S, told
    )
    site.cluster.wait_for("all reservations to end", lambda: not reservations(site), DRAIN_S, told)


def reservations(site: OutriderSite) -> list[str]:
    text = site.cluster.run(HEAD, ["scontrol", "--oneliner", "show", "reservation"], check=False).stdout
    return [line.split()[0] for line in text.splitlines() if line.startswith("ReservationName=")]


def holds(site: OutriderSite, story: AccuracyRun, traffic: Traffic, took_s: float) -> bool:
    """Print the tables; whether everything holds."""
    started, records, there = starts_s(site.cluster), jobs_of(site.cluster), arrivals_s(site.cluster)
    late = promises_told(site, story, started, records, there)
    early = jobs_told(site, story, started, records, there)
    bytes_told(story, traffic, there, took_s)
    left = leftovers(site)
    print(f"left behind: {len(left)}; nodes: {Counter(site.cluster.node_states().values())}")
    for words in [*late, *early, *left][:20]:
        print(f"  {words}")
    is_good = not late and not early and not left
    print("everything holds" if is_good else "NOT everything holds")
    return is_good


def arrived_s(record: JobRecord, image: ServedImage, there: dict[str, dict[str, float]]) -> float:
    """When the last of a job's nodes had the image."""
    digest = image.digest.removeprefix("sha256:")
    return max((there[node].get(digest, float("inf")) for node in record.nodes), default=float("inf"))


def promises_told(
    site: OutriderSite,
    story: AccuracyRun,
    started: dict[str, float],
    records: dict[str, JobRecord],
    there: dict[str, dict[str, float]],
) -> list[str]:
    """Reservations: what was accepted, and whether it was kept."""
    faults, slack, lag = [], [], []
    for each in story.promises:
        assert each.image is not None
        record = records[each.job]
        if each.job not in started:
            faults.append(f"{each.name}: its job {each.job} never began: {record.state}")
            continue
        slack.append(each.start_s - arrived_s(record, each.image, there))
        lag.append(started[each.job] - each.start_s)
        if slack[-1] < 0:
            faults.append(f"{each.name}: image {-slack[-1]:.2f} s late on {','.join(record.nodes)}")
        if record.state != "COMPLETED" or not can_read(site, each.job, record):
            faults.append(f"{each.name}: job {each.job} {record.state}, or without its image")
    plain = [started[each.job] - each.start_s for each in story.plain if each.job in started]
    refused = ", ".join(f"{cause} {count}" for cause, count in sorted(story.refused.items())) or "none"
    print(f"reservations: asked {story.asked} times, accepted {len(story.promises)}, refused for: {refused}")
    print(f"  kept: {len(story.promises) - len(faults)} of {len(story.promises)}")
    print("  in s: smallest / median / 95th of a hundred / largest")
    print(f"  image there before the start     {quantiles(slack)}")
    print(f"  job's lag after the start        {quantiles(lag)}")
    print(f"  lag of {len(plain):2} without Outrider       {quantiles(plain)}")
    if lag and plain and max(lag) > max(plain) + 1:
        faults.append(f"a job began {max(lag):.2f} s after its start: Slurm alone takes {max(plain):.2f} s")
    return faults


def jobs_told(
    site: OutriderSite,
    story: AccuracyRun,
    started: dict[str, float],
    records: dict[str, JobRecord],
    there: dict[str, dict[str, float]],
) -> list[str]:
    """Best-effort jobs: whether any clock began before the image was there."""
    faults, before, waited = [], [], []
    for job, each in story.jobs.items():
        record = records[job]
        if job not in started:
            faults.append(f"job {job} never began: {record.state}")
            continue
        before.append(started[job] - arrived_s(record, each.image, there))
        waited.append(started[job] - record.submit_s)
        if before[-1] < 0:
            faults.append(f"job {job} began {-before[-1]:.2f} s before its image was on {record.nodes}")
        if record.state != "COMPLETED" or record.restarts or not can_read(site, job, record):
            faults.append(f"job {job} {record.state}, {record.restarts} restarts, or without its image")
    print(f"best effort: {len(story.jobs)} jobs, {len(story.jobs) - len(faults)} as they should be")
    print(f"  image there before the clock     {quantiles(before)}")
    print(f"  from sbatch to the start         {quantiles(waited)}")
    print(f"  the benchmark itself was late with asking by up to {story.late_s:.1f} s")
    return faults


def can_read(site: OutriderSite, job: str, record: JobRecord) -> bool:
    """Whether each of its nodes has said that it can read an image."""
    for user in USERS:
        path = path_of(site.cluster, HEAD, f"{site.home(user)}/slurm-{job}.out")
        if path.exists():
            said = dict(line.split() for line in path.read_text().splitlines() if line.endswith(" QFI"))
            return sorted(said) == sorted(record.nodes)
    return False


def bytes_told(
    story: AccuracyRun, traffic: Traffic, there: dict[str, dict[str, float]], took_s: float
) -> None:
    """What was moved, against what cannot be avoided, and against fetching for each job."""
    sizes = {each.image.digest.removeprefix("sha256:"): each.image for each in story.jobs.values()}
    sizes |= {each.image.digest.removeprefix("sha256:"): each.image for each in story.promises if each.image}
    copies = sum(sizes[digest].size_bytes for found in there.values() for digest in found if digest in sizes)
    once = sum(sizes[digest].size_bytes for digest in {name for found in there.values() for name in found})
    naive = sum(each.image.size_bytes * each.nodes for each in story.jobs.values())
    received = traffic.received_bytes(there)
    print(
        f"bytes: images once {once / 1e6:.0f} MB, server sent {traffic.served_bytes / 1e6:.0f} MB "
        f"= {traffic.served_bytes / once:.2f} x; copies on nodes {copies / 1e6:.0f} MB, nodes received "
        f"{received / 1e6:.0f} MB = {received / copies:.2f} x"
    )
    print(
        f"  fetching for each best-effort job alone would be {naive / 1e6:.0f} MB; "
        f"the server's link was used {traffic.served_bytes * 8 / RATE_BITS_PER_S / took_s:.0%} of the time"
    )


def leftovers(site: OutriderSite) -> list[str]:
    """What is on nodes or in Slurm and should not be, after some time to settle."""
    found: list[str] = []

    def is_clean() -> bool:
        found[:] = [f"reservation {each}" for each in reservations(site)]
        for node, state in site.cluster.node_states().items():
            found.extend([f"{node} is {state}"] if state != "idle" else [])
        for node in site.cluster.nodes:
            found.extend(left_on(site, node))
        return not found

    with contextlib.suppress(TestbedError):
        site.cluster.wait_for("no leftovers", is_clean, 60)
    return found


def left_on(site: OutriderSite, node: str) -> list[str]:
    """Instances, files of hooks, pins: from the disk."""
    folders = [path_of(site.cluster, node, f"/run/outrider/{name}") for name in ("jobs", "failed")]
    folders.append(path_of(site.cluster, node, f"{POOL_FOLDER}/instances"))
    folders += path_of(site.cluster, node, f"{POOL_FOLDER}/images").glob("*/pins")
    return [f"{path} on {node}" for folder in folders if folder.is_dir() for path in folder.iterdir()]


if __name__ == "__main__":
    raise SystemExit(main())
