"""Tools that write scripts themselves, as they come from PyPI, on a private Slurm with Outrider."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.site import OutriderSite, site_cluster
from tests.repository import ROOT

TOOLS = ROOT / "build/integrations"
"""Where `make integrations` puts them: an environment of their own, which needs none of Outrider's."""
RATE_BITS_PER_S = 200_000_000
LINK_BYTES_PER_S = 22_000_000
TIMINGS = {"look": "1s", "progress": "1s", "call": "10s", "away": "10s", "reconcile": "6s", "note": "2s"}


@pytest.fixture(scope="module")
def tools() -> Path:
    """The environment's programs; skipped where there is none, but not in CI."""
    python = TOOLS / "bin/python"
    if not python.exists():
        if "CI" in os.environ:
            pytest.fail("the tools are not installed: make integrations")
        pytest.skip("the tools are not installed (make integrations, which needs the package index)")
    return python.parent


@pytest.fixture(scope="module")
def site(tools: Path) -> Iterator[OutriderSite]:
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        if "CI" in os.environ:
            pytest.fail("needs root and Slurm: apt install slurmctld slurmd slurm-client munge")
        pytest.skip("needs root and Slurm")
    with site_cluster(2, rate_bits_per_s=RATE_BITS_PER_S) as cluster:
        made = OutriderSite(
            cluster, link_bytes_per_s=LINK_BYTES_PER_S, pool="200MiB", settings={"timings": TIMINGS}
        )
        made.install()
        yield made
