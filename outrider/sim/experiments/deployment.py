"""Deploying a batch system's flurry of jobs with and without an image pool on each node.

This is the thesis' section 8.2 (Figures 8.6 and 8.7): Grid Engine places jobs first come,
first served, and each host then deploys one image after the other over the one link that
all hosts share. With a pool, an image that the host has is copied locally instead.

The testbed's parameters are named in `Testbed`, each with the reason for its value. With
them trace III leads by 24.0 GB at 3550 s and trace IV by 28.2 GB (thesis: 25.2 and 27.6,
that is two images more and one less).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from heapq import heappop, heappush

from cachemgr.pool.policies import POLICIES, PolicyEntry, victims
from outrider.sim.experiments.dispatcher import GridDispatcher, GridRules, Turn
from outrider.sim.sharing import FluidLink, SharedTransfer


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRequest:
    """A submission of `nodes` instances of one image, to run as soon as possible."""

    submit_s: int
    image: str
    size_bytes: int
    nodes: int
    duration_s: int

    def __post_init__(self) -> None:
        if self.submit_s < 0 or min(self.size_bytes, self.nodes, self.duration_s) < 1:
            raise ValueError(f"nodes, bytes and seconds have to be 1 or more: {self}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Testbed:
    """The thesis' eight hosts, and what its text leaves open.

    - `pool_bytes`: 1.8 GB, three images, as printed; 0 means that nothing is kept.
    - `copy_bytes_per_s`: what the hosts' disks copy in a second. 3 MB/s is inferred: at
      2.5 MB/s the leads fall to 17 GB, at 3.5 MB/s they rise to 29 and 34 GB.
    - `prefers_cached`: the submit script softly requests hosts that report the image.
      Without it trace III leads by the printed 25.2 GB and trace IV still by 28.2 GB.
    - `fills_hosts`: Grid Engine gives a job both slots of a host before it takes another.
      If it spread jobs instead, trace IV would lead by 33.6 GB.
    - `is_parallel`: the instances are one parallel job, which starts when its last image
      is there and frees its slots together. One by one, trace IV would lead by 33 GB.
    - `copies_after_miss`: whether an instance waits for a copy of what was transferred for
      it, too. Then trace III would lead by 8 GB, so the transfer alone makes it ready.
    - `start_delay_s`: how long Grid Engine takes to start a job on hosts that are free. The
      thesis does not say; bench/physical measures it.
    """

    __test__ = False  # pytest takes the name for a test's.

    hosts: int = 8
    slots_per_host: int = 2
    link_bytes_per_s: int = 12_500_000
    pool_bytes: int = 1_800_000_000
    copy_bytes_per_s: int = 3_000_000
    eviction: str = "lfu"
    prefers_cached: bool = True
    fills_hosts: bool = True
    is_parallel: bool = True
    copies_after_miss: bool = False
    start_delay_s: int = 0

    def __post_init__(self) -> None:
        rates = (self.link_bytes_per_s, self.copy_bytes_per_s)
        if min(self.hosts, self.slots_per_host, *rates) < 1 or min(self.pool_bytes, self.start_delay_s) < 0:
            raise ValueError(f"hosts, slots and rates have to be 1 or more: {self}")
        if self.eviction not in POLICIES:
            raise ValueError(f"eviction {self.eviction} is not one of {', '.join(POLICIES)}")

    @property
    def rules(self) -> GridRules:
        return GridRules(
            hosts=self.hosts,
            slots_per_host=self.slots_per_host,
            prefers_cached=self.prefers_cached,
            fills_hosts=self.fills_hosts,
            is_parallel=self.is_parallel,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceDeployment:
    """One instance: its job got its slot, its own turn came, its image was there."""

    request: int
    host: int
    size_bytes: int
    job_start_s: int
    begin_s: int
    ready_s: int
    is_hit: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DeploymentRun:
    """All deployments of an experiment, in the order in which they became ready."""

    deployments: tuple[InstanceDeployment, ...]

    @property
    def hits(self) -> int:
        return sum(each.is_hit for each in self.deployments)

    @property
    def transfers(self) -> int:
        return len(self.deployments) - self.hits

    @property
    def mean_from_job_start_s(self) -> Fraction:
        waits = [each.ready_s - each.job_start_s for each in self.deployments]
        return Fraction(sum(waits), len(waits))

    @property
    def mean_from_transfer_start_s(self) -> Fraction:
        waits = [each.ready_s - each.begin_s for each in self.deployments]
        return Fraction(sum(waits), len(waits))

    def series(self) -> tuple[tuple[int, int], ...]:
        """(second, bytes deployed by its end), one point for each second with a change."""
        deployed_bytes = 0
        points: dict[int, int] = {}
        for each in self.deployments:
            deployed_bytes += each.size_bytes
            points[each.ready_s] = deployed_bytes
        return tuple(points.items())

    def deployed_bytes(self, at_s: int) -> int:
        points = self.series()
        index = bisect_right(points, at_s, key=lambda point: point[0])
        return points[index - 1][1] if index else 0


def lead_bytes(ahead: DeploymentRun, behind: DeploymentRun, at_s: int) -> int:
    """By how much more one run has deployed by this second than the other."""
    return ahead.deployed_bytes(at_s) - behind.deployed_bytes(at_s)


def run_deployments(requests: Sequence[BatchRequest], testbed: Testbed) -> DeploymentRun:
    for number, request in enumerate(requests):
        if request.nodes > testbed.hosts * testbed.slots_per_host:
            raise ValueError(
                f"request {number} asks for {request.nodes} instances, but the testbed has "
                f"{testbed.hosts * testbed.slots_per_host} slots: it would wait forever"
            )
    world = VirtualHosts(requests, testbed, FluidLink(testbed.link_bytes_per_s))
    while (now_s := world.next_s()) is not None:
        world.happen(now_s)
    return deployment_run(requests, world.done)


def deployment_run(requests: Sequence[BatchRequest], turns: Iterable[Turn]) -> DeploymentRun:
    """What a dispatcher's turns say, in the order in which they became ready."""
    return DeploymentRun(
        deployments=tuple(
            InstanceDeployment(
                request=turn.request,
                host=turn.host,
                size_bytes=requests[turn.request].size_bytes,
                job_start_s=turn.job_start_s,
                begin_s=turn.begin_s,
                ready_s=turn.ready_s,
                is_hit=turn.is_hit,
            )
            for turn in turns
        )
    )


class _Pool:
    """The images that a host keeps."""

    def __init__(self, testbed: Testbed) -> None:
        self.images: dict[str, PolicyEntry] = {}
        self._limit_bytes = testbed.pool_bytes
        self._policy = POLICIES[testbed.eviction]

    def make_room(self, size_bytes: int, ahead: Sequence[str], now_s: int) -> None:
        """Let others leave for an image that is about to come, if enough of them can."""
        taken_bytes = sum(entry.size_bytes for entry in self.images.values())
        need_bytes = taken_bytes + size_bytes - self._limit_bytes
        known = [_expected(entry, ahead, now_s) for entry in self.images.values()]
        gone = victims(known, need_bytes, self._policy, now_s)
        if gone is not None and sum(entry.size_bytes for entry in gone) >= need_bytes:
            for entry in gone:
                del self.images[entry.key]

    def keep(self, image: str, size_bytes: int, now_s: int) -> None:
        """Put a transferred image into the pool if there is room."""
        taken_bytes = sum(entry.size_bytes for entry in self.images.values())
        if taken_bytes + size_bytes <= self._limit_bytes:
            entry = PolicyEntry(key=image, size_bytes=size_bytes, added_s=now_s)
            self.images[image] = entry.used(now_s)


def _expected(entry: PolicyEntry, ahead: Sequence[str], now_s: int) -> PolicyEntry:
    """With the place in the queue of whoever needs it next, for the policy that asks."""
    return PolicyEntry(
        key=entry.key,
        size_bytes=entry.size_bytes,
        added_s=entry.added_s,
        uses=entry.uses,
        last_use_s=entry.last_use_s,
        next_use_s=now_s + 1 + ahead.index(entry.key) if entry.key in ahead else None,
    )


class VirtualHosts:
    """Virtual hosts over time. Whatever happens at one instant happens before jobs start."""

    def __init__(self, requests: Sequence[BatchRequest], testbed: Testbed, link: FluidLink) -> None:
        self._requests = requests
        self._testbed = testbed
        self._link = link
        self._pools = [_Pool(testbed) for _ in range(testbed.hosts)]
        self._under_way: dict[str, Turn] = {}
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._sequence = 0
        self._dispatcher = GridDispatcher(requests, testbed.rules, self)
        for number, request in enumerate(requests):
            self._at(request.submit_s, partial(self._submit, number))

    @property
    def done(self) -> list[Turn]:
        return self._dispatcher.done

    def next_s(self) -> int | None:
        """When something happens next; None when all jobs have ended."""
        times = [self._link.next_finish_s(), self._events[0][0] if self._events else None]
        return min((each for each in times if each is not None), default=None)

    def happen(self, now_s: int) -> None:
        for finished in self._link.advance(now_s):
            self._arrive(self._under_way.pop(finished.key), now_s)
        while self._events and self._events[0][0] <= now_s:
            heappop(self._events)[2](now_s)
        self._dispatcher.step(now_s)

    def has_image(self, host: int, image: str) -> bool:
        return image in self._pools[host].images

    def start_job(self, request: int, hosts: tuple[int, ...], now_s: int) -> None:
        if self._testbed.start_delay_s:
            self._at(now_s + self._testbed.start_delay_s, partial(self._dispatcher.job_started, request))
        else:
            self._dispatcher.job_started(request, now_s)

    def deploy(self, turn: Turn, now_s: int) -> None:
        request = self._requests[turn.request]
        images = self._pools[turn.host].images
        entry = images.get(request.image)
        if entry is not None:
            turn.is_hit = True
            images[request.image] = entry.used(now_s)
            self._copy(turn, now_s)
            return
        self._pools[turn.host].make_room(request.size_bytes, self._dispatcher.ahead, now_s)
        key = str(turn.host)
        self._under_way[key] = turn
        transfer = SharedTransfer(key=key, start_s=now_s, size_bytes=request.size_bytes)
        self._link.add(transfer)

    def run_job(self, request: int, hosts: tuple[int, ...], now_s: int) -> None:
        self._at(now_s + self._requests[request].duration_s, partial(self._free, hosts))

    def _at(self, at_s: int, action: Callable[[int], None]) -> None:
        heappush(self._events, (at_s, self._sequence, action))
        self._sequence += 1

    def _submit(self, request: int, now_s: int) -> None:
        self._dispatcher.submitted(request)

    def _copy(self, turn: Turn, now_s: int) -> None:
        size_bytes = self._requests[turn.request].size_bytes
        copy_s = -(-size_bytes // self._testbed.copy_bytes_per_s)
        self._at(now_s + copy_s, partial(self._dispatcher.deployed, turn))

    def _arrive(self, turn: Turn, now_s: int) -> None:
        request = self._requests[turn.request]
        self._pools[turn.host].keep(request.image, request.size_bytes, now_s)
        if self._testbed.copies_after_miss and self._testbed.pool_bytes:
            self._copy(turn, now_s)
        else:
            self._dispatcher.deployed(turn, now_s)

    def _free(self, hosts: tuple[int, ...], now_s: int) -> None:
        self._dispatcher.slots_freed(hosts)
