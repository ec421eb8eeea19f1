"""Cleans up after a demo that was killed: a program that waits for another's end.

The kernel ends the hosts with their owner; what is left then are a few small files.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cachemgr.base.clock import SystemClock
from testbed import records

if TYPE_CHECKING:
    from collections.abc import Sequence

REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE_S = 20
STEP_S = 0.05


def begin(folder: Path) -> subprocess.Popen[bytes]:
    """Let somebody wait for this process's end, who removes the folder and the cluster then."""
    return subprocess.Popen(
        [sys.executable, "-m", "testbed.demo.cleaning", str(os.getpid()), str(folder)],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        # What kills the demo's group, or hangs up its terminal, must not reach this one.
        start_new_session=True,
    )


def main(argv: Sequence[str]) -> int:
    owner, folder = int(argv[0]), Path(argv[1])
    try:
        watched = os.pidfd_open(owner)
    except ProcessLookupError:
        pass
    else:
        select.select([watched], [], [])
    clock = SystemClock()
    until_s = clock.monotonic_s() + DEADLINE_S
    while _stands(owner) and clock.monotonic_s() < until_s:
        with records.locked():
            records.remove_dead(clock)
        clock.sleep(STEP_S)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _stands(owner: int) -> bool:
    """Whether something of that owner is left that was not to be kept."""
    found = [records.read(path.parent.name) for path in records.FOLDER.glob("*/record")]
    return any(each.owner.pid == owner and not each.is_kept() for each in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
