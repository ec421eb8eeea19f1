"""How one job stands now, by fields that no user can forge: for the moment before it is changed.

`squeue --json` of 22.05 prints all jobs whatever it is asked for, and its texts have the users' own
words among the fields. So a single job is asked for by fields without any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from outrider.metadata.errors import TextError
from outrider.metadata.notation.hostlists import expand
from outrider.rms.base import JobState, JobUse, Refused, Unavailable, Unknown
from outrider.rms.slurm.commands import SlurmCommands
from outrider.rms.slurm.fields import BadField
from outrider.rms.slurm.jobs import OVER, WAITING
from outrider.rms.slurm.records import JobRecord

KEY = re.compile(r"[1-9][0-9]{0,9}")
FORMAT = "%A|%F|%K|%T|%Q|%U|%N|%r|%v"
RUN_FORMAT = "%A|%S|%Q"
USE_FORMAT = "%A|%T|%S|%e|%C|%g"
ACCOUNTED = "JobIDRaw,State,Start,End,AllocCPUS,Group"
BY_PEOPLE = frozenset({"JobHeldUser", "JobHeldAdmin"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """A job as it is now. `address` is what commands have to be told, lest they mean a whole array."""

    key: str
    address: str
    slurm_state: str
    priority: int
    uid: int
    nodes: tuple[str, ...]
    reason: str
    reservation: str

    @property
    def is_stopped(self) -> bool:
        """It has no priority: somebody holds it, or Slurm does."""
        return self.priority == 0

    @property
    def is_over(self) -> bool:
        return self.slurm_state in OVER

    @property
    def is_waiting(self) -> bool:
        return self.slurm_state in WAITING

    @property
    def is_held_by_people(self) -> bool:
        return self.is_stopped and self.reason in BY_PEOPLE


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmRun:
    """What Slurm shows of it."""

    start_s: int
    priority: int


def standing(commands: SlurmCommands, key: str) -> Standing:
    """The job. Raises Unknown."""
    if not KEY.fullmatch(key):
        raise Unknown(f"there is no job {key[:40]!r}: jobs of Slurm have numbers")
    lines = commands.ask("squeue", "--noheader", "--states=all", f"--jobs={key}", f"--format={FORMAT}")
    found = [each for each in standings(lines) if each.key == key]
    if not found:
        raise Unknown(f"there is no job {key}")
    return found[0]


def bound_to(commands: SlurmCommands, reservation: str) -> list[Standing]:
    """The jobs of a reservation that have not ended."""
    lines = commands.ask(
        "squeue", "--noheader", "--all", f"--reservation={reservation}", f"--format={FORMAT}"
    )
    return [each for each in standings(lines) if not each.is_over and each.reservation == reservation]


def standings(lines: bytes) -> list[Standing]:
    """What was printed. Raises BadField."""
    return [_standing(line) for line in lines.decode("utf-8", "replace").splitlines() if line]


def check_not_over(found: Standing) -> None:
    if found.is_over:
        raise Refused(f"job {found.key} has ended: {found.slurm_state.lower()}")


def check_as_seen(found: Standing, state: JobState, record: JobRecord) -> None:
    """Raises Unavailable if a job that waited for nodes alone has no priority any more, and this is to be
    written with it: slurmctld may have forgotten that it was released, and what it knows says whose it is."""
    if state is JobState.PENDING and found.is_waiting and found.is_stopped and not record.holds:
        raise Unavailable(f"job {found.key} was let go, and has no priority: it is looked at first")


def state_now(found: Standing, *, is_suspended: bool) -> str:
    """A word for messages."""
    if found.is_waiting:
        return JobState.SUSPENDED.value if is_suspended and found.is_stopped else JobState.PENDING.value
    return JobState.RUNNING.value


def run_of(commands: SlurmCommands, found: Standing) -> SlurmRun:
    """The run of a job that has nodes now. Raises RmsError."""
    lines = commands.ask(
        "squeue", "--noheader", "--states=all", f"--jobs={found.key}", f"--format={RUN_FORMAT}"
    ).decode("utf-8", "replace")
    for line in lines.splitlines():
        try:
            key, start, priority = line.split("|")
            if key == found.key:
                return SlurmRun(start_s=int(start), priority=int(priority))
        except ValueError as error:
            raise BadField(f"squeue printed {line[:120]!r}, which is not {RUN_FORMAT}: {error}") from error
    raise Unknown(f"there is no job {found.key}")


def check_run(commands: SlurmCommands, found: Standing, start_s: int) -> SlurmRun:
    """The run that is meant. Raises Refused if the job runs since another time."""
    run = run_of(commands, found)
    if run.start_s != start_s:
        raise Refused(f"job {found.key} runs since {run.start_s}, not since {start_s}: it has come back")
    return run


def use_of(commands: SlurmCommands, key: str) -> JobUse:
    """What a job had that is over: from slurmctld, which forgets it after MinJobAge, else from the site's
    accounting, if there is one. Raises RmsError."""
    try:
        lines = commands.ask(
            "squeue", "--noheader", "--states=all", f"--jobs={key}", f"--format={USE_FORMAT}"
        )
        found = _use_in(lines, key, USE_FORMAT)
    except Unknown:
        found = None
    if found is None:
        try:
            lines = commands.ask(
                "sacct",
                "--noheader",
                "--allocations",
                "--parsable2",
                f"--jobs={key}",
                f"--format={ACCOUNTED}",
            )
        except Refused as error:
            raise Refused(f"Slurm has forgotten job {key}, and accounts for none: {error}") from error
        found = _use_in(lines, key, ACCOUNTED)
    if found is None:
        raise Unknown(
            f"there is no job {key} any more, nor in the site's accounting: what it had is not known"
        )
    return found


def _use_in(lines: bytes, key: str, form: str) -> JobUse | None:
    for line in lines.decode("utf-8", "replace").splitlines():
        try:
            number, state, start, end, cpus, group = line.split("|", 5)
            if number != key:
                continue
            # sacct says who has cancelled it, in the same field.
            if state.partition(" ")[0] not in OVER:
                raise Unavailable(f"job {key} is {state.lower()}: what it will have had is not known yet")
            # One that was cancelled while it waited has no start, or no node.
            start_s, end_s = (int(each) if each.isdecimal() else 0 for each in (start, end))
            return JobUse(start_s=min(start_s or end_s, end_s), end_s=end_s, cpus=int(cpus or 0), group=group)
        except ValueError as error:
            raise BadField(f"Slurm printed {line[:120]!r}, which is not {form}: {error}") from error
    return None


def _standing(line: str) -> Standing:
    try:
        key, array, task, state, priority, uid, nodes, reason, reservation = line.split("|", 8)
        return Standing(
            key=key,
            address=f"{array}_{task}" if array == key and task.isdecimal() else key,
            slurm_state=state,
            priority=int(priority),
            uid=int(uid),
            nodes=expand(nodes) if nodes and not nodes.startswith("(") else (),
            reason=reason,
            reservation="" if reservation in ("(null)", "N/A") else reservation,
        )
    except (ValueError, TextError) as error:
        raise BadField(f"squeue printed {line[:120]!r}, which is not {FORMAT}: {error}") from error
