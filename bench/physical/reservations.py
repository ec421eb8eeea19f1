"""Advance reservations on real hosts: the stager's other body (thesis, section 8.1).

Each workspace gets an advance reservation of whole hosts in Grid Engine, two instances a host, and a
job that waits there for its images. A client's time is what is left of it once the last of its
images is on its host. Every instance has an image of its own: nothing is reused, unless relayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench.physical.arbiter import NodeLane, own_link
from bench.physical.engine import Engine
from bench.physical.events import Events, Happened, JobWord
from bench.physical.scale import TraceTime
from bench.physical.site import SLOTS, PhysicalImage, PhysicalSite
from outrider.sim.experiments.stager import Sending, StagedRequest, Stager, Strategy

LEASE_S = 86_400
RESERVED_S = 300
"""How long reservations are in Grid Engine: what fits on the hosts, of the 1800 s that are asked for."""
GAP_S = 10
"""Between two reservations on a host: a reservation is padded by Grid Engine's own margin."""


@dataclass(frozen=True, kw_only=True)
class Staged:
    """What a run of reservations has found out; instants of the trace, by request."""

    ready_s: tuple[int, ...]
    """The last image was on its host."""
    job_start_s: tuple[int | None, ...]
    """The job in the reservation said that it runs."""
    job_ready_s: tuple[int | None, ...]
    """And that it has its images; None if that was after its reservation."""
    images: int
    served_bytes: int
    fetched_bytes: int


def places(
    requests: Sequence[StagedRequest], hosts: int, reserved_s: int = RESERVED_S
) -> list[tuple[int, ...]]:
    """Whole hosts for each request, two instances a host, the longest idle first; in the order of starts."""
    free_s = [0] * hosts
    found: dict[int, tuple[int, ...]] = {}
    for number in sorted(range(len(requests)), key=lambda number: requests[number].start_s):
        start_s = requests[number].start_s
        ranked = sorted(range(hosts), key=lambda host: (free_s[host], host))
        chosen = tuple(ranked[: -(-requests[number].nodes // SLOTS)])
        if any(free_s[host] > start_s for host in chosen):
            raise ValueError(
                f"request {number} does not fit on {hosts} hosts at {start_s}: take fewer seconds"
            )
        for host in chosen:
            free_s[host] = start_s + reserved_s + GAP_S
        found[number] = chosen
    return [found[number] for number in range(len(requests))]


class RealReservations:
    """One run of a trace; `run` returns when all jobs have their images, or their time is over."""

    def __init__(
        self,
        site: PhysicalSite,
        requests: Sequence[StagedRequest],
        strategy: Strategy,
        rate_bytes_per_s: int,
        *,
        is_relayed: bool = False,
        reserved_s: int = RESERVED_S,
        nodes: Sequence[str] = (),
        lane: NodeLane = own_link,
    ) -> None:
        """`nodes` are those of the site that are reserved, all if none is named."""
        self._site, self._requests, self._is_relayed = site, requests, is_relayed
        self._reserved_s, self._lane = reserved_s, lane
        self._nodes = list(nodes or site.nodes)
        self._events = Events()
        self._engine = Engine(site, self._events)
        self._stager = Stager(requests, strategy, rate_bytes_per_s, is_relayed=is_relayed)
        self._places = places(requests, len(self._nodes), reserved_s)
        self._images = self._put_images()
        self._missing = [1 if is_relayed else request.nodes for request in requests]
        self._ready_s: dict[int, int] = {}
        self._ends_s: dict[int, int] = {}
        self._job_start_s: dict[int, int] = {}
        self._job_ready_s: dict[int, int] = {}
        self._fetched_bytes = 0
        self._sent = 0
        self._time = TraceTime(site.scale)

    def run(self, within_s: int) -> Staged:
        """`within_s` is in the trace's time."""
        self._time = TraceTime(self._site.scale)
        before = self._site.served_bytes()
        coming = sorted(range(len(self._requests)), key=lambda number: self._requests[number].submit_s)
        over_s = max(request.start_s for request in self._requests) + self._reserved_s + GAP_S
        while not self._is_over(now_s := self._time.now_s(), over_s):
            if now_s > within_s:
                late = len(self._requests) - len(self._ready_s)
                raise TimeoutError(f"{late} workspaces have no images after {now_s} s of the trace")
            while coming and self._requests[coming[0]].submit_s <= now_s:
                self._submit(coming.pop(0))
            for sending in self._stager.due(now_s):
                self._send(sending)
            wakes = [over_s if now_s < over_s else within_s + 1]
            wakes += [self._requests[coming[0]].submit_s] if coming else []
            following_s = self._stager.next_s()
            wakes += [following_s] if following_s is not None else []
            self._clear(now_s)
            wakes += [min(self._ends_s.values())] if self._ends_s else []
            event = self._events.take(self._time.wait_s(min(wakes)))
            if isinstance(event, JobWord):
                self._heard(event)
            elif isinstance(event, Happened):
                event.then()
        return self._staged(self._site.served_bytes() - before)

    def _is_over(self, now_s: int, over_s: int) -> bool:
        """All images have come, and all jobs have them or are over."""
        number = len(self._requests)
        return len(self._ready_s) == number and (len(self._job_ready_s) == number or now_s >= over_s)

    def _submit(self, number: int) -> None:
        start_s = self._time.epoch_s + self._requests[number].start_s
        nodes = [self._nodes[host] for host in self._places[number]]
        self._engine.reserve(number, nodes, start_s, start_s + self._reserved_s, slots=SLOTS)

    def _heard(self, said: JobWord) -> None:
        if said.word == "started":
            self._job_start_s[said.number] = self._time.now_s()
            if said.number in self._ready_s:
                self._engine.tell(said.number, "ready")
        elif said.word == "ready":
            self._job_ready_s[said.number] = self._time.now_s()

    def _put_images(self) -> dict[str, PhysicalImage]:
        """An image for each instance, or for each workspace where it is passed on."""
        return {
            f"{number}/{instance}": self._site.image(
                f"image{number}-{instance}", self._site.scale.size_bytes(request.size_bytes)
            )
            for number, request in enumerate(self._requests)
            for instance in range(1 if self._is_relayed else request.nodes)
        }

    def _send(self, sending: Sending) -> None:
        """To the instance's host, or from host to host while it arrives."""
        hosts = list(
            dict.fromkeys(self._places[sending.request][each // SLOTS] for each in sending.instances)
        )
        nodes = [self._nodes[host] for host in hosts]
        image = self._images[sending.key]
        left = set(nodes)
        self._sent += 1

        def arrived(node: str) -> None:
            self._fetched_bytes += image.size_bytes
            left.discard(node)
            if not left:
                self._stager.arrived()
                self._arrived(sending)

        for place, node in enumerate(nodes):
            sources = [self._site.relay_of(nodes[place - 1], image.digest)] if place else []
            self._events.begin(partial(self._fetched, node, image, sources, arrived))

    def _fetched(
        self, node: str, image: PhysicalImage, sources: list[str], arrived: Callable[[str], None]
    ) -> Callable[[], None]:
        """In a thread: the node's daemon brings the image into its pool."""
        wish: dict[str, object] = {"uri": image.uri, "digest": image.digest, "size_bytes": image.size_bytes}
        with self._site.client(node) as client, self._lane(node):
            client.ask("add", {**wish, "sources": [*sources, image.uri]}, on_progress=lambda told: None)
        return lambda: arrived(node)

    def _arrived(self, sending: Sending) -> None:
        self._missing[sending.request] -= 1
        if self._missing[sending.request]:
            return
        self._ready_s[sending.request] = self._time.now_s()
        self._ends_s[sending.request] = self._requests[sending.request].start_s + self._reserved_s
        if sending.request in self._job_start_s:
            self._engine.tell(sending.request, "ready")

    def _clear(self, now_s: int) -> None:
        """The images of reservations that are over go, also when they come only then."""
        for number in [number for number, end_s in self._ends_s.items() if end_s <= now_s]:
            del self._ends_s[number]
            images = [each for key, each in self._images.items() if key.partition("/")[0] == str(number)]
            self._events.begin(partial(self._evicted, number, images))

    def _evicted(self, number: int, images: Sequence[PhysicalImage]) -> Callable[[], None]:
        """In a thread."""
        for host in self._places[number]:
            with self._site.client(self._nodes[host]) as client:
                there = {each["digest"] for each in client.ask("ls")["images"]}
                for digest in there & {image.digest for image in images}:
                    client.ask("evict", {"name": digest})
        return lambda: None

    def _staged(self, served_bytes: int) -> Staged:
        numbers = range(len(self._requests))
        self._engine.empty()
        return Staged(
            ready_s=tuple(self._ready_s[number] for number in numbers),
            job_start_s=tuple(self._job_start_s.get(number) for number in numbers),
            job_ready_s=tuple(self._job_ready_s.get(number) for number in numbers),
            images=self._sent,
            served_bytes=served_bytes,
            fetched_bytes=self._fetched_bytes,
        )
