"""What the order of jobs depends on beside the batch system's look: which queues are ours, shares, a program.

Which queues are Outrider's to start is said by a file that the submit filters read, too. So an administrator
gives all of them back by emptying it, whether the service lives or not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cachemgr.base.clock import SystemClock
from outrider.metadata.external import ProgramError, Run, program_runner
from outrider.rms.base import BatchSystem, JobState, RmsError, Sight
from outrider.service.daemon.configuration.jobs import ScheduleSection
from outrider.service.daemon.configuration.model import Config
from outrider.service.daemon.errors import ServiceInputError
from outrider.service.meter import Log

WAITING = (JobState.HELD, JobState.PENDING)
NO_QUEUE = "*"
"""A name in the file: what names no queue, too, where a submit filter cannot know which that is."""
MOST_BYTES = 8_192
"""The submit filters read no more."""
KEY = "outrider starts"
"""No queue has a blank in its name: where filters look for names in quotation marks, this is none."""
SHARES_EVERY_S = 60
MOST_ORDER_BYTES = 4 << 20
"""Of what a program prints."""


def queues_in(path: Path) -> tuple[str, ...]:
    """The queues that are Outrider's to start. Raises OSError or ValueError; none, if there is no file."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MOST_BYTES))
    except FileNotFoundError:
        return ()
    names = found.get(KEY, []) if isinstance(found, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("it does not name queues")
    return tuple(names)


def text_of(queues: Sequence[str]) -> str:
    """What is in the file."""
    return json.dumps({KEY: list(queues)}, separators=(",", ":")) + "\n"


def turns_look(config: Config, rms: BatchSystem) -> TurnsLook | None:
    """What completes a look; None where the batch system starts all jobs."""
    section = config.jobs.schedule
    if not section.queues:
        return None
    clock = SystemClock()
    return TurnsLook(section, rms, program_runner(clock.monotonic_s, MOST_ORDER_BYTES), clock.monotonic_s)


def unknown_queues(section: ScheduleSection, sight: Sight) -> str:
    """In words which queues the batch system does not have; empty if it has all, or does not tell."""
    missing = sorted(set(section.queues) - set(sight.queues)) if sight.queues else []
    if not missing:
        return ""
    return (
        f"jobs.schedule.queues: the batch system has no {', '.join(missing)}: "
        f"it has {', '.join(sight.queues)}"
    )


def check_queues(config: Config, rms: BatchSystem, log: Log) -> None:
    """Raises ServiceInputError if the batch system says that it has no such queue. One that does not answer
    is no reason not to start."""
    section = config.jobs.schedule
    if not section.queues:
        return
    try:
        words = unknown_queues(section, rms.look())
    except RmsError as error:
        log.warning("queues not looked for", reason=str(error))
        return
    if words:
        raise ServiceInputError(words)


class TurnsLook:
    """Adds to a look what the order of jobs depends on."""

    def __init__(
        self, section: ScheduleSection, rms: BatchSystem, run: Run, monotonic_s: Callable[[], float]
    ) -> None:
        self._section = section
        self._rms = rms
        self._run = run
        self._monotonic_s = monotonic_s
        self._shares: tuple[tuple[str, int], ...] = ()
        self._shares_s: float | None = None

    def __call__(self, sight: Sight) -> Sight:
        try:
            ours = queues_in(Path(self._section.file))
        except (OSError, ValueError) as error:
            words = f"{self._section.file} cannot be read ({error}), so no queue is taken over"
            return replace(sight, is_handed_back=True, order_trouble=words)
        if not set(self._section.queues) <= set(ours):
            return replace(sight, is_handed_back=True)
        try:
            if self._section.order == "shares":
                return replace(sight, shares=self._ask_for_shares())
            if self._section.program is not None:
                return replace(sight, order=self._ask_program(self._section.program, sight))
        except (RmsError, ProgramError) as error:
            return replace(sight, order_trouble=f"jobs come in the order of their submission: {error}")
        return sight

    def _ask_for_shares(self) -> tuple[tuple[str, int], ...]:
        """They change slowly, and to ask costs a command."""
        now_s = self._monotonic_s()
        if self._shares_s is None or now_s - self._shares_s >= SHARES_EVERY_S:
            self._shares = tuple(sorted(self._rms.shares().items()))
            self._shares_s = now_s
        if not self._shares:
            raise ProgramError(f"{self._rms.name} does not tell users' shares")
        return self._shares

    def _ask_program(self, program: str, sight: Sight) -> tuple[str, ...]:
        """The keys of the jobs that wait, in the program's order."""
        queues = frozenset(self._section.queues)
        jobs = [
            {
                "job": job.key,
                "user": job.user,
                "account": job.account,
                "queue": job.queue,
                "nodes": job.nodes_wanted,
                "limit_s": job.limit_s,
                "submitted_s": job.submitted_s,
            }
            for job in sight.jobs
            if job.queue in queues and job.state in WAITING
        ]
        if not jobs:
            return ()
        question = json.dumps({"version": 1, "now_s": sight.at_s, "jobs": jobs}).encode() + b"\n"
        done = self._run([program], question, self._section.program_limit_s)
        if done.exit_code != 0:
            raise ProgramError(f"{program} ended with exit code {done.exit_code}")
        keys = tuple(done.stdout.decode(errors="replace").split())
        known = {str(job["job"]) for job in jobs}
        if len(set(keys)) != len(keys) or not known.issuperset(keys):
            raise ProgramError(f"{program} printed something else than keys of jobs, each once")
        return keys
