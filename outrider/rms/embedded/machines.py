"""Jobs in virtual machines on the embedded batch system: how one is begun, and what is left of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import cachemgr
from cachemgr.base.errors import CacheError
from cachemgr.machines.batch.bootfiles import boot_files
from cachemgr.machines.batch.kept import DISCARD, as_user, kept_machines
from cachemgr.machines.batch.options import read_options
from cachemgr.machines.batch.steps.changing import CHANGE
from cachemgr.machines.batch.system import ATTEMPT_VARIABLE, BOOT_VARIABLE, CPUS_VARIABLE, FOLDER_VARIABLE
from cachemgr.machines.keeper import PROGRAM as QEMU
from outrider.rms.base import Submission, Unavailable
from outrider.rms.embedded.launching import Command
from outrider.rms.twin.jobs import TwinJob

PYTHON = "/usr/bin/python3"
"""What every user can run, as on a real node; the service's own Python may be for root alone."""
PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from cachemgr.machines.batch.main import main
sys.exit(main(sys.argv[1:]))
"""
TIDY = "tidy"
ASK_S = 20.0
"""How long the other jobs wait while one's machine is ended."""
SAVE_SIGNAL = "USR1"
SAVE_S = 10 * 365 * 86_400
"""A machine is saved when its program says so, by ending; until then its job keeps its nodes."""
SAVED_WITHIN_S = 600
"""One that still runs so long after it was told to be saved could not be: its job goes on."""
KILL_S = 25
"""The program gives the guest 20 s to shut down."""


class JobMachines:
    """The machines in one folder, in which each user has one of their own."""

    def __init__(self, folder: Path, boot: Path) -> None:
        """`boot` has the site's kernels."""
        self._folder = folder
        self._boot = boot
        self._program: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Raises OSError."""
        self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        # Each user makes a folder in it, and nobody removes another's. Without root there is one user.
        self._folder.chmod(0o1777 if os.geteuid() == 0 else 0o700)
        python = PYTHON if os.path.exists(PYTHON) else sys.executable
        copy = _copied(Path(cachemgr.__file__).parent, self._folder.parent / "programs", python)
        self._program = (python, "-IS", "-c", PROGRAM.format(folder=str(copy)))

    def refusal(self, submission: Submission) -> str | None:
        """Why a job can never have its machine here; None if it can."""
        if submission.uid == 0:
            return "a virtual machine runs with its user's rights, and not as root: submit as another"
        if submission.nodes_wanted > 1:
            return "a job in a virtual machine has one node here: ask for one"
        if not os.access(QEMU, os.X_OK):
            return f"there is no {QEMU}: install QEMU (Debian: qemu-system-x86)"
        try:
            boot_files(read_options(submission.machine).boot, str(self._boot))
        except (CacheError, OSError) as error:
            return str(error)
        return None

    def wrapped(self, job: TwinJob, command: Command) -> Command:
        """A command that runs in the job's machine: begun, or continued where it was saved."""
        variables = {
            FOLDER_VARIABLE: str(self._folder),
            CPUS_VARIABLE: str(job.submission.resources["cpus"] or 1),
            ATTEMPT_VARIABLE: str(job.starts - 1),
            BOOT_VARIABLE: str(self._boot),
        }
        argv = (*self._program, job.submission.machine, *command.argv)
        return Command(
            job=command.job,
            uid=command.uid,
            argv=argv,
            variables={**command.variables, **variables},
            folder=command.folder,
        )

    def tidy(self, job: str, uid: int) -> bool:
        """End what still runs of a job's machine, and remove what is not saved; whether that was done."""
        return self._tell(TIDY, job, uid)

    def change(self, job: str, uid: int, stamp: str, image: str) -> str:
        """Have a running machine brought to its other folder, with its image there: how far that is. Raises
        Unavailable."""
        try:
            argv = [*self._program, CHANGE, job, stamp, image]
            done = as_user(uid, argv, "", ASK_S, {FOLDER_VARIABLE: str(self._folder)})
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"the machine of job {job} is not told to move: {error}") from error
        if done.returncode != 0:
            raise Unavailable(f"the machine of job {job} is not told to move: {done.stderr.strip()[-200:]}")
        return done.stdout.strip()

    def discard_others(self, jobs: Collection[str]) -> list[str]:
        """Remove the machines of all jobs but these; those that could not be removed."""
        left = [each for each in kept_machines(str(self._folder)) if each.job not in jobs]
        return [each.job for each in left if not self._tell(DISCARD, each.key, each.uid)]

    def _tell(self, verb: str, key: str, uid: int) -> bool:
        with suppress(OSError, subprocess.TimeoutExpired):
            variables = {FOLDER_VARIABLE: str(self._folder)}
            return as_user(uid, [*self._program, verb, key], "", ASK_S, variables).returncode == 0
        return False


def _copied(sources: Path, folder: Path, python: str) -> Path:
    """The node side in a folder that all users can read, compiled. Each version has its own, since what keeps
    a machine may need more of its version's files at any time."""
    files = sorted(sources.rglob("*.py"))
    version = 0
    for file in files:
        version = zlib.crc32(file.read_bytes(), zlib.crc32(str(file.relative_to(sources)).encode(), version))
    copy = folder / f"{version:08x}"
    if copy.exists():
        return copy
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="new-") as made:
        new = Path(made) / "version"
        shutil.copytree(
            sources,
            new / sources.name,
            ignore=shutil.ignore_patterns("__pycache__"),
            copy_function=shutil.copyfile,
        )
        # For a faster start; without it, it starts all the same.
        subprocess.run([python, "-IS", "-m", "compileall", "-q", str(new)], check=False)
        for each in (new, *new.rglob("*")):
            each.chmod(0o755 if each.is_dir() else 0o644)
        new.rename(copy)
    return copy
