"""In which order requests are looked at: the factors of TSRA and MEO, and the orders of plans.

The paper leaves open what its equations mean in several places; each reading has a name here. All have the
form weight ÷ (deadline − now) with a weight that does not change, so that it is worked out once.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from outrider.core.model import Resources
from outrider.core.options.request import Option, Request, scalability


class FactorReading(Enum):
    """What the factor of a request is; Σ is the sum over resources of what it takes ÷ what a node has."""

    PRINTED = "printed"
    """Equation 2 as it stands, bid ÷ (sl (d − t0) t Σ), with sl = 1 for the first option."""
    GOLDEN = "golden"
    """bid × sl ÷ ((d − t0) Σ), with the second option's sl for the first: one of those that give the orders
    of TSRA that the paper's example prints, which Equation 2 does not."""
    PLAIN = "plain"
    """bid ÷ ((d − t0) t Σ), without scalability."""


class PlanOrder(Enum):
    """In which order a plan gives places."""

    FACTOR = "factor"
    """By the factor of the first option, the highest first."""
    DEADLINE = "deadline"
    SLACK = "slack"
    """Who can wait for the shortest time comes first."""


class Kinds:
    """The kinds of nodes of a site: what each has of which resource."""

    def __init__(self, capacities: Sequence[Resources]) -> None:
        self.kinds = tuple(dict.fromkeys(capacities))
        self.names = tuple(sorted({name for kind in self.kinds for name, _ in kind.amounts}))

    def demand(self, option: Option) -> float:
        """The least Σ over the nodes that have all of it, or, if it needs several, over all nodes.

        On unlike nodes an option is a smaller part of a larger node: the maximum of Equation 3 over nodes.
        """
        totals = [option.total(name) for name in self.names]
        whole, any_kind = [], []
        for kind in self.kinds:
            amounts = [kind[name] for name in self.names]
            if any(total and not amount for total, amount in zip(totals, amounts, strict=True)):
                continue
            share = sum(total / amount for total, amount in zip(totals, amounts, strict=True) if amount)
            any_kind.append(share)
            if all(total <= amount for total, amount in zip(totals, amounts, strict=True)):
                whole.append(share)
        return min(whole or any_kind, default=float("inf"))


def weight(request: Request, kinds: Kinds, reading: FactorReading, *, is_meo: bool) -> float:
    """The factor of a request but for (deadline − now): the highest of its options.

    Without `is_meo` it is TSRA's, which knows no scalability.
    """
    found = []
    for index, option in enumerate(request.options):
        demand = kinds.demand(option)
        if not 0 < demand < float("inf"):
            continue
        if reading is FactorReading.GOLDEN:
            scale = _golden_scale(request.options, index, kinds.names) if is_meo else 1.0
            found.append(request.value * scale / demand)
            continue
        scale = 1.0
        if is_meo and reading is FactorReading.PRINTED and index:
            scale = scalability(request.options[index - 1], option, kinds.names) or 1.0
        found.append(request.value / (scale * option.duration_s * demand))
    return max(found, default=0.0)


def _golden_scale(options: Sequence[Option], index: int, names: Sequence[str]) -> float:
    later = max(1, index)
    if later >= len(options):
        return 1.0
    return scalability(options[later - 1], options[later], names)
