"""What a job in a machine asks of its batch system, as the job's user and from inside the job."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest
from cachemgr.machines.batch.bootfiles import FOLDER as KERNELS
from cachemgr.machines.batch.kept import PROGRAM
from cachemgr.machines.batch.steps.tasks import MEMBER_VARIABLE, TASKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ASK_S = 10
MOST_HOSTS_BYTES = 1 << 20
MACHINES = "/var/tmp"
"""Where each user's folder of machines is; the epilog looks there, too."""
FOLDER_VARIABLE = "OUTRIDER_MACHINES"
"""In which it is on the embedded batch system's virtual nodes; other jobs have none of these."""
NO_JOB = b"do not exist"
"""What qstat says of a job that there is not."""
CPUS_VARIABLE, ATTEMPT_VARIABLE = "OUTRIDER_MACHINE_CPUS", "OUTRIDER_MACHINE_ATTEMPT"
BOOT_VARIABLE = "OUTRIDER_MACHINE_BOOT"
"""Where kernels are there."""
GIVEN_BACK, IN_ERROR = 99, 100
"""A job of Grid Engine's that ends with the first begins anew. One that ends with the second is in its error
state, until somebody clears that."""


@dataclass(frozen=True)
class BatchJob:
    """One run of a job."""

    key: str
    """In a machine's name: digits, and a task's after a hyphen."""
    cpus: int
    attempt: int
    """How often it was started before."""
    giving_back: Sequence[str] = ()
    """The command that sends it back to the queue, held; without one it is enough to end."""
    listing: Sequence[str] = ()
    """The command that prints the numbers of all jobs of this user."""
    asking: Sequence[str] = ()
    """Where there is none: the one that says whether there is the job whose number follows."""
    naming: Sequence[str] = ()
    """The command that gives it another name, in the place of `{}`."""
    ends_well: bool = True
    """Whether it ends with 0 when it is back in the queue."""
    elsewhere_status: int | None = None
    """With which it ends where its machine is not, if no command gives it back."""
    nodes: int = 1
    """Of each it has a machine."""
    member: int = 0
    """Which of its machines this process is to keep."""
    others_step: Sequence[str] = ()
    """What begins a program on each of its nodes but the first one."""
    comes_back: bool = False
    """Whether it is started again after it was told to save its machine, however it has ended since."""
    changes_folder: bool = False
    """Whether its machine may be told to go to its other folder, alive: nodes are names there."""
    kernels: str = KERNELS
    """Where its node's kernels are."""
    kept_statuses: Sequence[int] = ()
    """With which no job may end that is to be over: they mean something to the batch system."""

    def give_back(self) -> bool:
        """Whether the batch system has taken it back. It may end this process meanwhile."""
        if not self.giving_back:
            return True
        done = self._asked(self.giving_back)
        return done is not None and done.returncode == 0

    def others(self) -> frozenset[str] | None:
        """All jobs of this user that the batch system knows, this one too; None if it does not say."""
        done = self._asked(self.listing)
        if done is None:
            return None
        found = frozenset(done.stdout.decode(errors="replace").split())
        return found if done.returncode == 0 and self.key in found else None

    def is_gone(self, key: str) -> bool:
        """Whether the batch system says that there is no job of that number."""
        if not self.asking:
            known = self.others()
            return known is not None and key not in known
        done = self._asked([*self.asking, key])
        return done is not None and done.returncode != 0 and NO_JOB in done.stdout + done.stderr

    def is_called(self, name: str) -> bool:
        """Whether the batch system calls it so from now on."""
        done = self._asked([each.format(name) for each in self.naming])
        return done is not None and done.returncode == 0

    def _asked(self, command: Sequence[str]) -> subprocess.CompletedProcess[bytes] | None:
        """How a command ends; None if it does not."""
        try:
            return subprocess.run(list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_S)
        except (OSError, IndexError, ValueError, subprocess.TimeoutExpired):
            return None


def job_here(environment: Mapping[str, str]) -> BatchJob:
    """The job that this process belongs to."""
    if environment.get("SLURM_JOB_ID"):
        return _of_slurm(environment)
    if environment.get("JOB_ID") and environment.get("SGE_TASK_ID"):
        return _of_grid_engine(environment)
    if environment.get(FOLDER_VARIABLE) and environment.get("OUTRIDER_JOB"):
        return _of_embedded(environment)
    raise BadRequest("this is no batch job: a machine begins as the script of one")


def folder_of_user(environment: Mapping[str, str]) -> str:
    """Where this user's machines are."""
    is_elsewhere = environment.get("SLURM_JOB_ID") or environment.get("JOB_ID")
    folder = "" if is_elsewhere else environment.get(FOLDER_VARIABLE, "")
    return f"{folder or MACHINES}/outrider-{os.geteuid()}"


def home_of_marks(environment: Mapping[str, str]) -> str:
    """Where it is noted on which node a machine is: in its user's home. Virtual nodes number their jobs apart
    from those of the machine's own batch system, and have another place."""
    own = folder_of_user(environment)
    return environment.get("HOME", "") if own.startswith(f"{MACHINES}/outrider-") else own


def _of_embedded(environment: Mapping[str, str]) -> BatchJob:
    """A job that was told to save its machine goes back by ending; its hold was set before."""
    return BatchJob(
        key=_number(environment["OUTRIDER_JOB"]),
        cpus=max(1, _count(environment.get(CPUS_VARIABLE, "1"))),
        attempt=_count(environment.get(ATTEMPT_VARIABLE, "0")),
        comes_back=True,
        changes_folder=True,
        kernels=environment.get(BOOT_VARIABLE, KERNELS),
    )


def _of_slurm(environment: Mapping[str, str]) -> BatchJob:
    key, address = _number(environment["SLURM_JOB_ID"]), environment["SLURM_JOB_ID"]
    if environment.get("SLURM_ARRAY_JOB_ID"):
        # The number of a task may be that of its whole array.
        address = (
            f"{_number(environment['SLURM_ARRAY_JOB_ID'])}_{_number(environment['SLURM_ARRAY_TASK_ID'])}"
        )
    nodes = _count(environment.get("SLURM_JOB_NUM_NODES", "1"))
    return BatchJob(
        key=key,
        nodes=nodes,
        member=_count(environment.get("SLURM_PROCID", "0")) + 1 if "SLURM_STEP_ID" in environment else 0,
        others_step=_step(nodes - 1),
        cpus=_count(environment.get("SLURM_CPUS_ON_NODE", "1")),
        attempt=_count(environment.get("SLURM_RESTART_COUNT", "0")),
        giving_back=("scontrol", "requeuehold", address),
        listing=("squeue", "--noheader", "--format=%A", f"--user={os.geteuid()}"),
        naming=("scontrol", "update", f"JobId={key}", "JobName={}"),
    )


def _step(nodes: int) -> Sequence[str]:
    """One program on each node after the first, with all that the job has there. If one fails, all end."""
    return (
        "srun", "--relative=1", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--overlap",
        "--export=ALL", "--input=all", "--output=all", "--error=all", "--mpi=none",
        "--quiet", "--wait=0", "--kill-on-bad-exit=1",
    )  # fmt: skip


def _of_grid_engine(environment: Mapping[str, str]) -> BatchJob:
    """A job that was told to migrate goes back by ending; its hold was set before. Where its machine is not,
    it has to end in Grid Engine's error state, lest it start there again and again."""
    task = environment["SGE_TASK_ID"]
    key = _number(environment["JOB_ID"]) + (f"-{task}" if task.isdigit() else "")
    member, _, slots = environment.get(MEMBER_VARIABLE, "").partition(":")
    (_, first_slots), *others = _hosts(environment.get("PE_HOSTFILE", "")) or [
        ("", slots or environment.get("NSLOTS", "1"))
    ]
    return BatchJob(
        key=key,
        cpus=_count(first_slots),
        attempt=_count(environment.get("RESTARTED", "0")),
        elsewhere_status=IN_ERROR,
        comes_back=not others,
        asking=("qstat", "-j"),
        naming=("qalter", "-N", "{}", _number(environment["JOB_ID"])),
        kept_statuses=(GIVEN_BACK, IN_ERROR),
        nodes=1 + len(others),
        member=_count(member),
        others_step=(PROGRAM, TASKS, ",".join(f"{host}:{count}" for host, count in others)),
    )


def _hosts(path: str) -> list[tuple[str, str]]:
    """A job's nodes and how many slots it has on each, the first one's before others'."""
    found: dict[str, int] = {}
    with suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        for line in file.read(MOST_HOSTS_BYTES).splitlines():
            host, slots, *_ = [*line.split(), "", ""]
            if host:
                found[host] = found.get(host, 0) + _count(slots)
    return [(host, str(slots)) for host, slots in found.items()]


def _number(text: str) -> str:
    if not text.isdigit() or len(text) > 10:
        raise BadRequest(f"{text[:20]!r} is not a job's number")
    return text


def _count(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 10 else 0
