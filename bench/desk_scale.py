"""The desk before a large site and thousands of jobs, without Slurm: what each of its events costs.

The same story twice: on a small site, and on one with ten times as many nodes and jobs. Most nodes are
busy with jobs that name no image, others of those wait; jobs with images come at a steady rate, wait for
their images, then for nodes, run and end. Nodes and the batch system are played and cost nothing that
is counted, time is made up, and every event of the desk is measured in processor time, which does not
depend on what else the machine does. An event that costs ten times as much on the large site looks at
everything; one that costs the same looks at what has changed.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import heapq
import json
import pstats
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path
from random import Random
from time import thread_time

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.admission import percentile
from bench.frame import Arguments, judged
from bench.service_world import Journal, MemoryNodes
from outrider.core.model import Resources
from outrider.metadata.policies import parse_policies
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import parse_workspace
from outrider.rms.base import JobState, RmsJob, RmsNode, Sight
from outrider.service.desk.desk import Desk
from outrider.service.ports import (
    Call,
    Carry,
    Finished,
    FoundImage,
    Look,
    ResolveImage,
    Result,
    TellNode,
    TellUser,
)
from outrider.service.requests import (
    Asked,
    Caller,
    ListJobs,
    ListNodes,
    Request,
    Reserve,
    ShowStatus,
    Ticked,
)
from outrider.service.settings import Settings
from outrider.store.sqlite.store import SqliteStore

LIMIT_MS = 200.0
"""What an event may take."""
IMAGE_BYTES = 4_000_000
LINK_BYTES_PER_S = 22_000_000
WHOLE = Resources.of(cpus=64)
IMAGES = 60
OTHERS_RUN = 0.8
"""So much of the site is taken by jobs without an image."""
CALLS_PER_S = 30
"""What the batch system is asked to change within a second: commands take their time."""
MOST_TICKS = 10_000
USER = Caller(uid=1000, user="ada")


class StoryClock:
    """Time as the story has it."""

    def __init__(self) -> None:
        self.at_s = 1_000_000

    def now_s(self) -> int:
        return self.at_s

    def monotonic_s(self) -> float:
        return float(self.at_s)


class NoJournal(Journal):
    """Nothing is restarted here."""

    def read(self) -> list[dict[str, object]]:
        return []

    def write(self, line: dict[str, object]) -> None: ...


class Nothing:
    """A log and a meter that cost nothing."""

    def debug(self, event: str, **fields: object) -> None: ...

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...

    def count(self, name: str, *labels: str, by: int = 1) -> None: ...

    def set(self, name: str, value: float, *labels: str) -> None: ...

    def observe(self, name: str, value: float, *labels: str) -> None: ...


class BusyBatchSystem:
    """A batch system that starts what may start, first come, first served, on whole nodes."""

    def __init__(self, nodes: int, others: int, clock: StoryClock) -> None:
        self._clock = clock
        self._random = Random(2)
        self.nodes = tuple(
            RmsNode(name=f"c{number:05}", capacity=Resources.of(cpus=64, memory_mib=256_000))
            for number in range(nodes)
        )
        self._free = {node.name: None for node in self.nodes}
        self._jobs: dict[str, RmsJob] = {}
        self._runs: dict[str, int] = {}
        self._entry: dict[str, tuple[str, ...]] = {}
        self._ends: list[tuple[int, str]] = []
        self._number = 0
        for number in range(others):
            is_running = number < OTHERS_RUN * nodes
            self._add(None, 1, self._random.randint(60, 3600), is_held=False, is_running=is_running)

    def submit(self, image: int, nodes: int) -> None:
        self._add(f"image: http://images/{image}.qcow2\n", nodes, self._random.randint(60, 900), is_held=True)

    def _add(
        self, metadata: str | None, nodes: int, runs_s: int, *, is_held: bool, is_running: bool = False
    ) -> None:
        self._number += 1
        key = str(self._number)
        self._runs[key] = runs_s
        self._jobs[key] = RmsJob(
            key=key,
            user=USER.user,
            uid=USER.uid,
            state=JobState.HELD if is_held else JobState.PENDING,
            nodes_wanted=nodes,
            resources=WHOLE,
            limit_s=3600,
            submitted_s=self._clock.at_s,
            metadata=metadata,
            is_held_by_us=is_held,
        )
        if is_running:
            self._start(self._jobs[key], [next(iter(self._free))])

    def _start(self, job: RmsJob, nodes: list[str]) -> None:
        for name in nodes:
            del self._free[name]
        self._jobs[job.key] = replace(
            job, state=JobState.RUNNING, nodes=tuple(sorted(nodes)), start_s=self._clock.at_s
        )
        heapq.heappush(self._ends, (self._clock.at_s + self._runs[job.key], job.key))

    def go_on(self) -> None:
        """What has run its time ends, and nodes that are free are given to those that wait."""
        while self._ends and self._ends[0][0] <= self._clock.at_s:
            _, key = heapq.heappop(self._ends)
            self._free |= dict.fromkeys(self._jobs.pop(key).nodes)
        for job in list(self._jobs.values()) if self._free else ():
            if job.state is JobState.PENDING and len(self._free) >= job.nodes_wanted:
                entry = self._entry.get(job.key)
                names = [name for name in (self._free if entry is None else entry) if name in self._free]
                if len(names) >= job.nodes_wanted:
                    self._start(job, names[: job.nodes_wanted])

    def look(self) -> Sight:
        return Sight(
            at_s=self._clock.at_s, nodes=self.nodes, jobs=tuple(self._jobs.values()), reservations=()
        )

    def carry(self, call: Carry) -> None:
        key, payload = call.effect.subject.rpartition(" ")[2], json.loads(call.effect.payload)
        job = self._jobs.get(key)
        if job is not None and job.state in (JobState.HELD, JobState.PENDING):
            is_held = call.effect.kind == "hold"
            self._entry[key] = tuple(payload.get("nodes", ()))
            state = JobState.HELD if is_held else JobState.PENDING
            self._jobs[key] = replace(job, state=state, is_held_by_us=is_held)

    def waiting(self) -> int:
        waiting = (JobState.HELD, JobState.PENDING)
        return sum(job.metadata is not None and job.state in waiting for job in self._jobs.values())


@dataclass(slots=True)
class Costs:
    """Milliseconds of processor time, by kind of event."""

    by_kind: dict[str, list[float]] = field(default_factory=dict)
    total_s: float = 0.0


class Profile(cProfile.Profile):
    """Of events of one kind, or of all."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind


class SiteStory:
    """One site from its first look on."""

    def __init__(self, folder: Path, nodes: int, jobs: int, others: int, profile: Profile | None) -> None:
        self.clock = StoryClock()
        self.nodes, self.jobs = nodes, jobs
        self.costs = Costs()
        self._profile = profile
        self._random = Random(1)
        self._store = SqliteStore.create(folder / f"store{nodes}.sqlite", self.clock.at_s)
        self.crowd = BusyBatchSystem(nodes, others, self.clock)
        self._pools = MemoryNodes([each.name for each in self.crowd.nodes], self.clock, NoJournal(folder))  # type: ignore[arg-type]
        self._settings = Settings(
            link_rate_bytes_per_s=LINK_BYTES_PER_S, look_every_s=2, progress_every_s=2, away_after_s=60
        )
        policies = parse_policies(b"version: 1\nrules:\n  - name: all\n", file="policies.yaml")
        self.desk = Desk(
            self._store, self._settings, policies, self.clock.at_s, log=Nothing(), meter=Nothing()
        )
        self._calls: deque[Call] = deque()
        self._commands: deque[Call] = deque()
        self._handed_in = 0
        self._ticket = 0

    def close(self) -> None:
        self._store.close()

    def run(self, seconds: int, fill_s: int) -> None:
        for second in range(seconds):
            self.clock.at_s += 1
            due = min(self.jobs, self.jobs * (second + 1) // fill_s) - self._handed_in
            for _ in range(due):
                self.crowd.submit(self._random.randrange(IMAGES), self._random.choice((1, 1, 1, 2, 4)))
            self._handed_in += due
            self.crowd.go_on()
            self._second(second)

    def _second(self, second: int) -> None:
        self._handle(Ticked(), "tick")
        for kind, request in self._requests(second):
            self._ticket += 1
            self._handle(Asked(ticket=self._ticket, caller=USER, request=request), kind)
        left = CALLS_PER_S
        for _ in range(MOST_TICKS):
            if self._calls:
                call = self._calls.popleft()
            elif self._commands and left:
                call, left = self._commands.popleft(), left - 1
            elif (self.desk.next_s() or self.clock.at_s + 1) <= self.clock.at_s:
                self._handle(Ticked(), "tick")
                continue
            else:
                return
            self._handle(Finished(call=call, result=self._done(call)), f"finished {type(call).__name__}")
        raise SystemExit("the desk does not come to rest")

    def _requests(self, second: int) -> list[tuple[str, Request]]:
        found: list[tuple[str, Request]] = [("status", ShowStatus()), ("jobs", ListJobs())]
        if second % 3 == 0:
            found += [("plan", replace(self._wanted(), is_plan=True)), ("nodes", ListNodes())]
        return found

    def _wanted(self) -> Reserve:
        text = (
            'version: 1\nmetadata: {name: probe, image: {uri: "http://images/1.qcow2"}}\n'
            f"deployment: {{nodes: {max(1, self.nodes // 50)}, cpus: 64, duration: 1h, start: now+3h}}\n"
        )
        circumstances = Circumstances(now_s=self.clock.at_s, zone=UTC)
        file = parse_workspace(text.encode(), circumstances, file="ws.yaml")
        return Reserve(workspace=file, image=_image("http://images/1.qcow2"))

    def _done(self, call: Call) -> Result:
        match call:
            case Look():
                return self.crowd.look()
            case Carry():
                self.crowd.carry(call)
                return None
            case TellNode():
                return self._pools.tell(call)
            case ResolveImage():
                return _image(call.uri)
            case _:
                return None

    def _handle(self, event: Asked | Finished | Ticked, kind: str) -> None:
        profile = self._profile if self._profile is not None and self._profile.kind in ("all", kind) else None
        if profile is not None:
            profile.enable()
        began_s = thread_time()
        outcome = self.desk.handle(event, self.clock.at_s)
        self.desk.next_s()
        took_s = thread_time() - began_s
        if profile is not None:
            profile.disable()
        self.costs.by_kind.setdefault(kind, []).append(1000 * took_s)
        self.costs.total_s += took_s
        for call in outcome.calls:
            (self._commands if isinstance(call, (Look, Carry, TellUser)) else self._calls).append(call)


def _image(uri: str) -> FoundImage:
    return FoundImage(size_bytes=IMAGE_BYTES, digest="sha256:" + (uri.encode().hex() * 3)[-64:])


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(__doc__)
    parser.add("--nodes", 5000, 100)
    parser.add("--jobs", 3000, 60, "with images")
    parser.add("--others", 9000, 180, "without; four fifths of the nodes run one")
    parser.add("--seconds", 120, 30)
    parser.add("--fill", 60, 10, "seconds within which the jobs come")
    parser.add_argument("--profile", metavar="KIND", help="where the time of such events goes, or of `all`")
    options = parser.given(argv)
    with tempfile.TemporaryDirectory(prefix="outrider-bench-") as folder:
        if options.profile:
            profile = Profile(options.profile)
            _told(options, 1, Path(folder), profile)
            pstats.Stats(profile).sort_stats("cumulative").print_stats(55)
            pstats.Stats(profile).sort_stats("tottime").print_stats(35)
            return 0
        small = _told(options, 10, Path(folder), None)
        large = _told(options, 1, Path(folder), None)
    print("worst event of each kind, large site against small")
    over = 0
    for kind, costs in sorted(large.by_kind.items()):
        before = max(small.by_kind.get(kind, [0.0]))
        print(f"  {kind:22} {max(costs) / max(before, 0.01):6.1f} times")
        over += sum(each > LIMIT_MS for each in costs)
    print(f"{over} events took more than {LIMIT_MS:g} ms")
    return judged(options, is_good=not over)


def _told(options: argparse.Namespace, share: int, folder: Path, profile: Profile | None) -> Costs:
    story = SiteStory(folder, options.nodes // share, options.jobs // share, options.others // share, profile)
    gc.collect()
    gc.freeze()
    try:
        story.run(options.seconds, options.fill)
    finally:
        story.close()
        gc.unfreeze()
    costs = story.costs
    print(
        f"{story.nodes} nodes, {story.jobs} jobs with images, {options.others // share} without; "
        f"{story.crowd.waiting()} wait at the end; ms of processor time"
    )
    print(f"  {'':22} {'n':>7} {'median':>8} {'p99':>8} {'worst':>8} {'s in all':>9}")
    for kind, found in sorted(costs.by_kind.items()):
        print(
            f"  {kind:22} {len(found):7} {percentile(found, 50):8.2f} {percentile(found, 99):8.2f} "
            f"{max(found):8.2f} {sum(found) / 1000:9.2f}"
        )
    print(f"  the desk was busy for {costs.total_s / options.seconds:.0%} of the time", flush=True)
    return costs


if __name__ == "__main__":
    raise SystemExit(main())
