"""Slurm as a batch system: each call is one or two of Slurm's own commands.

Nothing runs between calls, so slurmctld may restart whenever it likes. What is known of jobs from the
last look serves to change them; how a job stands is asked anew before each change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from outrider.metadata.errors import TextError
from outrider.rms.base import Refused, RmsJob, RmsReservation, Sight, Submission, Unavailable, Unknown
from outrider.rms.slurm.asking import Standing, check_not_over, standing, state_now
from outrider.rms.slurm.booking import Booking
from outrider.rms.slurm.commands import Account, Commands
from outrider.rms.slurm.fields import BadField
from outrider.rms.slurm.handing import FAR_S, arguments, record_for, script_of
from outrider.rms.slurm.jobs import SlurmJob, jobs_in
from outrider.rms.slurm.nodes import nodes_in
from outrider.rms.slurm.placing import Places, led, unknown
from outrider.rms.slurm.records import (
    MOST_COMMENT,
    Record,
    Wish,
    comment_of,
    record_carried,
    with_ticket,
)
from outrider.rms.slurm.reservations import checked
from outrider.rms.slurm.version import json_option, version_in

JobsReader = Callable[[int], tuple[tuple[SlurmJob, ...], tuple[str, ...]]]
"""Reads the jobs that have not ended, given the time, and what was odd."""


class Clock(Protocol):
    def now_s(self) -> int: ...


class Log(Protocol):
    def warning(self, event: str, **fields: object) -> None: ...


class SlurmSystem:
    """A BatchSystem over Slurm's commands. Any thread may call; one call runs at a time."""

    def __init__(
        self,
        commands: Commands,
        *,
        clock: Clock,
        log: Log,
        account_of: Callable[[str, int], Account],
        read_jobs: JobsReader | None = None,
    ) -> None:
        self._commands = commands
        self._clock = clock
        self._log = log
        self._account_of = account_of
        self._guard = threading.RLock()
        self._booking = Booking(commands, clock.now_s)
        self._places = Places(())
        self._jobs: dict[str, SlurmJob] = {}
        self._reported: frozenset[str] = frozenset()
        self._json = ""
        self._read_jobs = read_jobs or self._ask_for_jobs

    @property
    def name(self) -> str:
        return "slurm"

    def look(self) -> Sight:
        with self._guard:
            return self._look()

    def reserve(self, wanted: RmsReservation) -> None:
        with self._guard:
            self._booking.reserve(wanted)

    def unreserve(self, name: str) -> None:
        with self._guard:
            self._booking.take_back(name, lambda found: self._free(found, name))

    def bind(self, job: str, reservation: str | None) -> None:
        with self._guard:
            found = self._standing(job)
            if found.reservation == (reservation or ""):
                return
            if not found.is_waiting:
                raise Refused(f"job {job} runs: only one that waits can be bound")
            name = "" if reservation is None else checked(reservation)
            self._commands.ask("scontrol", "update", f"JobId={found.address}", f"ReservationName={name}")

    def hold(self, job: str, reason: str) -> None:
        with self._guard:
            found = self._waiting(job, "held")
            self._hold(found, self._known(job), reason)

    def release(self, job: str, nodes: tuple[str, ...] = ()) -> None:
        with self._guard:
            found, known = self._standing(job), self._known(job)
            self._check_nodes(nodes)
            wish = led(known, nodes, self._places.names)
            if found.is_waiting:
                self._check_waits(found, known, "released")
                try:
                    self._release(found, known, wish if nodes else None)
                except Refused:
                    # It may have started just now, which is what was wanted.
                    found = self._standing(job)
                    if found.is_waiting:
                        raise
            if not found.is_waiting and nodes and not set(found.nodes) <= set(nodes):
                raise Refused(f"job {job} runs on {', '.join(found.nodes)} by now")

    def note(self, job: str, text: str) -> None:
        with self._guard:
            found, known = self._standing(job), self._known(job)
            self._write(found, known, known.record.said(text))

    def ticket(self, job: str, text: str) -> None:
        with self._guard:
            found, known = self._standing(job), self._known(job)
            comment = with_ticket(known.comment, text)
            if len(comment) > MOST_COMMENT:
                raise Refused(
                    f"job {job} has a comment of {len(known.comment)} characters: with its ticket that is "
                    f"more than {MOST_COMMENT}; its user has to shorten it"
                )
            if comment != known.comment:
                self._write(found, known, known.record if known.is_managed else None, f"Comment={comment}")
                self._keep(replace(self._jobs[job], comment=comment))

    def suspend(self, job: str) -> None:
        """Slurm's own suspension would keep the memory: the job is told to end, and waits to start again."""
        with self._guard:
            found, known = self._standing(job), self._known(job)
            if found.is_waiting:
                if known.record.is_suspended and found.is_stopped:
                    return
                raise Refused(f"job {job} is pending: only one that runs can be suspended")
            if found.slurm_state != "RUNNING":
                if known.record.is_suspended:
                    return
                raise Refused(
                    f"job {job} is {found.slurm_state.lower()}: only one that runs can be suspended"
                )
            self._write(found, known, replace(known.record, is_suspended=True))
            self._commands.ask("scontrol", "requeuehold", found.address)

    def resume(self, job: str) -> None:
        with self._guard:
            found, known = self._standing(job), self._known(job)
            if not known.record.is_suspended:
                if known.is_held_by_us or found.is_held_by_people:
                    raise Refused(f"job {job} is held: release it")
                return
            if not found.is_waiting:
                raise Unavailable(f"job {job} is still being saved: ask again")
            if found.is_stopped:
                self._commands.ask("scontrol", "release", found.address)
            self._write(found, known, replace(known.record, is_suspended=False))

    def cancel(self, job: str, reason: str) -> None:
        with self._guard:
            found = standing(self._commands, job)
            if not found.is_over:
                self._commands.ask("scancel", found.address)

    def submit(self, submission: Submission) -> str:
        with self._guard:
            account = self._account_of(submission.user, submission.uid)
            record = record_for(submission)
            script = script_of(submission)
            self._check_can_start(submission)
            argv = arguments(submission, record, self._clock.now_s(), account.home)
            printed = self._commands.ask_as(account, *argv, text=script)
            key = printed.decode("ascii", "replace").strip().partition(";")[0]
            if not key.isdecimal():
                raise BadField(f"sbatch printed {key[:60]!r}, not a job's number: look for the job by hand")
            if record is not None:
                self._settle(key, record)
            return key

    def _check_can_start(self, submission: Submission) -> None:
        """Slurm lets jobs wait that no node can ever take."""
        if not self._places.names:
            self._look()
        count = self._places.count_of(submission.resources)
        if not 1 <= submission.nodes_wanted <= count:
            raise Refused(
                f"a job on {submission.nodes_wanted} nodes with {submission.resources} on each can never "
                f"start: {count} nodes have that"
            )

    def _settle(self, key: str, record: Record) -> None:
        """Puts the record where its user cannot write. If that fails, the job carries it all the same."""
        try:
            self._commands.ask(
                "scontrol", "update", f"JobId={key}", f"AdminComment={comment_of(record)}", "Comment="
            )
        except (Refused, Unavailable) as error:
            self._log.warning("job's record stays in its comment", job=key, words=str(error))

    def _look(self) -> Sight:
        commands = self._commands
        jobs, odd_jobs = self._read_jobs(self._clock.now_s())
        reservations, odd_reservations = self._booking.all()
        nodes, odd_nodes = nodes_in(commands.ask("scontrol", "--oneliner", "--all", "show", "node"))
        at_s = self._clock.now_s()
        self._places = Places(nodes)
        self._jobs = {job.key: job for job in jobs}
        self._report(*odd_nodes, *odd_jobs, *odd_reservations)
        names = {each.name for each in reservations}
        return Sight(
            at_s=at_s,
            nodes=tuple(each.node for each in nodes),
            jobs=tuple(self._seen(job, names) for job in jobs),
            reservations=reservations,
        )

    def _ask_for_jobs(self, now_s: int) -> tuple[tuple[SlurmJob, ...], tuple[str, ...]]:
        if not self._json:
            self._json = json_option(version_in(self._commands.ask("squeue", "--version")))
        return jobs_in(self._commands.ask("squeue", "--all", self._json), now_s)

    def _seen(self, job: SlurmJob, reservations: set[str]) -> RmsJob:
        try:
            eligible = self._places.eligible(job)
        except TextError:
            eligible = ()
        return RmsJob(
            key=job.key,
            user=job.user,
            uid=job.uid,
            state=job.state,
            nodes_wanted=job.nodes_wanted,
            resources=job.resources,
            limit_s=job.limit_s,
            submitted_s=job.submitted_s,
            nodes=job.nodes,
            start_s=job.start_s,
            metadata=job.record.metadata,
            reservation=job.reservation if job.reservation in reservations else None,
            account=job.account,
            is_held_by_us=job.is_held_by_us,
            tag=job.record.tag,
            eligible=eligible,
            tasks=job.tasks,
        )

    def _report(self, *findings: str) -> None:
        for words in findings:
            if words not in self._reported:
                self._log.warning("slurm shows something odd", words=words)
        self._reported = frozenset(findings)

    def _standing(self, key: str) -> Standing:
        """A job that has not ended."""
        found = standing(self._commands, key)
        check_not_over(found)
        return found

    def _waiting(self, key: str, done: str) -> Standing:
        found = self._standing(key)
        self._check_waits(found, self._known(key), done)
        return found

    def _check_waits(self, found: Standing, known: SlurmJob, done: str) -> None:
        is_suspended = known.record.is_suspended and found.is_stopped
        if not found.is_waiting or is_suspended:
            word = state_now(found, is_suspended=is_suspended)
            raise Refused(f"job {found.key} is {word}: only one that waits can be {done}")

    def _known(self, key: str) -> SlurmJob:
        """The job as it was last seen; one that is new is looked for."""
        if key not in self._jobs:
            self._look()
        if key not in self._jobs:
            raise Unknown(f"there is no job {key} in what squeue shows")
        return self._jobs[key]

    def _check_nodes(self, nodes: tuple[str, ...]) -> None:
        if unknown(nodes, self._places.names):
            self._look()
            missing = unknown(nodes, self._places.names)
            if missing:
                raise Unknown(f"there is no node {', '.join(missing)}")

    def _hold(self, found: Standing, known: SlurmJob, reason: str, *parts: str) -> None:
        now_s = self._clock.now_s()
        begin_s = known.record.begin_s
        if not known.is_held_by_us and known.eligible_s > now_s:
            begin_s = known.eligible_s
        record = replace(known.record, sentence=reason, is_held=True, begin_s=begin_s)
        self._write(found, known, record, *parts, f"StartTime=uts{now_s + FAR_S}")
        self._keep(replace(self._jobs[known.key], is_held_by_us=True, eligible_s=now_s + FAR_S))

    def _free(self, found: Standing, reservation: str) -> None:
        """Unbinds a job whose reservation is taken back, and holds it."""
        known = self._known(found.key)
        reason = f"outrider: reservation {reservation} was taken back"
        if known.record.is_suspended and found.is_stopped:
            self._write(found, known, known.record.said(reason), "ReservationName=")
        else:
            self._hold(found, known, reason, "ReservationName=")

    def _release(self, found: Standing, known: SlurmJob, nodes: Wish | None) -> None:
        """Lets it start, at its user's own begin at the earliest; `nodes` are those it is led to."""
        now_s, record = self._clock.now_s(), known.record
        begin_s = record.begin_s if known.is_held_by_us or record.is_held else known.eligible_s
        parts = [f"StartTime=uts{begin_s}" if begin_s > now_s else "StartTime=now"]
        if nodes is not None or record.wish is not None:
            asked = nodes or known.wish
            parts += [f"ReqNodeList={asked.required}", f"ExcNodeList={asked.excluded}"]
        new = replace(record, is_held=False, wish=None if nodes is None else known.wish)
        self._write(found, known, new if known.is_managed or new != record else None, *parts)
        self._keep(replace(self._jobs[known.key], is_held_by_us=False, eligible_s=begin_s))
        if found.is_stopped and not found.is_held_by_people:
            self._commands.ask("scontrol", "release", found.address)

    def _write(self, found: Standing, known: SlurmJob, record: Record | None, *parts: str) -> None:
        """One update: all of it is done, or nothing."""
        changes = list(parts)
        if record is not None:
            changes.append(f"AdminComment={comment_of(record)}")
            if record_carried(known.comment) is not None and not any(
                each.startswith("Comment=") for each in parts
            ):
                changes.append("Comment=")
                known = replace(known, comment="")
            known = replace(known, record=record, is_managed=True)
        self._commands.ask("scontrol", "update", f"JobId={found.address}", *changes)
        self._keep(known)

    def _keep(self, job: SlurmJob) -> None:
        self._jobs[job.key] = job
