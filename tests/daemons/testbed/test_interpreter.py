"""The interpreter that makes a cluster runs on its hosts, wherever it lies."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons.testbed.clusters import needs_slurm
from tests.repository import ROOT

MAKES = """
import sys
from testbed.cluster import Cluster
with Cluster({"one": "10.77.0.1"}) as cluster:
    told = cluster.run("one", [cluster.python, "-c", "import sys; print(sys.prefix)"], user="ada")
    assert told.stdout.strip() == sys.prefix, told
"""


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """An environment in /tmp, of which hosts have one each; it takes its modules from this one."""
    needs_slurm()
    folder = Path(tempfile.mkdtemp(prefix="outrider-python-", dir="/tmp"))
    made = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True, timeout=240)
    yield made
    shutil.rmtree(folder)


def test_environment_in_tmp_makes_hosts_and_runs_on_them(elsewhere: Path) -> None:
    done = subprocess.run(
        [str(elsewhere / "bin/python"), "-c", MAKES],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
