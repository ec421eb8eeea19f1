"""The small Linux in which the demo's machine runs: made where that can be, else in words why not."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from cachemgr.machines.keeper import PROGRAM
from testbed.linux_guest import TOOLS, LinuxGuest, append, linux_guest

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.slurm import SlurmCluster

NOT_SHOWN = "the short form leaves it out"
BOOT = "/etc/outrider/boot/debian"


def provided_guest(folder: Path) -> LinuxGuest | str:
    """The guest, in that folder; in words why there is none."""
    if not os.path.exists(PROGRAM):
        return f"there is no {PROGRAM} (apt install qemu-system-x86)"
    lacking = [name for name in TOOLS if shutil.which(name) is None]
    if lacking:
        return f"its guest is made with {', '.join(lacking)}, which is not here (apt install lz4 cpio)"
    try:
        return linux_guest(folder)
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        return f"its guest, of two of Debian's packages, cannot be made: {error}"


def give_guest(cluster: SlurmCluster, guest: LinuxGuest) -> None:
    """On each node a kernel that users may name."""
    for node in cluster.nodes:
        cluster.write(node, f"{BOOT}/kernel", guest.kernel.read_bytes())
        cluster.write(node, f"{BOOT}/initrd", guest.initrd.read_bytes())
        cluster.write(node, f"{BOOT}/append", append())
