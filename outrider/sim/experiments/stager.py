"""When the images of reservations set out (thesis, section 8.1): decided once, for two bodies.

The naive strategies start all images of a workspace at a fixed instant, and these share the
link with whatever else is under way; scheduled staging sends one image at a time, earliest
deadline first. How images travel is the body's: over a virtual link (`satisfaction`), or over
a real one (bench/physical). Time is what the caller says it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush


class Strategy(Enum):
    JOB_STYLE = "job-style"
    JUST_IN_TIME = "just in time"
    AGGRESSIVE = "aggressive"
    SCHEDULED = "scheduled"


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedRequest:
    """A reservation of `nodes` instances, each with its own image to be transferred."""

    submit_s: int
    start_s: int
    nodes: int
    size_bytes: int
    duration_s: int

    def __post_init__(self) -> None:
        if not 0 <= self.submit_s <= self.start_s:
            raise ValueError(f"a request handed in at {self.submit_s} cannot start at {self.start_s}")
        if min(self.nodes, self.size_bytes, self.duration_s) < 1:
            raise ValueError(f"nodes, bytes and seconds have to be 1 or more: {self}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sending:
    """An image on its way: for one instance of a request, or passed on to all of them."""

    request: int
    instances: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"{self.request}/{self.instances[0]}"


class Stager:
    """Requests by their number. `due` says what sets out; `arrived` tells it of an end."""

    def __init__(
        self,
        requests: Sequence[StagedRequest],
        strategy: Strategy,
        rate_bytes_per_s: int,
        *,
        is_relayed: bool = False,
    ) -> None:
        """`is_relayed`: one image for all instances of a request, which pass it on while it arrives."""
        self._requests = requests
        self._is_scheduled = strategy is Strategy.SCHEDULED
        self._coming: list[tuple[int, int, Sending]] = []
        self._waiting: list[tuple[int, int, Sending]] = []
        self._is_busy = False
        sequence = 0
        for number, request in enumerate(requests):
            at_s = request.submit_s
            if not self._is_scheduled:
                images = 1 if is_relayed else request.nodes
                at_s = transfer_start_s(request, strategy, rate_bytes_per_s, images)
            everywhere = tuple(range(request.nodes))
            for instances in [everywhere] if is_relayed else [(each,) for each in everywhere]:
                heappush(self._coming, (at_s, sequence, Sending(request=number, instances=instances)))
                sequence += 1

    def next_s(self) -> int | None:
        """When something sets out, if nothing arrives before."""
        if self._is_busy or not self._coming:
            return None
        return self._coming[0][0]

    def due(self, now_s: int) -> list[Sending]:
        """What sets out now.

        Nothing is refused here: the thesis' testbed had no admission control, so this is the
        order alone, late or not. The core's `DeadlineLink` would refuse what comes too late.
        Scheduled, one that is under way is finished before the next is chosen; ties go to the
        earlier request, so that the images of one follow each other.
        """
        released = []
        while self._coming and self._coming[0][0] <= now_s:
            _, sequence, sending = heappop(self._coming)
            released.append(sending)
            if self._is_scheduled:
                heappush(self._waiting, (self._requests[sending.request].start_s, sequence, sending))
        if not self._is_scheduled:
            return released
        if self._is_busy or not self._waiting:
            return []
        self._is_busy = True
        return [heappop(self._waiting)[2]]

    def arrived(self) -> None:
        """Something has arrived."""
        self._is_busy = False


def transfer_start_s(request: StagedRequest, strategy: Strategy, rate_bytes_per_s: int, images: int) -> int:
    """When a naive strategy starts all transfers of a request, come what may."""
    if strategy is Strategy.JOB_STYLE:
        return request.start_s
    if strategy is Strategy.AGGRESSIVE:
        return request.submit_s
    if strategy is Strategy.JUST_IN_TIME:
        alone_s = -(-images * request.size_bytes // rate_bytes_per_s)
        return max(request.submit_s, request.start_s - alone_s)
    raise ValueError(f"{strategy.value} staging does not start transfers at a fixed time")
