"""A request with several options: what may be run instead of what, by when, and what it is worth.

After R. Begam, H. Moradi, W. Wang and D. Zhu, "Flexible VM Provisioning for Time-Sensitive Applications with
Multiple Execution Options": a request is (arrival, deadline, bid, options), an option so many VMs of a type
for a worst-case time. Beyond the paper an option has an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

from outrider.core.model import NOBODY, Image, LeaseOwner, Resources, Workspace

MOST_OPTIONS = 16
"""Each is asked about when a request is decided."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One way to carry a request out: so many instances of such a size for so long."""

    instances: int
    resources: Resources
    duration_s: int
    image: Image | None = None

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise ValueError(f"an option has {self.instances} instances; ask for 1 or more")
        if self.duration_s < 1:
            raise ValueError(f"an option lasts {self.duration_s} s; ask for 1 or more")

    @property
    def work(self) -> int:
        """How many instance-seconds it takes."""
        return self.instances * self.duration_s

    def total(self, name: str) -> int:
        """How much of a resource all its instances take together: y of the paper."""
        return self.instances * self.resources[name]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a user asks for, with options in his order; in the paper the slowest comes first."""

    name: str
    arrival_s: int
    finish_by_s: int
    value: float
    options: tuple[Option, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.options) <= MOST_OPTIONS:
            raise ValueError(f"request {self.name} has {len(self.options)} options; give 1 to {MOST_OPTIONS}")
        if self.value < 0:
            raise ValueError(f"request {self.name} is worth {self.value}; give 0 or more")

    def only(self, index: int) -> Request:
        """The same with one of its options."""
        return replace(self, options=(self.options[index],))

    @property
    def shortest_s(self) -> int:
        return min(option.duration_s for option in self.options)

    def workspaces(self, start_s: int, owner: LeaseOwner = NOBODY) -> tuple[Workspace, ...]:
        """Each option as a reservation from an instant on; the deadline is told beside them."""
        return tuple(
            Workspace(
                name=self.name,
                instances=option.instances,
                resources=option.resources,
                duration_s=option.duration_s,
                image=option.image,
                start_s=start_s,
                owner=owner,
            )
            for option in self.options
        )


def scalability(slower: Option, faster: Option, resources: Sequence[str]) -> float:
    """Equation 1 and the minimum over resources: the time that is saved for each unit that is added.

    A resource of which both take as much says nothing and is left out; 1 if that leaves none.
    """
    found = [_ratio(slower, faster, name) for name in resources]
    return min((ratio for ratio in found if ratio is not None), default=1.0)


def scaling_factor(slower: Option, faster: Option, resources: Sequence[str]) -> float:
    """Equation 4: by which MEO-Adaptive ranks the next options. Infinite for what is faster at no cost."""
    found = [_ratio(slower, faster, name) for name in resources]
    known = [ratio for ratio in found if ratio is not None]
    if not known:
        return inf if faster.duration_s < slower.duration_s else 0.0
    return sqrt(sum(ratio * ratio for ratio in known))


def _ratio(slower: Option, faster: Option, name: str) -> float | None:
    more = faster.total(name) - slower.total(name)
    return abs((slower.duration_s - faster.duration_s) / more) if more else None
