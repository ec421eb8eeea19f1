"""Plan against the best there is, for all sites and sets of requests of a small size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product

import pytest

from outrider.core.model import Node, Resources
from outrider.core.options.plan import provisioner
from outrider.core.options.request import Option, Request
from outrider.core.options.schemes import Rules, Scheme

ONE = Resources.of(cpus=1)
MOST_NODES = 3
Kind = tuple[tuple[tuple[int, int], ...], int, int]
"""Options (nodes, duration), deadline, value."""


def kinds() -> list[Kind]:
    """All requests of one or two options of up to three nodes, the second faster and larger."""
    sizes = range(1, MOST_NODES + 1)
    ways: list[tuple[tuple[int, int], ...]] = [((size, time),) for size in sizes for time in (1, 2)]
    ways += [((few, 2), (many, 1)) for few in sizes for many in sizes if few < many]
    return [(way, deadline, value) for way in ways for deadline in (2, 3) for value in (1, 2)]


def planned_value(nodes: int, chosen: Sequence[Kind]) -> int:
    """What Plan serves of requests that arrive together."""
    site = provisioner(
        [Node(name=f"n{number}", capacity=ONE) for number in range(nodes)], Rules(scheme=Scheme.PLAN)
    )
    asked = [
        Request(
            name=f"r{number}",
            arrival_s=0,
            finish_by_s=deadline,
            value=value,
            options=tuple(Option(instances=count, resources=ONE, duration_s=time) for count, time in ways),
        )
        for number, (ways, deadline, value) in enumerate(chosen)
    ]
    site.step(0, asked)
    site.finish()
    used = [0] * 3
    for each in site.outcome.served:
        assert each.end_s <= each.request.finish_by_s
        for at in range(each.start_s, each.end_s):
            used[at] += each.option.instances
    assert max(used) <= nodes
    return round(sum(each.request.value for each in site.outcome.served))


def best_value(nodes: int, chosen: Sequence[Kind]) -> int:
    """The most that any choice of options and starts serves: nodes are alike, so counting them is enough."""
    return _best(chosen, (nodes, nodes, nodes))


def _best(left: Sequence[Kind], free: tuple[int, ...]) -> int:
    if not left:
        return 0
    (ways, deadline, value), rest = left[0], left[1:]
    most = _best(rest, free)
    for count, time in ways:
        for start in range(deadline - time + 1):
            span = range(start, start + time)
            if all(free[at] >= count for at in span):
                after = tuple(room - count if at in span else room for at, room in enumerate(free))
                most = max(most, value + _best(rest, after))
    return most


def cases(requests: int) -> Iterator[tuple[int, tuple[Kind, ...]]]:
    for nodes, count in product(range(1, MOST_NODES + 1), range(1, requests + 1)):
        for chosen in combinations_with_replacement(kinds(), count):
            yield nodes, chosen


@pytest.mark.parametrize(("requests", "least"), [(2, 0.95), pytest.param(3, 0.9, marks=pytest.mark.long)])
def test_plan_serves_nearly_what_could_be_served(requests: int, least: float) -> None:
    served = possible = 0
    for nodes, chosen in cases(requests):
        most, planned = best_value(nodes, chosen), planned_value(nodes, chosen)
        assert planned <= most
        served, possible = served + planned, possible + most

    # The gap is what planning in one order costs: docs/research/papers.md has it.
    assert served >= least * possible
