"""The values of a queue over a counted pool of processors: jobs, blocks, policies.

Counted means that processors are interchangeable: a job asks for a number of them, and
which ones it gets is of no consequence to any decision. Images and placement are
therefore not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedJob:
    """A rigid job: so many processors for at most `requested_s`, its owner's estimate."""

    number: int
    processors: int
    requested_s: int

    def __post_init__(self) -> None:
        if self.processors < 1:
            raise ValueError(f"job {self.number} asks for {self.processors} processors: ask for some")
        if self.requested_s < 1:
            raise ValueError(f"job {self.number} asks for {self.requested_s} s: ask for some time")


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Processors that the queue must leave alone throughout [start_s, end_s).

    It stands for an advance reservation, or for maintenance.
    """

    processors: int
    start_s: int
    end_s: int

    def __post_init__(self) -> None:
        if self.processors < 1:
            raise ValueError(f"a block of {self.processors} processors; block 1 or more")
        if self.start_s >= self.end_s:
            raise ValueError(f"a block from {self.start_s} to {self.end_s} has no duration")


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """How many waiting jobs hold a reservation, and whether others may pass them.

    `reservations` counts from the front of the queue; None means every waiting job. The
    named policies differ in nothing but these two fields, so they are data, not code.
    """

    reservations: int | None
    is_backfilling: bool = True

    def __post_init__(self) -> None:
        if self.reservations is not None and self.reservations < 0:
            raise ValueError(f"{self.reservations} reservations are impossible; use 0")
        if not self.is_backfilling and self.reservations != 0:
            raise ValueError("a queue that nobody may pass needs no reservations; use 0")

    @classmethod
    def named(cls, text: str) -> Policy:
        """Reads off, greedy, aggressive, conservative or reservations=N."""
        if text in POLICIES:
            return POLICIES[text]
        name, _, count = text.partition("=")
        if name == "reservations" and count.isascii() and count.isdigit():
            return cls(reservations=int(count))
        known = ", ".join(POLICIES)
        raise ValueError(f"no policy is called {text!r}; use {known} or reservations=N")


POLICIES = {
    "off": Policy(reservations=0, is_backfilling=False),
    "greedy": Policy(reservations=0),
    "aggressive": Policy(reservations=1),
    "conservative": Policy(reservations=None),
}


class CountedQueue(Protocol):
    """What every implementation of the queue answers to.

    Times never go backwards. Within one instant, tell it what finished, then what was
    submitted, and then call `schedule` once.
    """

    def submit(self, job: CountedJob, now_s: int) -> None:
        """Puts the job at the end of the queue."""

    def finished(self, job: CountedJob, now_s: int) -> None:
        """Takes back a running job's processors, early, in time or late."""

    def schedule(self, now_s: int) -> list[CountedJob]:
        """The jobs that start at this instant, in the order of the queue."""


def too_wide(job: CountedJob, capacity: int) -> ValueError:
    """The refusal of a job that could never start."""
    return ValueError(
        f"job {job.number} asks for {job.processors} processors and there are {capacity}: "
        f"it could never start; leave it out or enlarge the pool"
    )


def not_running(job: CountedJob) -> ValueError:
    """The refusal of a completion that has no start."""
    return ValueError(f"job {job.number} cannot finish: it is not running; tell each completion once")


def already_known(job: CountedJob) -> ValueError:
    """The refusal of a second job with a number that is in use."""
    return ValueError(f"job {job.number} is already waiting or running; give each job its own number")
