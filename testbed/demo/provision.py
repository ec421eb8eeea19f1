"""What the demo needs of the machine: looked for, and installed where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from testbed.slurm import missing

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge", "iproute2", "util-linux", "curl")
UPDATE_S, INSTALL_S = 180, 600
TOLD_LINES = 5


def provided(say: Callable[[str], None]) -> str | None:
    """Why there can be no private Slurm here; None if there can, after an installation if need be."""
    lacking = _lacking()
    if lacking is None:
        return None
    names = " ".join(PACKAGES)
    if os.geteuid() != 0:
        return "a private Slurm needs root, for hosts with networks of their own (try: sudo make demo)"
    if shutil.which("apt-get") is None:
        return f"{lacking}; there is no apt-get here to install it with"
    say(f"Installing what a private Slurm needs: apt-get install {names}\n")
    failed = _installed()
    if failed is not None:
        return f"{lacking}; {failed}"
    return _lacking()


def _lacking() -> str | None:
    found = missing()
    if found is None and shutil.which("curl") is None:
        return "the jobs that fetch their image themselves need curl"
    return found


def _installed() -> str | None:
    """Install the packages; in words why that failed."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *PACKAGES]
    for argv, most_s in ((["apt-get", "update", "-qq"], UPDATE_S), (install, INSTALL_S)):
        try:
            done = subprocess.run(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=most_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{' '.join(argv[:2])} takes longer than {most_s} s"
        # What is in the lists already may do: only the installation has to succeed.
        if done.returncode != 0 and argv is install:
            told = "\n".join(done.stderr.strip().splitlines()[-TOLD_LINES:])
            return f"{' '.join(argv[:2])} failed:\n{told}"
    return None
