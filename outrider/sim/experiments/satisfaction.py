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
from fractions import Fraction

from outrider.sim.experiments.stager import Sending, StagedRequest, Stager, Strategy
from outrider.sim.sharing import FluidLink, SharedTransfer

NOMINAL_BYTES_PER_S = 12_500_000


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
    requests: Sequence[StagedRequest], strategy: Strategy, rate_bytes_per_s: int, *, is_relayed: bool = False
) -> Satisfaction:
    if not requests:
        raise ValueError("there is no request whose satisfaction could be measured")
    world = staged(requests, strategy, rate_bytes_per_s, is_relayed=is_relayed)
    return satisfaction_of(requests, strategy, world.ready_s)


def satisfaction_of(
    requests: Sequence[StagedRequest], strategy: Strategy, ready_s: Sequence[int]
) -> Satisfaction:
    """What clients got whose last images were there at these instants."""
    got = [
        max(0, request.duration_s - max(0, each_s - request.start_s))
        for request, each_s in zip(requests, ready_s, strict=True)
    ]
    asked = tuple(request.duration_s for request in requests)
    return Satisfaction(strategy=strategy, asked_s=asked, got_s=tuple(got))


class VirtualReservations:
    """The stager's body over a virtual link, an instant after the other."""

    def __init__(self, requests: Sequence[StagedRequest], stager: Stager, link: FluidLink) -> None:
        self._requests, self._stager, self._link = requests, stager, link
        self._under_way: dict[str, Sending] = {}
        self.begun_s: list[int | None] = [None] * len(requests)
        """When the first image of each set out."""
        self.ready_s = [0] * len(requests)

    def next_s(self) -> int | None:
        """When something happens next; None when everything has arrived."""
        times = [self._stager.next_s(), self._link.next_finish_s()]
        return min((each for each in times if each is not None), default=None)

    def happen(self, now_s: int) -> None:
        for finished in self._link.advance(now_s):
            request = self._under_way.pop(finished.key).request
            self.ready_s[request] = max(self.ready_s[request], finished.finish_s)
            self._stager.arrived()
        for sending in self._stager.due(now_s):
            self._under_way[sending.key] = sending
            if self.begun_s[sending.request] is None:
                self.begun_s[sending.request] = now_s
            size_bytes = self._requests[sending.request].size_bytes
            self._link.add(SharedTransfer(key=sending.key, start_s=now_s, size_bytes=size_bytes))


def staged(
    requests: Sequence[StagedRequest], strategy: Strategy, rate_bytes_per_s: int, *, is_relayed: bool = False
) -> VirtualReservations:
    """All images brought, and when each request's set out and had arrived."""
    stager = Stager(requests, strategy, rate_bytes_per_s, is_relayed=is_relayed)
    world = VirtualReservations(requests, stager, FluidLink(rate_bytes_per_s))
    now_s = 0
    while (next_s := world.next_s()) is not None:
        now_s = max(now_s, next_s)
        world.happen(now_s)
    return world
