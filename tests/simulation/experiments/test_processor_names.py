"""Workloads of others name their processors as they like."""

from __future__ import annotations

import pytest

from outrider.core.model import Node, Resources
from outrider.sim.results.measures import processor_resource


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ({"cpus": 2, "CPU": 200}, "cpus"),
        ({"CPU": 200, "Memory": 1024}, "CPU"),
        ({"slots": 4}, "slots"),
    ],
)
def test_the_resource_that_stands_for_processors_is_found(amounts: dict[str, int], expected: str) -> None:
    nodes = (Node(name="n1", capacity=Resources.from_mapping(amounts)),)

    assert processor_resource(nodes) == expected
