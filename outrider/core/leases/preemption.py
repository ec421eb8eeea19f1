"""Who yields first: measures of single candidates, weighed against each other.

A measure is a number for one candidate: the smaller, the sooner it yields. Because seconds, bytes and money
cannot be added, a site's order adds *places*: each measure sorts all candidates (equals share a place), and
the sum of the places, each times the weight of its measure, decides; among equals the youngest yields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.core.model import NOBODY, LeaseOwner


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """Something that holds nodes and could be told to yield.

    `order` grows with age of the request: the youngest has the highest. `done_s` is work that it has done,
    `memory_bytes` what would have to be written for it in all.
    """

    name: str
    order: tuple[int, ...]
    duration_s: int
    instances: int
    owner: LeaseOwner = NOBODY
    done_s: int = 0
    memory_bytes: int = 0
    keeps_work: bool = True
    """Whether what it has done is still done after it has yielded: it is suspended, not begun anew."""


class PreemptionMeasure(Protocol):
    """One reason to let something yield sooner than something else."""

    def measure(self, candidate: Candidate) -> tuple[int, ...]:
        """The smaller, the sooner it yields."""


@dataclass(frozen=True, slots=True)
class Youngest:
    """Whoever asked last yields first."""

    def measure(self, candidate: Candidate) -> tuple[int, ...]:
        return tuple(-part for part in candidate.order)


@dataclass(frozen=True, slots=True)
class Shortest:
    """What is short is placed again most easily."""

    def measure(self, candidate: Candidate) -> tuple[int, ...]:
        return (candidate.duration_s,)


@dataclass(frozen=True, slots=True)
class LeastWorkLost:
    """What it has done, times its instances, where that is lost by yielding."""

    def measure(self, candidate: Candidate) -> tuple[int, ...]:
        return (0 if candidate.keeps_work else candidate.done_s * candidate.instances,)


@dataclass(frozen=True, slots=True)
class CheapestToSuspend:
    """The fewest bytes of memory to be written."""

    def measure(self, candidate: Candidate) -> tuple[int, ...]:
        return (candidate.memory_bytes,)


@dataclass(frozen=True, slots=True)
class LowestValue:
    """What is worth least to its owner."""

    def measure(self, candidate: Candidate) -> tuple[int, ...]:
        return (candidate.owner.value,)


@dataclass(frozen=True, slots=True)
class ByClass:
    """The classes in the order in which they yield; who is in none of them yields last."""

    classes: tuple[str, ...]

    def measure(self, candidate: Candidate) -> tuple[int, ...]:
        name = candidate.owner.lease_class
        return (self.classes.index(name) if name in self.classes else len(self.classes),)


@dataclass(frozen=True, kw_only=True, slots=True)
class PreemptionOrder:
    """A site's order: measures with weights, and who never yields."""

    measures: tuple[tuple[PreemptionMeasure, int], ...] = ((Youngest(), 1),)
    spared_classes: frozenset[str] = frozenset()
    spared_users: frozenset[str] = frozenset()

    def spares(self, owner: LeaseOwner) -> bool:
        """Whether what he owns never yields."""
        return owner.lease_class in self.spared_classes or owner.user in self.spared_users

    def sort(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those who may yield, whoever yields first in front."""
        yielding = [each for each in candidates if not self.spares(each.owner)]
        sums = dict.fromkeys((each.name for each in yielding), 0)
        for measure, weight in self.measures:
            values = {each.name: measure.measure(each) for each in yielding}
            place_of = {value: place for place, value in enumerate(sorted(set(values.values())))}
            for name, value in values.items():
                sums[name] += weight * place_of[value]
        youngest = Youngest()
        return sorted(yielding, key=lambda each: (sums[each.name], youngest.measure(each), each.name))
