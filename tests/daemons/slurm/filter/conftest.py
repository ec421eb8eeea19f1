"""What every test of Slurm's plugins begins with: a Slurm that has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons.slurm.filter.slurm_site import SUITES, Site, loader, missing, site

VERSIONS = ["22.05", *(SUITES if os.environ.get("OUTRIDER_TEST_VERSIONS") == "1" else ())]


def able() -> None:
    """Skips where no Slurm can be had, but not in CI."""
    lacks = "root" if os.geteuid() != 0 else ", ".join(missing())
    if lacks and os.environ.get("CI"):
        pytest.fail(f"a private Slurm needs {lacks}")
    if lacks:
        pytest.skip(f"a private Slurm needs {lacks}")


def tree_of(version: str) -> Path | None:
    """Where that version is installed; None is this machine itself."""
    tree = SUITES.get(version)
    if tree is not None and not tree.is_dir():
        pytest.fail(f"Slurm {version} is not at {tree}: python -m testbed makes it")
    return tree


@pytest.fixture(scope="package", params=VERSIONS)
def slurm(request: pytest.FixtureRequest) -> Iterator[Site]:
    able()
    files = {"job_submit.lua": loader("job_submit.lua")}
    with site(tree=tree_of(request.param), files=files, more="JobSubmitPlugins=lua") as made:
        yield made
