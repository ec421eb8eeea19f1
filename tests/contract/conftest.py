"""The implementations that have to keep the contract, each with its harness."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest

from outrider.rms.twin import GRID_ENGINE, SLURM, Rules
from tests.contract.embedded_harness import embedded
from tests.contract.gridengine_harness import CANNOT, gridengine
from tests.contract.harness import Harness, Scene
from tests.contract.twin_harness import TwinHarness

# What a harness needs is brought up on entry and taken down on exit. One whose daemons are
# not installed skips, but fails where the environment has CI.
HARNESSES: dict[str, Callable[[], AbstractContextManager[Harness]]] = {
    "twin": lambda: nullcontext(TwinHarness(Rules())),
    "twin-asked-twice": lambda: nullcontext(TwinHarness(Rules(), is_asked_twice=True)),
    "twin-like-slurm": lambda: nullcontext(TwinHarness(SLURM)),
    "twin-like-gridengine": lambda: nullcontext(TwinHarness(GRID_ENGINE)),
    "embedded": embedded,
    "embedded-restarted-for-each-call": lambda: embedded(is_restarted=True),
    "gridengine": gridengine,
}


@pytest.fixture(params=HARNESSES)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    if request.param == "gridengine" and request.node.originalname in CANNOT:
        pytest.skip(CANNOT[request.node.originalname])
    with HARNESSES[request.param]() as harness:
        yield Scene(harness)
