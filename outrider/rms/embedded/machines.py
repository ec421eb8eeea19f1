"""Jobs in virtual machines: which a submission wants, why it cannot have it here, and what runs in its place.

Virtual nodes are one machine: a job's guest is kept in a folder that all of them have, so that a suspended
one goes on at another node without a byte being carried.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import cachemgr
from cachemgr.base.disk import RealDisk, replace_file
from cachemgr.base.errors import CacheError
from cachemgr.machines.batch.bootfiles import FOLDER as KERNELS
from cachemgr.machines.batch.bootfiles import boot_files
from cachemgr.machines.batch.system import OWN_PLACE
from cachemgr.machines.keeper import PROGRAM as QEMU
from outrider.metadata.errors import TextError
from outrider.metadata.joblines import JobLines, parse_job_lines
from outrider.rms.base import Submission

PYTHON = "/usr/bin/python3"
ARCHIVE = "cachemgr.pyz"
OVERHEAD_MIB = 256
"""What QEMU takes beside the guest's memory; it is added to the job's."""
SAVED_WITHIN_S = 600
"""A machine that was told to be saved and still runs after so long goes on."""
MACHINE = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from cachemgr.machines.batch.main import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineHost:
    """Where machines are kept, and by what they run."""

    folder: Path
    python: str = PYTHON
    qemu: str = QEMU
    boot: str = KERNELS
    """The folder of the site's kernels."""

    @property
    def variables(self) -> dict[str, str]:
        """By which a machine's program finds its place."""
        return {OWN_PLACE: str(self.folder), "OUTRIDER_BOOT": self.boot}

    def prepare(self) -> None:
        """Each user's own folder is below it, made by the machine itself. Users may have no right to read
        what the service is made of: they get a copy of the node's part."""
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.folder.chmod(0o1777)
        package, held = Path(cachemgr.__file__).resolve().parent, BytesIO()
        with ZipFile(held, "w", ZIP_DEFLATED) as archive:
            for path in sorted(package.rglob("*.py")):
                archive.write(path, f"{package.name}/{path.relative_to(package)}")
        # Beside that folder, where users can make nothing.
        replace_file(RealDisk(), str(self._archive), held.getvalue())
        self._archive.chmod(0o644)

    def program(self, *arguments: str) -> tuple[str, ...]:
        return (self.python, "-I", "-S", "-c", MACHINE, str(self._archive), *arguments)

    @property
    def _archive(self) -> Path:
        return self.folder.parent / ARCHIVE

    def refusal(self, lines: JobLines, submission: Submission) -> str | None:
        """Why such a machine can never run here; None if it can."""
        memory_mib, machine = submission.resources["memory_mib"], lines.machine
        for is_wanted, words in (
            (submission.uid == 0, "machines run with the rights of their users, and not as root"),
            (submission.nodes_wanted != 1, "a job in a virtual machine has one node"),
            (lines.roles, "there are no roles"),
            (lines.data, "there are no data images"),
            (machine.scratch_bytes is not None, "there is no scratch disk"),
            (machine.network_rate_bytes_per_s is not None, "machines have no network"),
            (machine.is_interactive, "there are no interactive leases"),
            (not memory_mib, "ask for the machine's memory"),
        ):
            if is_wanted:
                return f"{words} (run: vm, embedded backend)"
        if not os.access(self.qemu, os.X_OK):
            return f"run is vm, and there is no {self.qemu}: install QEMU (Debian: qemu-system-x86)"
        try:
            boot_files(lines.boot, self.boot)
        except (CacheError, OSError) as error:
            return str(error)
        return None


def lines_of(submission: Submission) -> JobLines | None:
    """What is said of the job's machine; None if it runs in none."""
    if submission.metadata is None:
        return None
    try:
        lines = parse_job_lines(submission.metadata)
    except TextError:
        # The service tells its user what cannot be understood.
        return None
    return lines if lines.is_machine else None


def with_overhead(submission: Submission) -> Submission:
    resources, memory_mib = submission.resources, submission.resources["memory_mib"]
    more = type(resources).of(memory_mib=memory_mib + OVERHEAD_MIB)
    return replace(submission, resources=resources.with_amounts(more))


def options_of(lines: JobLines, submission: Submission) -> str:
    """As a submit filter says it of a batch system's job."""
    found = ["run=vm", f"memory={submission.resources['memory_mib'] - OVERHEAD_MIB}"]
    if lines.boot:
        found.append(f"boot={lines.boot}")
    if lines.machine.disk_rate_bytes_per_s is not None:
        found.append(f"disk={lines.machine.disk_rate_bytes_per_s}")
    return ",".join(found)


def script_of(argv: tuple[str, ...]) -> str:
    """The job's command as the script that the guest runs."""
    return f"#!/bin/sh\nexec {shlex.join(argv)}\n"
