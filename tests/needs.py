"""What a test needs of the machine. Without it the test is skipped; in CI, which installs it, it fails."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """It is not there."""
    if "CI" in os.environ:
        pytest.fail(f"{what}; in CI it must be there")
    pytest.skip(what)


def need_slurm() -> None:
    """Root's rights, to begin daemons on hosts of their own, and Slurm."""
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        lacking("needs root and Slurm: apt install slurmctld slurmd slurm-client munge")
