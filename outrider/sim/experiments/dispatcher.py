"""Which job gets which hosts, and which image is deployed next on each: decided once, for two bodies.

First come, first served; a job gets its hosts as Grid Engine gave them in the thesis' testbed,
preferably those that report its image; each host deploys one image after the other. What a
host holds, and how an image gets there, is the body's: virtual hosts (`deployment`), or real
ones (bench/physical). Time is what the caller says it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class GridRequest(Protocol):
    """What a request asks for: so many instances of an image."""

    @property
    def image(self) -> str: ...

    @property
    def nodes(self) -> int: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRules:
    """The hosts, and how Grid Engine places jobs on them."""

    hosts: int
    slots_per_host: int
    prefers_cached: bool
    fills_hosts: bool
    is_parallel: bool


@dataclass(kw_only=True, slots=True)
class Turn:
    """An instance on its host, waiting for its image or getting it."""

    request: int
    host: int
    job_start_s: int
    begin_s: int = 0
    ready_s: int = 0
    is_hit: bool = False


class JobCarrier(Protocol):
    """What carries the decisions out, and tells the dispatcher when that has happened."""

    def has_image(self, host: int, image: str) -> bool:
        """Whether the host reports the image."""

    def start_job(self, request: int, hosts: tuple[int, ...], now_s: int) -> None:
        """Let the job start, a host being named once for each slot; then `job_started` is called."""

    def deploy(self, turn: Turn, now_s: int) -> None:
        """Bring the image or copy it, and note which; then `deployed` is called."""

    def run_job(self, request: int, hosts: tuple[int, ...], now_s: int) -> None:
        """The images are there: let it run for its time; then `slots_freed` is called."""


class _Host:
    """Free slots, and a queue for the one deployment at a time."""

    def __init__(self, number: int, slots: int) -> None:
        self.number = number
        self.free_slots = slots
        self.queue: deque[Turn] = deque()
        self.is_deploying = False


class GridDispatcher:
    """Requests by their number; `step` is to be called after whatever was told at an instant."""

    def __init__(self, requests: Sequence[GridRequest], rules: GridRules, body: JobCarrier) -> None:
        self._requests = requests
        self._rules = rules
        self._body = body
        self._hosts = [_Host(number, rules.slots_per_host) for number in range(rules.hosts)]
        self._waiting: deque[int] = deque()
        self._placed: dict[int, tuple[int, ...]] = {}
        self._missing = [request.nodes for request in requests]
        self.done: list[Turn] = []
        """In the order in which they became ready."""

    def submitted(self, request: int) -> None:
        self._waiting.append(request)

    def job_started(self, request: int, now_s: int) -> None:
        """The job has its slots: its instances queue for their images."""
        for number in self._placed[request]:
            turn = Turn(request=request, host=number, job_start_s=now_s)
            self._hosts[number].queue.append(turn)

    def deployed(self, turn: Turn, now_s: int) -> None:
        turn.ready_s = now_s
        self.done.append(turn)
        self._hosts[turn.host].is_deploying = False
        self._missing[turn.request] -= 1
        if not self._rules.is_parallel:
            self._body.run_job(turn.request, (turn.host,), now_s)
        elif not self._missing[turn.request]:
            self._body.run_job(turn.request, self._placed[turn.request], now_s)

    def slots_freed(self, hosts: tuple[int, ...]) -> None:
        for number in hosts:
            self._hosts[number].free_slots += 1

    @property
    def ahead(self) -> tuple[str, ...]:
        """The images of the jobs that wait, the next one's first: what an eviction can know of the future."""
        return tuple(dict.fromkeys(self._requests[number].image for number in self._waiting))

    def step(self, now_s: int) -> None:
        """Start the jobs that can start, then the deployments whose hosts are free."""
        self._start_jobs(now_s)
        for host in self._hosts:
            if host.queue and not host.is_deploying:
                turn = host.queue.popleft()
                turn.begin_s = now_s
                host.is_deploying = True
                self._body.deploy(turn, now_s)

    def _start_jobs(self, now_s: int) -> None:
        """First come, first served: whoever does not fit holds up all behind."""
        while self._waiting:
            number = self._waiting[0]
            wanted = self._requests[number]
            if sum(host.free_slots for host in self._hosts) < wanted.nodes:
                return
            self._waiting.popleft()
            chosen = []
            for _ in range(wanted.nodes):
                host = self._choose_host(wanted.image)
                host.free_slots -= 1
                chosen.append(host.number)
            self._placed[number] = tuple(chosen)
            self._body.start_job(number, self._placed[number], now_s)

    def _choose_host(self, image: str) -> _Host:
        """The host for the next instance; what ties goes to the lower number."""

        def rank(host: _Host) -> tuple[bool, int, int]:
            lacks_image = self._rules.prefers_cached and not self._body.has_image(host.number, image)
            free = host.free_slots if self._rules.fills_hosts else -host.free_slots
            return (lacks_image, free, host.number)

        return min((host for host in self._hosts if host.free_slots), key=rank)
