"""A mixed load on a real batch system whose jobs Outrider starts, while daemons are killed: what is asked for
at which time, and what of it has to be so in the end.

Everything is drawn from a seed. A job writes a line when it begins and one when it ends, with its number,
into a file that all hosts see; what is judged is read from there, from the batch system's own accounting, and
from receipts. A job's limit is far longer than its work, as limits are, and no wait is bounded by a time that
was measured on some machine: how long this one takes to start a job of an idle queue is measured first, and
all times but those of jobs' work are stretched by that.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random
from typing import Protocol

from cachemgr.base.clock import SystemClock
from testbed.batchcluster import HEAD
from testbed.clustersite import ServedImage
from tests.daemons.reservations import Site, reserve, workspace

CLOCK = SystemClock()
MB = 1_000_000
LEDGER = "ledger"
WORKSPACE = "mixed"
RATE = 3_600_000
"""In thousandths for a node and an hour: a unit of money for a second."""
PER_NODE_S = 1_000
QUOTA = 2
"""So many reservations may bob have at once."""
POLICIES = (
    f"version: 1\nrules: [{{name: few, users: [bob], reservations: {QUOTA}}}, {{name: all}}]\n"
    f"leases: {{pricing: {{rate: {RATE}}}, preemption: {{}}}}\n"
)
POLICIES_FILE = "/etc/outrider/policies.yaml"
CPUS, WORK_S = (1, 1, 2, 4), (2, 3, 4, 6)
PREEMPTIBLE_WORK_S = (4, 8, 12)
WITHIN_S, EVERY_S, FINISH_S = 150, 40, 600
MOST_ASKED = 5
LIMIT_S = 60
"""No limit of a job is shorter on Slurm."""
SETTLED_S = 12
"""So long after its start a controller may not have heard of all nodes."""
END_S = 900
"""When the last has been handed in, all is over in so long, or something waits for ever."""
START_S = 4.0
"""A job of an idle queue starts within so long where times are as they stand here; else they are longer."""
MOST_PACE = 8.0
PROBES = (1_000_001, 1_000_002)
PROBED_S = 300


@dataclass(frozen=True, kw_only=True)
class JobWish:
    """A best-effort job."""

    at_s: float
    number: int
    cpus: int
    work_s: int
    is_preemptible: bool


@dataclass(frozen=True, kw_only=True)
class LeaseWish:
    """A reservation of one of several kinds."""

    at_s: float
    kind: str
    user: str
    nodes: int
    ahead_s: int
    lasts_s: int
    every_s: int = EVERY_S


@dataclass(frozen=True, kw_only=True)
class Strike:
    """Something happens to a daemon."""

    at_s: float
    what: str


Wish = JobWish | LeaseWish | Strike


@dataclass(kw_only=True)
class Promise:
    """A reservation that was accepted."""

    kind: str
    name: str
    user: str
    nodes: int
    lasts_s: int
    asked_s: int
    start_s: int
    job: str = ""
    is_late: bool = False
    """When its job was handed in, no time was left for one."""
    triggered_s: int | None = None


@dataclass
class Story:
    """What was asked for, and what was answered."""

    jobs: dict[int, str] = field(default_factory=dict)
    """The batch system's names of jobs, by number."""
    promises: list[Promise] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    handed_s: dict[int, float] = field(default_factory=dict)
    """When each job was handed in, by a clock that nobody sets."""
    reported: tuple[int, int] = (0, 0)
    """How many reservations there were before, and what was charged for them."""
    outages: list[tuple[int, int]] = field(default_factory=list)
    """When there was no controller, or one that did not know its nodes yet."""
    pace: float = 1.0
    """By how much times are longer than where jobs start at once."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the batch system's own accounting says of a job."""

    completed: int
    """How often it has ended by itself."""
    requeued: int
    """How often it was sent back."""
    unlaunched: int = 0
    """How often it was given nodes that never heard of it, because the controller died in between: it did
    not begin there, and nobody has sent it back."""


class TooLate(Exception):
    """A reservation ends before a job that is handed in now could."""


class MixedBatch(Protocol):
    """What differs between batch systems."""

    @property
    def site(self) -> Site:
        """The cluster with Outrider on it."""

    def submit(self, wish: JobWish, image: ServedImage) -> str:
        """A job of `job_script`."""

    def submit_inside(self, promise: Promise) -> str:
        """A job of `inside_script` that runs in a reservation. Raises TooLate."""

    def reserved(self) -> set[str]:
        """The reservations that the batch system has."""

    def waiting(self) -> list[str]:
        """Jobs that wait or run."""

    def cancel(self, job: str) -> None:
        """Take a job back."""

    def strike(self, what: str) -> None:
        """Kill daemons, or start them again."""

    def records(self, jobs: Sequence[str]) -> dict[str, Record]:
        """The accounting, once it is complete."""


def drawn(
    seed: int,
    *,
    jobs: int,
    leases: int,
    kinds: Sequence[str],
    span_s: float,
    lasts_s: Sequence[int] = (15, 20),
) -> list[Wish]:
    """A load: half of the jobs are preemptible, all kinds of leases are in it, and daemons die meanwhile."""
    random = Random(seed)
    wishes: list[Wish] = []
    for number in range(jobs):
        is_preemptible = number % 2 == 0
        wishes.append(
            JobWish(
                at_s=random.uniform(0, span_s),
                number=number,
                cpus=random.choice(CPUS),
                work_s=random.choice(PREEMPTIBLE_WORK_S if is_preemptible else WORK_S),
                is_preemptible=is_preemptible,
            )
        )
    for number in range(leases):
        wishes.append(
            LeaseWish(
                at_s=span_s * (number + random.random()) / leases,
                kind=kinds[number % len(kinds)],
                user="bob" if number % 5 == 2 else "ada",
                nodes=random.choice((1, 1, 1, 2)),
                ahead_s=random.choice((25, 40)),
                lasts_s=random.choice(lasts_s),
            )
        )
    times = max(1, leases // 12)
    blows = ("kill service", "start service", "restart controller", "kill both", "start both")
    for number in range(times):
        for place, what in enumerate(blows):
            wishes.append(Strike(at_s=span_s * (number + 0.15 + 0.16 * place) / times, what=what))
    return sorted(wishes, key=lambda each: each.at_s)


def pace_of(batch: MixedBatch, image: ServedImage) -> float:
    """How much longer a job takes to start here, in an idle queue, than it may; 1 where it is in time."""
    waits_s = []
    for number in PROBES:
        handed_s = CLOCK.monotonic_s()
        batch.submit(JobWish(at_s=0, number=number, cpus=1, work_s=1, is_preemptible=False), image)
        while number not in ledger(batch.site).begun:
            waited_s = CLOCK.monotonic_s() - handed_s
            assert waited_s < PROBED_S, f"a job of an idle queue does not start\n{batch.site.logs()}"
            CLOCK.sleep(0.2)
        waits_s.append(CLOCK.monotonic_s() - handed_s)
    return min(MOST_PACE, max(1.0, max(waits_s) / START_S))


def stretched(wishes: Sequence[Wish], pace: float) -> list[Wish]:
    """The same load with all times that much longer, but for the work of jobs."""
    found: list[Wish] = []
    for wish in wishes:
        at_s = wish.at_s * pace
        if isinstance(wish, LeaseWish):
            ahead_s, lasts_s, every_s = (
                ceil(each * pace) for each in (wish.ahead_s, wish.lasts_s, wish.every_s)
            )
            found.append(replace(wish, at_s=at_s, ahead_s=ahead_s, lasts_s=lasts_s, every_s=every_s))
        else:
            found.append(replace(wish, at_s=at_s))
    return found


def job_script(wish: JobWish, home: str) -> str:
    """Ends only if it has worked for long enough at a stretch."""
    return (
        f'echo "begin {wish.number} $(date +%s.%N)" >>{home}/{LEDGER}\n'
        f'sleep {wish.work_s} && echo "end {wish.number} $(date +%s.%N)" >>{home}/{LEDGER}\n'
    )


def inside_script(promise: Promise, home: str) -> str:
    return f'echo "inside {promise.name} $(date +%s.%N) $(head -c3 "$OUTRIDER_IMAGE")" >>{home}/{LEDGER}\n'


def install(site: Site) -> ServedImage:
    """Policies, the workspace and its image, and a file that jobs write into."""
    image = workspace(site, WORKSPACE, 2 * MB)
    text = site.cluster.read(HEAD, f"{site.home()}/{WORKSPACE}.yaml")
    site.cluster.write(HEAD, f"{site.home('bob')}/{WORKSPACE}.yaml", text)
    site.cluster.write(HEAD, f"{site.home()}/{LEDGER}", "", mode=0o666)
    return image


def play(batch: MixedBatch, image: ServedImage, wishes: Sequence[Wish], pace: float = 1.0) -> Story:
    """Ask for everything at its time, or as soon after it as this process gets round to."""
    story, began_s = Story(pace=pace, reported=reported(batch.site)), CLOCK.monotonic_s()
    later: list[Wish] = []
    away, struck_s = "", 0
    for wish in wishes:
        if not away:
            _attend(batch, story)
        CLOCK.sleep(max(0.0, began_s + wish.at_s - CLOCK.monotonic_s()))
        if isinstance(wish, Strike):
            struck_s = struck_s if away == "kill both" else CLOCK.now_s()
            batch.strike(wish.what)
            if wish.what in ("restart controller", "start both"):
                story.outages.append((struck_s, CLOCK.now_s() + ceil(SETTLED_S * pace)))
            away = wish.what if wish.what.startswith("kill") else ""
            for each in () if away else [*later]:
                later.remove(each)
                _hand_in(batch, story, each, image)
        elif away == "kill both" or (away and isinstance(wish, LeaseWish)):
            # Who asks whom nobody answers asks again when somebody does.
            later.append(wish)
        else:
            _hand_in(batch, story, wish, image)
    by_s = CLOCK.monotonic_s() + END_S * pace
    while not _is_over(batch, story):
        assert CLOCK.monotonic_s() < by_s, f"{_open(batch, story)}\n{batch.site.logs()}"
        _attend(batch, story)
        CLOCK.sleep(1)
    return story


def _hand_in(batch: MixedBatch, story: Story, wish: Wish, image: ServedImage) -> None:
    if isinstance(wish, JobWish):
        story.jobs[wish.number] = batch.submit(wish, image)
        story.handed_s[wish.number] = CLOCK.monotonic_s()
    elif isinstance(wish, LeaseWish):
        _ask(batch, story, wish)


def _attend(batch: MixedBatch, story: Story) -> None:
    """Jobs for reservations that are there now, and events for those that wait for one."""
    without = [each for each in story.promises if not each.job]
    if without:
        there = batch.reserved()
        for promise in without:
            if promise.name in there:
                try:
                    promise.job = batch.submit_inside(promise)
                except TooLate:
                    promise.job, promise.is_late = "none", True
    for promise in story.promises:
        is_waiting = promise.kind == "open" and promise.job and promise.triggered_s is None
        if is_waiting and CLOCK.now_s() > promise.start_s:
            promise.triggered_s = CLOCK.now_s()
            batch.site.outrider("trigger", promise.name, user=promise.user)


def _ask(batch: MixedBatch, story: Story, wish: LeaseWish) -> None:
    """Ask for a lease; if it is refused, for the earliest start that is named instead, some times."""
    start = "now" if wish.kind == "immediate" else f"now+{wish.ahead_s}s"
    for _ in range(MOST_ASKED):
        asked_s = CLOCK.now_s()
        answer = reserve(batch.site, WORKSPACE, *_options(wish, start), user=wish.user)
        if answer["result"] == "accepted":
            story.promises += _promises(wish, answer, asked_s)
            return
        story.refused[str(answer["cause"])] += 1
        earliest_s = answer["earliest_start_s"]
        if answer["cause"] == "policy":
            return
        # Of what recurs no earliest start is named.
        later_s = earliest_s if isinstance(earliest_s, int) else asked_s + LIMIT_S + wish.ahead_s
        start = f"uts{later_s + 2}"


def _options(wish: LeaseWish, start: str) -> list[str]:
    found = [f"--nodes={wish.nodes}", f"-t{wish.lasts_s}s"]
    if wish.kind == "open":
        opens = [f"--open-from={start}", "--open-until=now+20m", f"--ready-within={WITHIN_S}s"]
        return [*found, *opens]
    more = {
        "recurring": [f"--every={wish.every_s}s", f"--until=now+{wish.ahead_s + wish.every_s + 2}s"],
        "deadline": [f"--finish-by=now+{FINISH_S}s"],
        "preemptible": ["--preemptible"],
    }
    if start.startswith("uts"):
        start_s = int(start[3:])
        more["recurring"][1] = f"--until=uts{start_s + wish.every_s + 2}"
        more["deadline"][0] = f"--finish-by=uts{max(CLOCK.now_s(), start_s) + FINISH_S}"
    return [*found, f"--start={start}", *more.get(wish.kind, [])]


def _promises(wish: LeaseWish, answer: Mapping[str, object], asked_s: int) -> list[Promise]:
    each = answer.get("occurrences") if wish.kind == "recurring" else [answer]
    assert isinstance(each, list)
    return [
        Promise(
            kind=wish.kind,
            name=str(one["name"]),
            user=wish.user,
            nodes=wish.nodes,
            lasts_s=wish.lasts_s,
            asked_s=asked_s,
            start_s=int(one["start_s"]),
        )
        for one in each
    ]


def _open(batch: MixedBatch, story: Story) -> list[str]:
    """What is not over yet."""
    found = [f"job {job}" for job in batch.waiting()]
    lines = batch.site.outrider("list", "--json", user="root").stdout
    known = json.loads(lines)["reservations"]
    names = {each.name for each in story.promises}
    return found + [f"{each['name']} is {each['state']}" for each in known if each["name"] in names]


def _is_over(batch: MixedBatch, story: Story) -> bool:
    left = _open(batch, story)
    if left and all(each.startswith("job ") for each in left):
        # What waits for a reservation that is over never runs: that is said of its promise.
        for promise in story.promises:
            if f"job {promise.job}" in left:
                batch.cancel(promise.job)
    return not left


def reported(site: Site) -> tuple[int, int]:
    """How many reservations the report by accounts has, and what was charged for them."""
    lines = json.loads(site.outrider("report", "--by", "account", "--json", user="root").stdout)["lines"]
    return sum(int(line["reservations"]) for line in lines), sum(int(line["charged"]) for line in lines)


@dataclass
class Ledger:
    """What jobs have written, by their numbers and by reservation."""

    begun: dict[int, list[float]] = field(default_factory=dict)
    ended: dict[int, list[float]] = field(default_factory=dict)
    inside: dict[str, list[tuple[float, str]]] = field(default_factory=dict)


def ledger(site: Site) -> Ledger:
    found = Ledger()
    for line in site.cluster.read(HEAD, f"{site.home()}/{LEDGER}").splitlines():
        kind, key, at, *more = line.split()
        if kind == "inside":
            found.inside.setdefault(key, []).append((float(at), "".join(more)))
        else:
            times = found.begun if kind == "begin" else found.ended
            times.setdefault(int(key), []).append(float(at))
    return found
