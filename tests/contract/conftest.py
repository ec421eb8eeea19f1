"""The implementations that have to keep the contract, each with its harness."""

from __future__ import annotations

import atexit
import importlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from tests.contract.gridengine_harness import CANNOT, end_cluster
from tests.contract.harness import Harness, Scene
from tests.contract.slurm_cluster import Cluster
from tests.contract.slurm_harness import SlurmHarness, private_slurm

# The harnesses of every file NAME_harness.py beside this one, by name. What one needs is brought up on
# entry and taken down on exit. One whose daemons are not installed skips, but fails where there is CI.
HARNESSES: dict[str, Callable[[], AbstractContextManager[Harness]]] = {}
for path in sorted(Path(__file__).parent.glob("*_harness.py")):
    HARNESSES |= getattr(importlib.import_module(f"tests.contract.{path.stem}"), "HARNESSES", {})
# The clauses about what is done by DRMAA, where that is loaded; all others differ in nothing.
TOUCHES_DRMAA = re.compile(r"submi|cancel|suspend|tag|argument|command")
# Each with the folder below which it is installed. Others than this system's own are asked for.
SLURMS = {"slurm": ""}
if os.environ.get("OUTRIDER_TEST_VERSIONS"):
    SLURMS |= {
        "slurm-24.11": "/var/cache/outrider-testbed/trixie",
        "slurm-26.05": "/var/cache/outrider-testbed/sid",
    }


KNOWN: dict[str, Cluster] = {}
"""The private clusters of Slurm, each begun when it is first asked for."""
BEGUN = ExitStack()


def cluster_of(name: str) -> Cluster:
    if name not in KNOWN:
        KNOWN[name] = BEGUN.enter_context(private_slurm(SLURMS[name]))
        atexit.register(end_clusters)
    return KNOWN[name]


def end_clusters() -> None:
    KNOWN.clear()
    BEGUN.close()
    end_cluster()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Clusters serve all tests of this folder that follow each other, and end with the last of these."""
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        end_clusters()


@pytest.fixture(params=[*HARNESSES, *SLURMS])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    if request.param in SLURMS:
        real = SlurmHarness(cluster_of(request.param))
        real.sweep()
        yield Scene(real)
        return
    is_elsewhere = request.param == "gridengine-drmaa" and not TOUCHES_DRMAA.search(request.node.originalname)
    if is_elsewhere and not os.environ.get("OUTRIDER_TEST_LONG"):
        pytest.skip("asks nothing of DRMAA: with OUTRIDER_TEST_LONG=1 it is done")
    if request.param.startswith("gridengine") and request.node.originalname in CANNOT:
        pytest.skip(CANNOT[request.node.originalname])
    with HARNESSES[request.param]() as harness:
        yield Scene(harness)
