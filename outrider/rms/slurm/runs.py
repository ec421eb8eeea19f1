"""One run of a job: since when it goes on, and with which priority it was started."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.rms.base import Refused, Unknown
from outrider.rms.slurm.asking import Standing
from outrider.rms.slurm.commands import SlurmCommands
from outrider.rms.slurm.fields import BadField

FORMAT = "%A|%S|%Q"


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmRun:
    """What Slurm shows of it."""

    start_s: int
    priority: int


def run_of(commands: SlurmCommands, found: Standing) -> SlurmRun:
    """The run of a job that has nodes now. Raises RmsError."""
    lines = commands.ask(
        "squeue", "--noheader", "--states=all", f"--jobs={found.key}", f"--format={FORMAT}"
    ).decode("utf-8", "replace")
    for line in lines.splitlines():
        try:
            key, start, priority = line.split("|")
            if key == found.key:
                return SlurmRun(start_s=int(start), priority=int(priority))
        except ValueError as error:
            raise BadField(f"squeue printed {line[:120]!r}, which is not {FORMAT}: {error}") from error
    raise Unknown(f"there is no job {found.key}")


def check_run(commands: SlurmCommands, found: Standing, start_s: int) -> SlurmRun:
    """The run that is meant. Raises Refused if the job runs since another time."""
    run = run_of(commands, found)
    if run.start_s != start_s:
        raise Refused(f"job {found.key} runs since {run.start_s}, not since {start_s}: it has come back")
    return run
