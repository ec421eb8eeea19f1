"""Tools that write scripts themselves, as they come from PyPI, on a private cluster with Outrider."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from testbed.batchcluster import HEAD, BatchCluster
from testbed.clustersite import ClusterSite
from tests.repository import ROOT

TOOLS = ROOT / "build/integrations"
"""Where `make integrations` puts them: an environment of their own, which needs none of Outrider's."""
PATIENCE_S = 180
MB = 1_000_000
AnyCluster = TypeVar("AnyCluster", bound=BatchCluster)


@pytest.fixture(scope="session")
def tools() -> Path:
    """The environment's programs; skipped where there is none, but not in CI."""
    found = TOOLS / "bin"
    if not (found / "python").exists():
        lacking("the tools are not installed: make integrations, which needs the package index")
    return found


def lacking(what: str) -> None:
    if "CI" in os.environ:
        pytest.fail(f"{what}; in CI it must be there")
    pytest.skip(what)


def ran(
    site: ClusterSite[AnyCluster], tools: Path, name: str, files: Mapping[str, str], *argv: str
) -> tuple[str, list[str]]:
    """What a user's command prints where an image of that name is wanted, and the nodes that have the image.

    It runs in a folder of ada's with these files.
    """
    cluster, folder = site.cluster, f"{site.home()}/{name}"
    image = site.image(f"{name}.qcow2", 8 * MB)
    cluster.run(HEAD, ["mkdir", "-p", folder], user="ada")
    for file, text in files.items():
        cluster.write(HEAD, f"{folder}/{file}", text, mode=0o644)
    environment = {
        "OUTRIDER_IMAGE_WANTED": f"image={image.uri};digest={image.digest}",
        "PATH": f"{tools}:/usr/bin:/bin",
        "HOME": folder,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    words = ["/bin/sh", "-c", f'cd {folder} && exec "$@"', "sh", *argv]
    done = cluster.run(HEAD, words, user="ada", environment=environment, check=False, timeout_s=PATIENCE_S)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{site.logs()}"
    return done.stdout, list(site.arrived_s(image))
