"""Best-effort jobs on real hosts: the dispatcher's other body (thesis, section 8.2).

A job that has its slots waits while each of its instances is deployed: the image comes over the link
into the host's pool, or is copied from there at the rate of the thesis' disks. Where no pool is to
be, each instance has a file of its own, which goes when its job ends.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bench.physical.arbiter import NodeLane, own_link
from bench.physical.engine import Engine
from bench.physical.events import Events, Happened, JobWord
from bench.physical.scale import TraceTime
from bench.physical.site import SCRATCH, PhysicalImage, PhysicalSite
from cachemgr.base.errors import NotInPool
from outrider.sim.experiments.deployment import BatchRequest, DeploymentRun, Testbed, deployment_run
from outrider.sim.experiments.dispatcher import GridDispatcher, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cachemgr.network.client import DaemonClient

CHUNK_BYTES = 64 * 1024
LEASE_S = 86_400
QUEUE = "queue"
SOON_S = 600
"""Later than any moment of a run, so that what is expected is always still to come."""


@dataclass(frozen=True, kw_only=True)
class JobsResult:
    """What a run of jobs has found out beside its deployments."""

    run: DeploymentRun
    served_bytes: int
    fetched_bytes: int
    starts_s: tuple[int, ...]


class RealJobs:
    """One run of a trace; `run` returns when all jobs have ended."""

    def __init__(
        self,
        site: PhysicalSite,
        requests: Sequence[BatchRequest],
        testbed: Testbed,
        *,
        nodes: Sequence[str] = (),
        lane: NodeLane = own_link,
    ) -> None:
        """`nodes` are those of the site that run jobs, all if none is named."""
        odd = [each for each in requests if each.nodes % testbed.slots_per_host]
        if odd or not testbed.is_parallel or not testbed.fills_hosts:
            raise ValueError("Grid Engine is asked for whole hosts: give each job all slots of its hosts")
        self._site, self._requests, self._testbed, self._lane = site, requests, testbed, lane
        self._nodes = list(nodes or site.nodes)
        self._events = Events()
        self._engine = Engine(site, self._events)
        self._dispatcher = GridDispatcher(requests, testbed.rules, self)
        self._held: list[set[str]] = [set() for _ in site.nodes]
        self._placed: dict[int, tuple[int, ...]] = {}
        self._left = set(range(len(requests)))
        self._lasts_s: dict[int, float] = {}
        self._released_s: dict[int, int] = {}
        self._fetched_bytes = 0
        self._images = self._put_images()
        self._time = TraceTime(site.scale)

    def run(self, within_s: int) -> JobsResult:
        """`within_s` is in the trace's time."""
        self._time = TraceTime(self._site.scale)
        before = self._site.served_bytes()
        coming = list(enumerate(self._requests))
        while self._left:
            now_s = self._time.now_s()
            if now_s > within_s:
                raise TimeoutError(f"{len(self._left)} jobs have not ended after {now_s} s of the trace")
            while coming and coming[0][1].submit_s <= now_s:
                self._submit(coming.pop(0)[0])
            self._dispatcher.step(now_s)
            event = self._events.take(self._time.wait_s(coming[0][1].submit_s if coming else within_s + 1))
            if isinstance(event, JobWord):
                self._heard(event)
            elif isinstance(event, Happened):
                event.then()
        self._engine.empty()
        return JobsResult(
            run=deployment_run(self._requests, self._dispatcher.done),
            served_bytes=self._site.served_bytes() - before,
            fetched_bytes=self._fetched_bytes,
            starts_s=tuple(self._released_s[number] for number in range(len(self._requests))),
        )

    def has_image(self, host: int, image: str) -> bool:
        return image in self._held[host]

    def start_job(self, request: int, hosts: tuple[int, ...], now_s: int) -> None:
        self._placed[request] = hosts
        self._released_s[request] = now_s
        self._engine.release(request, sorted({self._nodes[host] for host in hosts}))

    def deploy(self, turn: Turn, now_s: int) -> None:
        ahead = self._dispatcher.ahead if self._testbed.eviction == "calendar" else ()
        self._events.begin(partial(self._deployed, turn, ahead))

    def run_job(self, request: int, hosts: tuple[int, ...], now_s: int) -> None:
        lasts_s = self._site.scale.real_s(self._requests[request].duration_s)
        self._engine.tell(request, f"{lasts_s:.3f}")

    def _submit(self, number: int) -> None:
        slots = self._testbed.slots_per_host
        self._engine.submit_held(number, nodes=self._requests[number].nodes // slots, slots=slots)
        self._dispatcher.submitted(number)

    def _heard(self, said: JobWord) -> None:
        if said.word == "started":
            self._dispatcher.job_started(said.number, self._time.now_s())
        elif said.word == "ended":
            self._events.begin(lambda: self._cleared(said.number))

    def _put_images(self) -> dict[str, PhysicalImage]:
        """An image for each name, or, without pools, one for each instance."""
        size_bytes = {request.image: request.size_bytes for request in self._requests}
        names = sorted(size_bytes)
        if self._testbed.pool_bytes:
            # Policies tell equals apart by the name: digests have to come in the same order.
            made = [
                self._site.image(f"image{place}", self._scaled(size_bytes[name]))
                for place, name in enumerate(names)
            ]
            return dict(zip(names, sorted(made, key=lambda image: image.digest), strict=True))
        return {
            f"{number}/{instance}": self._site.image(
                f"image{number}-{instance}", self._scaled(request.size_bytes)
            )
            for number, request in enumerate(self._requests)
            for instance in range(request.nodes)
        }

    def _scaled(self, size_bytes: int) -> int:
        return self._site.scale.size_bytes(size_bytes)

    def _image_of(self, turn: Turn) -> PhysicalImage:
        if self._testbed.pool_bytes:
            return self._images[self._requests[turn.request].image]
        place = self._placed[turn.request].index(turn.host)
        earlier = sum(
            done.request == turn.request and done.host == turn.host for done in self._dispatcher.done
        )
        return self._images[f"{turn.request}/{place + earlier}"]

    def _deployed(self, turn: Turn, ahead: Sequence[str]) -> Callable[[], None]:
        """In a thread: an instance on its host, from the pool or over the link."""
        image, node = self._image_of(turn), self._nodes[turn.host]
        owner = f"job-{turn.request}"
        until_s = self._site.clock.now_s() + LEASE_S
        wish: dict[str, object] = {
            "name": image.digest, "owner": owner, "label": f"{turn.ready_s}-{id(turn)}", "until_s": until_s,
            "method": "shared", "is_writable": False,
        }  # fmt: skip
        with self._site.client(node) as client:
            try:
                made = client.ask("instance", wish)
                turn.is_hit = True
            except NotInPool:
                self._expect(client, ahead)
                asked = {"uri": image.uri, "digest": image.digest, "size_bytes": image.size_bytes}
                with self._lane(node):
                    client.ask("add", asked, on_progress=lambda told: None)
                made = client.ask("instance", wish)
            held = {each["digest"] for each in client.ask("ls")["images"]}
        if turn.is_hit:
            self._copy(node, str(made["path"]), f"{turn.request}-{id(turn)}")

        def then() -> None:
            self._fetched_bytes += 0 if turn.is_hit else image.size_bytes
            self._report(turn.host, held)
            self._dispatcher.deployed(turn, self._time.now_s())

        return then

    def _expect(self, client: DaemonClient, ahead: Sequence[str]) -> None:
        """Tell a pool which of its images those who wait will need, the next one's first."""
        places = {self._images[name].digest: place for place, name in enumerate(ahead)}
        soon_s = self._site.clock.now_s() + SOON_S
        for each in client.ask("ls")["images"]:
            digest = each["digest"]
            # Two leases of one owner are one, with the earlier beginning: so the old one goes first.
            client.ask("unpin", {"name": digest, "owner": QUEUE})
            if digest in places:
                since = {"from_s": soon_s + places[digest], "until_s": soon_s + LEASE_S}
                client.ask("pin", {"name": digest, "owner": QUEUE, "kind": "expect", **since})

    def _report(self, host: int, digests: set[str]) -> None:
        """What a host says it holds: the thesis' load sensor."""
        names = {image.digest: name for name, image in self._images.items()}
        self._held[host] = {names[digest] for digest in digests}

    def _copy(self, node: str, source: str, name: str) -> None:
        """The image to the host's disk, no faster than the thesis' disks did; time scales with the bytes."""
        clock, rate = self._site.clock, self._testbed.copy_bytes_per_s
        begun_s, copied_bytes = clock.monotonic_s(), 0
        target = self._site.path(node, f"{SCRATCH}/{name}")
        with self._site.path(node, source).open("rb") as pool, target.open("wb") as scratch:
            while chunk := pool.read(CHUNK_BYTES):
                scratch.write(chunk)
                copied_bytes += len(chunk)
                clock.sleep(max(0.0, begun_s + copied_bytes / rate - clock.monotonic_s()))

    def _cleared(self, number: int) -> Callable[[], None]:
        """In a thread: a job that has ended leaves nothing on its hosts but what pools keep."""
        hosts = sorted(set(self._placed[number]))
        for host in hosts:
            with self._site.client(self._nodes[host]) as client:
                client.ask("release", {"owner": f"job-{number}"})
                if not self._testbed.pool_bytes:
                    for image in client.ask("ls")["images"]:
                        client.ask("evict", {"name": image["digest"]})
            scratch = self._site.path(self._nodes[host], SCRATCH)
            for path in scratch.glob(f"{number}-*"):
                with suppress(FileNotFoundError):
                    path.unlink()

        def then() -> None:
            self._left.discard(number)
            self._dispatcher.slots_freed(self._placed[number])

        return then
