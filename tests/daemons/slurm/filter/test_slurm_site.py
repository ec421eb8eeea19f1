"""The private Slurm leaves nothing behind, however its test ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cachemgr.base.clock import SystemClock
from tests.daemons.slurm.filter.conftest import able
from tests.daemons.slurm.filter.slurm_site import remove_leftovers, site
from tests.repository import ROOT

PROGRAM = """
import time
from tests.daemons.slurm.filter.slurm_site import site
with site() as made:
    print(made.folder, made.init(), flush=True)
    time.sleep(600)
"""


def test_killed_test_leaves_no_process_and_no_folder() -> None:
    able()
    clock = SystemClock()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None
        folder, init = killed.stdout.readline().split()
        killed.kill()
    by_s = clock.monotonic_s() + 20

    while Path(f"/proc/{init}").exists() and clock.monotonic_s() < by_s:
        clock.sleep(0.05)
    remove_leftovers()

    assert not Path(f"/proc/{init}").exists()
    assert not Path(folder).exists()


def test_two_stand_side_by_side() -> None:
    able()
    with site() as one, site() as other:
        first = one.run("sbatch", "--parsable", "--hold", "--wrap=true").job

        assert one.job(first)["JobState"] == "PENDING"
        assert other.run("squeue", "-h").printed == ""
