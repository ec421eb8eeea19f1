"""Slurm as a batch system: each call is a few of Slurm's own commands.

Nothing runs between calls, so slurmctld may restart whenever it likes. What is known of jobs from the
last look serves to change them; how a job stands is asked anew before each change.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from cachemgr.base.clock import WallClock
from outrider.core.model import Resources
from outrider.rms.base import (
    NOTHING,
    Refused,
    RmsReservation,
    Sight,
    Submission,
    SubmitsByCommand,
    Unavailable,
)
from outrider.rms.commands import AccountOf
from outrider.rms.saved import saved_again
from outrider.rms.slurm.asking import Standing, check_as_seen, check_not_over, check_run, standing, state_now
from outrider.rms.slurm.booking import Booking
from outrider.rms.slurm.commands import SlurmCommands
from outrider.rms.slurm.fields import shares_in
from outrider.rms.slurm.handing import (
    FAR_S,
    FORGETS_S,
    arguments,
    comment_with_ticket,
    expected,
    key_in,
    record_for,
    script_of,
    size_of,
)
from outrider.rms.slurm.jobs import HELD_BEGIN_S, SlurmJob
from outrider.rms.slurm.placing import led
from outrider.rms.slurm.records import (
    JobRecord,
    NodeWish,
    comment_of,
    record_carried,
    with_ticket,
)
from outrider.rms.slurm.reservations import checked
from outrider.rms.slurm.snapshot import JobsReader, SlurmSnapshot, WarningLog

SAVING = "USR1"
"""The signal by which a machine is told to save itself."""
FIRST = 0xFFFF0000
"""Above what Slurm's own plugins give. With the place that a job had, Slurm would let it wait for another
that waits for a whole node, although there is room."""


class SlurmSystem(SubmitsByCommand):
    """A BatchSystem over Slurm's commands. Any thread may call; one call runs at a time."""

    def __init__(
        self,
        commands: SlurmCommands,
        *,
        clock: WallClock,
        log: WarningLog,
        account_of: AccountOf,
        read_jobs: JobsReader | None = None,
        shown: Collection[str] = (),
        shows_start: bool = True,
        core_cpus: int = 0,
    ) -> None:
        """`shown` are the nodes of which a look tells; empty means all that Slurm has. `shows_start`: whether
        held jobs show when they are expected to start, which takes from their users to hold them, too.
        `core_cpus` are the CPUs of a core, where reservations may have parts of nodes."""
        self._shows_start = shows_start
        self._commands = commands
        self._clock = clock
        self._log = log
        self._account_of = account_of
        self._guard = threading.RLock()
        self._booking = Booking(
            commands, clock.now_s, core_cpus, lambda nodes: self._seen.places.cpus_of(nodes)
        )
        self._seen = SlurmSnapshot(
            commands, self._booking, now_s=clock.now_s, log=log, read_jobs=read_jobs, shown=shown
        )

    @property
    def name(self) -> str:
        return "slurm"

    def look(self) -> Sight:
        with self._guard:
            return self._seen.look()

    def shares(self) -> dict[str, int]:
        """Slurm's own factors; of a user with several accounts the best."""
        printed = self._commands.ask(
            "sshare", "--all", "--noheader", "--parsable2", "--format=User,FairShare"
        )
        return shares_in(printed)

    def silent(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        # slurmctld pings its nodes itself, and a stranger's connection is an error in slurmd's log.
        return ()

    def reserve(self, wanted: RmsReservation) -> None:
        with self._guard:
            self._booking.reserve(wanted)

    def unreserve(self, name: str) -> None:
        with self._guard:
            self._booking.take_back(name, lambda found: self._free(found, name))

    def bind(self, job: str, reservation: str | None, limit_s: int | None = None) -> None:
        with self._guard:
            found = self._standing(job)
            parts = [] if limit_s is None else [f"TimeLimit={-(-limit_s // 60)}"]
            if found.reservation != (reservation or ""):
                parts.append(f"ReservationName={'' if reservation is None else checked(reservation)}")
            if not parts:
                return
            if not found.is_waiting:
                raise Refused(f"job {job} runs: only one that waits can be bound")
            self._commands.ask("scontrol", "update", f"JobId={found.address}", *parts)

    def hold(self, job: str, reason: str) -> None:
        with self._guard:
            found = self._waiting(job, "held")
            self._hold(found, self._seen.job(job), reason)

    def release(self, job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> None:
        with self._guard:
            found, known = self._standing(job), self._seen.job(job)
            self._seen.check_nodes(nodes)
            wish = led(known, nodes, self._seen.places.names)
            if found.is_waiting:
                self._check_waits(found, known, "released")
                before = known.record
                if before.is_stopped and found.is_stopped and not before.is_expected:
                    found, known = self._held_by_begin(found, known)
                try:
                    self._release(found, known, wish if nodes else None, ticket)
                except Refused:
                    # It may have started just now, which is what was wanted.
                    found = self._standing(job)
                    if found.is_waiting:
                        self._check_let_go(found, before)
                        raise
                if before.is_stopped:
                    self._check_let_go(standing(self._commands, job), before)
            if not found.is_waiting:
                if ticket:
                    self._carry(found, known, ticket)
                if nodes and not set(found.nodes) <= set(nodes):
                    raise Refused(f"job {job} runs on {', '.join(found.nodes)} by now")

    def resize(
        self, job: str, nodes_wanted: int, limit_s: int, each: Resources = NOTHING, option: int = 0
    ) -> None:
        """By nodes, tasks and processors in one update: any of them alone would contradict the others."""
        with self._guard:
            found, known = self._standing(job), self._seen.job(job)
            minutes = -(-limit_s // 60)
            resources = known.resources.with_amounts(each)
            is_known = option in (0, known.record.option) and resources == known.resources
            if is_known and (known.nodes_wanted, known.limit_s) == (nodes_wanted, 60 * minutes):
                return
            self._check_waits(found, known, "resized")
            if known.array or known.tasks > 1:
                raise Refused(f"job {job} is one of an array: its size is that of all")
            if limit_s < 1:
                raise Refused(f"a limit of {limit_s} s is too short: ask for 1 or more")
            self._check_can_start(nodes_wanted, resources)
            parts = size_of(nodes_wanted, resources, minutes, has_cpus=bool(each["cpus"]))
            record = replace(known.record, option=option) if option and known.is_managed else None
            self._write(found, known, record, *parts)
            changed = replace(
                self._seen.job(job), nodes_wanted=nodes_wanted, limit_s=60 * minutes, resources=resources
            )
            self._seen.keep(changed)

    def note(self, job: str, text: str, start_s: int | None = None) -> None:
        with self._guard:
            found, known = self._standing(job), self._seen.job(job)
            record = known.record.said(text)
            if self._is_held_for_show(found, known):
                self._write(found, known, *expected(record, found.priority, start_s, self._clock.now_s()))
            else:
                self._write(found, known, record)

    def _is_held_for_show(self, found: Standing, known: SlurmJob) -> bool:
        """Whether it is held by us alone, so that its begin may be the start that is expected: what its user
        holds, or what has a deadline, stays as it is."""
        is_ours = found.is_waiting and known.is_held_by_us and not known.record.is_suspended
        return self._shows_start and is_ours and (known.record.is_expected or not found.is_stopped)

    def ticket(self, job: str, text: str) -> None:
        with self._guard:
            self._carry(self._standing(job), self._seen.job(job), text)

    def suspend(self, job: str) -> None:
        """Slurm's own suspension would keep the memory: the job is told to end, and waits to start again."""
        with self._guard:
            found, known = self._standing(job), self._seen.job(job)
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
            saved = replace(known.record, is_suspended=True)
            self._end_run(found, known, saved, (), "scontrol", "requeuehold", found.address)

    def resume(self, job: str) -> None:
        with self._guard:
            found, known = self._standing(job), self._seen.job(job)
            if not known.record.is_suspended:
                if known.is_held_by_us or found.is_held_by_people:
                    raise Refused(f"job {job} is held: release it")
                return
            if not found.is_waiting:
                raise Unavailable(f"job {job} is still being saved: ask again")
            if known.record.saved is not None:
                # It has to be led to its machine: it waits for that, held.
                self._write(
                    found, known, replace(known.record, is_suspended=False, is_held=True, is_stopped=True)
                )
                return
            if found.is_stopped:
                self._commands.ask("scontrol", "release", found.address)
            self._write(found, known, replace(known.record, is_suspended=False))
            if found.is_stopped:
                self._check_let_go(standing(self._commands, job), known.record)

    def signal(self, job: str, name: str, start_s: int) -> None:
        with self._guard:
            found = self._standing(job)
            if found.slurm_state != "RUNNING":
                raise Refused(f"job {job} is {found.slurm_state.lower()}: only one that runs has a signal")
            check_run(self._commands, found, start_s)
            self._commands.ask("scancel", "--batch", f"--signal={name}", found.address)

    def requeue(self, job: str, start_s: int, reason: str) -> None:
        """By one command that also holds it, so that it does not start before it is known where it may."""
        with self._guard:
            found, known = self._standing(job), self._seen.job(job)
            if found.is_waiting:
                self._check_waits(found, known, "requeued")
                if not (known.is_held_by_us or (known.record.is_stopped and found.is_stopped)):
                    self._hold(found, known, reason)
                return
            if found.slurm_state == "COMPLETING":
                # It is on its way, or over.
                return
            run = check_run(self._commands, found, start_s)
            record = replace(known.record.said(reason), is_held=True, is_stopped=True, priority=run.priority)
            self._end_run(found, known, record, ("Requeue=1",), "scontrol", "requeuehold", found.address)

    def save(self, job: str, start_s: int, reason: str, *, is_kept: bool = False) -> None:
        """By a signal that its machine's keeper knows, since the TERM of a requeue would end it. The keeper
        gives the job back when all is saved; what is to become of it then is written before."""
        with self._guard:
            found, known = self._standing(job), self._seen.job(job)
            if found.is_waiting and is_kept and known.record.saved is not None:
                self._keep(found, known, reason)
                return
            if found.is_waiting:
                self._check_waits(found, known, "saved")
                if not (known.is_held_by_us or (known.record.is_stopped and found.is_stopped)):
                    self._hold(found, known, reason)
                return
            if found.slurm_state == "COMPLETING":
                return
            run = check_run(self._commands, found, start_s)
            record = replace(
                known.record.said(reason),
                is_held=True,
                is_stopped=True,
                is_suspended=is_kept,
                priority=run.priority,
                saved=saved_again(
                    known.record.saved,
                    ",".join(self._seen.places.in_order(found.nodes)),
                    known.limit_s,
                    run.start_s,
                    self._clock.now_s(),
                ),
            )
            saving = ("scancel", "--batch", f"--signal={SAVING}", found.address)
            self._end_run(found, known, record, ("Requeue=1",), *saving)

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> None:
        with self._guard:
            found, known = self._standing(job), self._seen.job(job)
            saved, nodes = known.record.saved, self._seen.places.in_order(nodes)
            if saved is not None and saved.nodes == nodes:
                return
            if saved is None:
                raise Refused(f"job {job} has no saved machine")
            if not (found.is_waiting and (known.record.is_suspended or known.is_held_by_us)):
                raise Unavailable(f"job {job} is not suspended yet")
            place = replace(saved, node=",".join(nodes))
            priority = FIRST if goes_first else known.record.priority
            self._write(found, known, replace(known.record, saved=place, priority=priority))

    def _keep(self, found: Standing, known: SlurmJob, reason: str) -> None:
        """One that waits with a saved machine is suspended until somebody lets it go on."""
        if known.record.is_suspended and found.is_stopped:
            return
        record = replace(
            known.record.said(reason), is_held=True, is_stopped=True, is_suspended=True, is_expected=False
        )
        self._write(found, known, record)
        self._commands.ask("scontrol", "hold", found.address)

    def cancel(self, job: str, reason: str) -> None:
        with self._guard:
            found = standing(self._commands, job)
            if not found.is_over:
                self._commands.ask("scancel", found.address)

    def prepare(self, submission: Submission) -> Callable[[], str]:
        with self._guard:
            account = self._account_of(submission.user, submission.uid)
            if submission.machine:
                raise Refused("a job in a virtual machine (run: vm) is handed to Slurm by sbatch: use that")
            script = script_of(submission)
            self._check_can_start(submission.nodes_wanted, submission.resources)
            folder = submission.folder or account.home
            argv = arguments(submission, record_for(submission), self._clock.now_s(), folder)

        def hand_over() -> str:
            return key_in(self._commands.ask_as(account, *argv, text=script))

        return hand_over

    def settle(self, submission: Submission, job: str) -> None:
        """Put the record where its user cannot write. If that fails, the job carries it all the same."""
        record = record_for(submission)
        if record is None:
            return
        with self._guard:
            try:
                kept = f"AdminComment={comment_of(record)}"
                self._commands.ask("scontrol", "update", f"JobId={job}", kept, "Comment=")
            except (Refused, Unavailable) as error:
                self._log.warning("job's record stays in its comment", job=job, words=str(error))

    def _check_can_start(self, nodes_wanted: int, resources: Resources) -> None:
        """Slurm lets jobs wait that no node can ever take."""
        if not self._seen.places.names:
            self._seen.look()
        count = self._seen.places.count_of(resources)
        if not 1 <= nodes_wanted <= count:
            raise Refused(
                f"a job on {nodes_wanted} nodes with {resources} on each can never "
                f"start: {count} nodes have that"
            )

    def _standing(self, key: str) -> Standing:
        """A job that has not ended."""
        found = standing(self._commands, key)
        check_not_over(found)
        return found

    def _waiting(self, key: str, done: str) -> Standing:
        found = self._standing(key)
        self._check_waits(found, self._seen.job(key), done)
        return found

    def _check_waits(self, found: Standing, known: SlurmJob, done: str) -> None:
        is_suspended = known.record.is_suspended and found.is_stopped
        if not found.is_waiting or is_suspended:
            word = state_now(found, is_suspended=is_suspended)
            raise Refused(f"job {found.key} is {word}: only one that waits can be {done}")

    def _hold(self, found: Standing, known: SlurmJob, reason: str, *parts: str) -> None:
        now_s = self._clock.now_s()
        begin_s = known.record.begin_s
        is_held_by_begin = known.is_held_by_us and known.eligible_s >= now_s + HELD_BEGIN_S
        if not is_held_by_begin and not known.record.is_expected and known.eligible_s > now_s:
            # The user's own, or Slurm's: a node takes the same job again only after a while.
            begin_s = known.eligible_s + (FORGETS_S if known.has_run else 0)
        record = replace(known.record, sentence=reason, is_held=True, begin_s=begin_s)
        try:
            self._write(found, known, record, *parts, f"StartTime=uts{now_s + FAR_S}")
        except Refused:
            # Of a job that has started meanwhile Slurm changes what it can: the AdminComment.
            before = comment_of(known.record) if known.is_managed else ""
            self._commands.ask("scontrol", "update", f"JobId={found.address}", f"AdminComment={before}")
            raise
        self._seen.keep(replace(self._seen.job(known.key), is_held_by_us=True, eligible_s=now_s + FAR_S))

    def _held_by_begin(self, found: Standing, known: SlurmJob) -> tuple[Standing, SlurmJob]:
        """Holds by its begin what the submit filter holds by its priority, as it does others: whatever ends
        this call halfway, the job is held, and by us."""
        self._hold(found, known, known.record.sentence)
        self._commands.ask("scontrol", "release", found.address)
        return self._standing(found.key), self._seen.job(found.key)

    def _free(self, found: Standing, reservation: str) -> None:
        """Unbinds a job whose reservation is taken back, and holds it: for its user, as Slurm does itself
        when a reservation is deleted, if it is none that we manage. Nobody here would ever release that
        one, and whether it is of use without the reservation's image its user knows alone."""
        known = self._seen.job(found.key)
        if not known.is_managed:
            self._commands.ask("scontrol", "uhold", found.address)
            self._write(found, known, None, "ReservationName=", f"Comment={with_ticket(known.comment, '')}")
            # Once more: slurmctld may have come back in between without that.
            self._commands.ask("scontrol", "uhold", found.address)
            return
        reason = f"outrider: reservation {reservation} was taken back"
        if known.record.is_suspended and found.is_stopped:
            self._write(found, known, known.record.said(reason), "ReservationName=")
        else:
            self._hold(found, known, reason, "ReservationName=")

    def _carry(self, found: Standing, known: SlurmJob, ticket: str) -> None:
        comment = comment_with_ticket(known, ticket)
        if comment != known.comment:
            self._write(found, known, known.record if known.is_managed else None, f"Comment={comment}")
            self._seen.keep(replace(self._seen.job(known.key), comment=comment))

    def _release(self, found: Standing, known: SlurmJob, nodes: NodeWish | None, ticket: str) -> None:
        """Lets it start, at its user's own begin at the earliest; `nodes` are those it is led to."""
        now_s, record = self._clock.now_s(), known.record
        begin_s = record.begin_s if known.is_held_by_us or record.is_held else known.eligible_s
        parts = [f"StartTime=uts{begin_s}" if begin_s > now_s else "StartTime=now"]
        if nodes is not None or record.wish is not None:
            asked = nodes or known.wish
            parts += [f"ReqNodeList={asked.required}", f"ExcNodeList={asked.excluded}"]
        comment = comment_with_ticket(known, ticket) if ticket else known.comment
        if comment != known.comment:
            parts.append(f"Comment={comment}")
        if record.saved is not None and record.is_held and record.saved.limit_s:
            # Slurm gives each run the whole limit, in minutes.
            parts.append(f"TimeLimit={math.ceil(record.saved.left_s / 60)}")
        # Slurm has forgotten since when it waits: it gets the place that it had.
        place = [f"Priority={record.priority}"] if record.priority else []
        # One whose node died before its machine was saved is let go like any other: nothing is to resume it.
        new = replace(
            record, is_held=False, is_stopped=False, is_expected=False, is_suspended=False, priority=0,
            wish=None if nodes is None else known.wish,
        )  # fmt: skip
        if record.is_expected and found.is_stopped:
            # Until it has a priority it is ours to release, whatever ends this call halfway.
            self._write(found, known, replace(record, wish=new.wish), *parts)
            self._commands.ask("scontrol", "release", found.address)
            found, known, parts = replace(found, priority=FIRST), self._seen.job(known.key), []
        self._write(found, known, new if known.is_managed or new != record else None, *parts, *place)
        if found.is_stopped and not found.is_held_by_people:
            self._commands.ask("scontrol", "release", found.address)
        kept = self._seen.job(known.key).let_go(begin_s, is_held=found.is_held_by_people)
        self._seen.keep(replace(kept, comment=comment) if comment != known.comment else kept)

    def _check_let_go(self, found: Standing, record: JobRecord) -> None:
        """Raises Unavailable if slurmctld came back between our commands without what it had been told: a job
        without a priority is ours to release as long as its record says so."""
        if found.is_stopped and (record.is_stopped or record.is_suspended):
            self._write(found, self._seen.job(found.key), record)
            raise Unavailable(f"slurmctld has forgotten that job {found.key} was released")

    def _end_run(
        self, found: Standing, known: SlurmJob, record: JobRecord, parts: tuple[str, ...], *command: str
    ) -> None:
        """A command that ends a run, and what is known of the job then: written before it, if we die, and
        once more after it, if slurmctld came back without that."""
        self._write(found, known, record, *parts)
        try:
            self._commands.ask(*command)
        except Refused:
            self._write(found, self._seen.job(known.key), known.record)
            raise
        with suppress(Refused):
            self._write(found, self._seen.job(known.key), record)

    def _write(self, found: Standing, known: SlurmJob, record: JobRecord | None, *parts: str) -> None:
        """One update, so that nobody sees the half of it."""
        changes = list(parts)
        if record is not None:
            check_as_seen(found, known.state, record)
            changes.append(f"AdminComment={comment_of(record)}")
            has_comment = any(each.startswith("Comment=") for each in parts)
            if record_carried(known.comment) is not None and not has_comment:
                changes.append("Comment=")
                known = replace(known, comment="")
            known = replace(known, record=record, is_managed=True)
        self._commands.ask("scontrol", "update", f"JobId={found.address}", *changes)
        self._seen.keep(known)
