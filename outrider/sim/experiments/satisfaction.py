"""How much of the time they asked for do clients get? (Thesis, section 8.1.)

A workspace's time is counted from its requested start, and it can use what is left of it
once the last of its images has arrived. The naive strategies start all images of a
workspace at once and let them share the repository's link with whatever else is under way;
scheduled staging sends one image at a time, earliest deadline first.

What follows from the traces behind Figures 8.2 and 8.3:

- Just in time has to reckon with all images of the workspace. If it reckoned with one,
  nobody in trace I would be satisfied fully, where the thesis sees 100 % in most cases.
- In trace II no schedule satisfies everybody: what is submitted from 1480 s on and starts
  by 2133 s needs 67 s more of the link than there are; from 5623 s to 6171 s it is 124 s.
  Earliest deadline first is late by just these seconds and no more.
- The published worst case of about 55 % is job-style staging. It comes to 61 % with decimal
  megabytes at the nominal rate, and to 57 % with images of 600 MiB over what TCP can carry
  on 100 Mbit/s; 55 % would take a link of 10.85 MB/s. Just in time comes to 67 % over
  TCP, and to 60 % if it reckoned with one image; aggressive staging to 75 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from heapq import heappop, heappush

from outrider.sim.sharing import SharedTransfer, shared_finish_times

NOMINAL_BYTES_PER_S = 12_500_000
# A full Ethernet frame takes 1538 bytes on the wire, 1448 of which TCP's user gets.
TCP_BYTES_PER_S = NOMINAL_BYTES_PER_S * 1448 // 1538


class Strategy(Enum):
    JOB_STYLE = "job-style"
    JUST_IN_TIME = "just in time"
    AGGRESSIVE = "aggressive"
    SCHEDULED = "scheduled"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
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
class Satisfaction:
    """For each request, in the order given: seconds asked for, and seconds got of them."""

    strategy: Strategy
    asked_s: tuple[int, ...]
    got_s: tuple[int, ...]

    @property
    def shares(self) -> tuple[Fraction, ...]:
        pairs = zip(self.got_s, self.asked_s, strict=True)
        return tuple(Fraction(got, asked) for got, asked in pairs)

    @property
    def worst(self) -> Fraction:
        return min(self.shares)

    @property
    def mean(self) -> Fraction:
        return sum(self.shares, Fraction(0)) / len(self.shares)

    @property
    def fully_satisfied(self) -> Fraction:
        """The share of requests that got all they asked for."""
        return Fraction(sum(share == 1 for share in self.shares), len(self.shares))


def client_satisfaction(
    requests: Sequence[Request], strategy: Strategy, rate_bytes_per_s: int
) -> Satisfaction:
    if not requests:
        raise ValueError("there is no request whose satisfaction could be measured")
    if strategy is Strategy.SCHEDULED:
        ready = _scheduled_ready_times(requests, rate_bytes_per_s)
    else:
        ready = _shared_ready_times(requests, strategy, rate_bytes_per_s)
    got = [
        max(0, request.duration_s - max(0, ready_s - request.start_s))
        for request, ready_s in zip(requests, ready, strict=True)
    ]
    asked = tuple(request.duration_s for request in requests)
    return Satisfaction(strategy=strategy, asked_s=asked, got_s=tuple(got))


def transfer_start_s(request: Request, strategy: Strategy, rate_bytes_per_s: int) -> int:
    """When a naive strategy starts all transfers of a request, come what may."""
    if strategy is Strategy.JOB_STYLE:
        return request.start_s
    if strategy is Strategy.AGGRESSIVE:
        return request.submit_s
    if strategy is Strategy.JUST_IN_TIME:
        alone_s = _seconds(request.nodes * request.size_bytes, rate_bytes_per_s)
        return max(request.submit_s, request.start_s - alone_s)
    raise ValueError(f"{strategy.value} staging does not start transfers at a fixed time")


def scheduled_finish_times(
    releases_s: Sequence[int], durations_s: Sequence[int], deadlines_s: Sequence[int]
) -> list[int]:
    """Ends of transfers sent one at a time, the earliest deadline first.

    Nothing is refused here: the thesis' testbed had no admission control, so this is the
    order alone, late or not. The core's `DeadlineLink` would refuse what comes too late.

    A transfer under way is finished before the next is chosen. Ties go to the earlier in
    the list, so that the images of one request follow each other.
    """
    arrivals = sorted(range(len(releases_s)), key=lambda index: (releases_s[index], index))
    finishes = [0] * len(arrivals)
    waiting: list[tuple[int, int]] = []
    now_s = arrived = 0
    for _ in arrivals:
        if not waiting:
            now_s = max(now_s, releases_s[arrivals[arrived]])
        while arrived < len(arrivals) and releases_s[arrivals[arrived]] <= now_s:
            index = arrivals[arrived]
            heappush(waiting, (deadlines_s[index], index))
            arrived += 1
        _, index = heappop(waiting)
        now_s += durations_s[index]
        finishes[index] = now_s
    return finishes


def _shared_ready_times(requests: Sequence[Request], strategy: Strategy, rate_bytes_per_s: int) -> list[int]:
    transfers = [
        [
            SharedTransfer(
                key=f"{number}/{instance}",
                start_s=transfer_start_s(request, strategy, rate_bytes_per_s),
                size_bytes=request.size_bytes,
            )
            for instance in range(request.nodes)
        ]
        for number, request in enumerate(requests)
    ]
    together = [one for each in transfers for one in each]
    finishes = shared_finish_times(together, rate_bytes_per_s)
    return [max(finishes[one.key] for one in each) for each in transfers]


def _scheduled_ready_times(requests: Sequence[Request], rate_bytes_per_s: int) -> list[int]:
    owners = [owner for owner, each in enumerate(requests) for _ in range(each.nodes)]
    finishes = scheduled_finish_times(
        [requests[owner].submit_s for owner in owners],
        [_seconds(requests[owner].size_bytes, rate_bytes_per_s) for owner in owners],
        [requests[owner].start_s for owner in owners],
    )
    ready = [0] * len(requests)
    for owner, finish_s in zip(owners, finishes, strict=True):
        ready[owner] = max(ready[owner], finish_s)
    return ready


def _seconds(size_bytes: int, rate_bytes_per_s: int) -> int:
    """How long the bytes take alone, rounded up."""
    return -(-size_bytes // rate_bytes_per_s)
