"""The months again, twice: each job fetches its image itself, or it is there before the job starts.

Both sides keep the site's own schedule: nobody moves up into what was saved, so the figures are what the
images alone cost. As it was, every node of a job fetches from the server when the job starts, and all that
fetch share the server's link equally. With Outrider an image goes once to all nodes of a job that lack it,
one transfer after another in the order of starts, from the job's submission on; what is on a node stays
until its pool is full.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from outrider.sim.workload.savings.records import AccountedJob, ImageMap, MappedImage


@dataclass(frozen=True, kw_only=True, slots=True)
class SavingsSite:
    """The server's link, and the pool of each node."""

    link_bytes_per_s: int
    pool_bytes: int
    keeps_images: bool = False
    """Whether nodes keep images already, as Outrider's would."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageNeed:
    """A job with its image and the nodes that it ran on, which are made up where the accounting has none."""

    job: AccountedJob
    image: MappedImage
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What a job's image cost: bytes of the server's, seconds of the job's own on all of its nodes, and how
    much later than its submission it could use the image."""

    bytes: int
    lost_s: float
    wait_s: float


@dataclass(slots=True)
class _Pool:
    """The images of a node, the one that was used longest ago first, and until when each is in use."""

    most_bytes: int
    held: OrderedDict[str, tuple[int, float]] = field(default_factory=OrderedDict)
    in_use_until_s: dict[str, int] = field(default_factory=dict)

    def ready_s(self, image: MappedImage) -> float | None:
        found = self.held.get(image.name)
        return None if found is None else found[1]

    def use(self, image: MappedImage, ready_s: float, start_s: int, end_s: int) -> None:
        """What has to go goes first; an image that is larger than the pool is not kept."""
        self.held.pop(image.name, None)
        idle = [name for name in self.held if self.in_use_until_s.get(name, 0) <= start_s]
        total = sum(size for size, _ in self.held.values()) + image.size_bytes
        for name in idle:
            if total <= self.most_bytes:
                break
            total -= self.held.pop(name)[0]
        if total <= self.most_bytes:
            self.held[image.name] = (image.size_bytes, ready_s)
        self.in_use_until_s[image.name] = max(end_s, self.in_use_until_s.get(image.name, 0))


def wants_of(jobs: Iterable[AccountedJob], images: ImageMap) -> tuple[list[ImageNeed], int]:
    """The jobs that want an image, by their start, and how many want none."""
    found, others = [], 0
    free: list[tuple[int, int]] = []
    made = 0
    for job in jobs:
        image = images.image_of(job)
        if image is None:
            others += 1
            continue
        nodes = job.nodes
        if not nodes:
            # The nodes that have been free for longest: without names a site uses them in turn.
            numbers: list[int] = []
            while len(numbers) < job.count and free and free[0][0] <= job.start_s:
                numbers.append(heapq.heappop(free)[1])
            while len(numbers) < job.count:
                made += 1
                numbers.append(made)
            for number in numbers:
                heapq.heappush(free, (job.end_s, number))
            nodes = tuple(f"node-{number}" for number in numbers)
        found.append(ImageNeed(job=job, image=image, nodes=nodes))
    return found, others


def as_it_was(wants: Sequence[ImageNeed], site: SavingsSite) -> list[Cost]:
    """Each node of a job fetches the image when the job starts."""
    pools: dict[str, _Pool] = {}
    lacking = []
    for want in wants:
        job, nodes = want.job, 0
        for name in want.nodes:
            pool = pools.setdefault(name, _Pool(site.pool_bytes))
            if not site.keeps_images or pool.ready_s(want.image) is None:
                nodes += 1
            if site.keeps_images:
                pool.use(want.image, float(job.start_s), job.start_s, job.end_s)
        lacking.append(nodes)
    ends = shared_ends(
        [
            (want.job.start_s, nodes, want.image.size_bytes)
            for want, nodes in zip(wants, lacking, strict=True)
        ],
        site.link_bytes_per_s,
    )
    costs = []
    for want, nodes, end_s in zip(wants, lacking, ends, strict=True):
        job = want.job
        # Its own time had an end, too: no job was recorded as longer than it ran.
        took_s = min(end_s - job.start_s, float(job.end_s - job.start_s))
        wait_s = job.start_s - job.submit_s + took_s
        costs.append(Cost(bytes=nodes * want.image.size_bytes, lost_s=took_s * job.count, wait_s=wait_s))
    return costs


def shared_ends(flows: Sequence[tuple[int, int, int]], rate: int) -> list[float]:
    """When each of these has ended: its start, how many fetch together, and the bytes for each of them. All
    that fetch at a time have equal shares of the link."""
    ends = [float(start_s) for start_s, _, _ in flows]
    active: list[tuple[float, int]] = []
    """By how many bytes each that fetches had when they end, counted from the beginning."""
    each_has, now_s, count = 0.0, 0.0, 0

    def run(until_s: float | None) -> None:
        nonlocal each_has, now_s, count
        while active:
            goal, number = active[0]
            end_s = now_s + (goal - each_has) * count / rate
            if until_s is not None and end_s > until_s:
                each_has += (until_s - now_s) * rate / count
                break
            heapq.heappop(active)
            each_has, now_s = goal, end_s
            ends[number] = end_s
            count -= flows[number][1]
        if until_s is not None:
            now_s = until_s

    for number, (start_s, nodes, size_bytes) in enumerate(flows):
        run(float(start_s))
        if nodes:
            heapq.heappush(active, (each_has + size_bytes, number))
            count += nodes
    run(None)
    return ends


def with_outrider(wants: Sequence[ImageNeed], site: SavingsSite) -> list[Cost]:
    """One transfer for all nodes of a job that lack the image, before it starts if there is time for that."""
    pools: dict[str, _Pool] = {}
    free_s = 0.0
    costs = []
    for want in wants:
        job, image = want.job, want.image
        known = [pools.setdefault(name, _Pool(site.pool_bytes)).ready_s(image) for name in want.nodes]
        ready_s = max([float(job.submit_s), *(each for each in known if each is not None)])
        moved = 0
        arrives_s = ready_s
        if None in known:
            moved = image.size_bytes
            arrives_s = free_s = max(free_s, float(job.submit_s)) + moved / site.link_bytes_per_s
        start_s = max(float(job.start_s), ready_s, arrives_s)
        for name, before_s in zip(want.nodes, known, strict=True):
            pools[name].use(image, arrives_s if before_s is None else before_s, job.start_s, job.end_s)
        costs.append(Cost(bytes=moved, lost_s=0.0, wait_s=start_s - job.submit_s))
    return costs
