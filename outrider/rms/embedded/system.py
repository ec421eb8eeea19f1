"""The embedded batch system: each call lets the twin's world catch up, and the machine follow.

What a call changes is in the journal before it returns. Between calls, `tick` lets time pass.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cachemgr.base.clock import Clock
from outrider.core.model import Resources
from outrider.rms.base import (
    NOTHING,
    JobState,
    JobUse,
    Landing,
    NodeState,
    Refused,
    RmsJob,
    RmsNode,
    RmsReservation,
    Sight,
    Submission,
    Unavailable,
)
from outrider.rms.embedded import journal
from outrider.rms.embedded.journal import JournalContent, JournaledRun, JournalError
from outrider.rms.embedded.landing import LandingMachines
from outrider.rms.embedded.launching import Command, Launcher
from outrider.rms.embedded.machines import KILL_S, SAVE_S, SAVED_WITHIN_S, JobMachines
from outrider.rms.embedded.runs import JobRun, Runs
from outrider.rms.twin import Hooks, Outside, Twin, TwinRules
from outrider.rms.twin.asking import check_nodes
from outrider.rms.twin.jobs import OCCUPYING, Holder, TwinJob
from outrider.rms.twin.rules import Epilog, Prolog, go_on, pass_by

RULES = TwinRules(kill_s=2, saves_machines=False)
"""A job that has to go is told, and killed two seconds later; jobs have no machines."""
MACHINE_RULES = replace(
    RULES, saves_machines=True, moves_machines=True, machine_save_s=SAVE_S, machine_kill_s=KILL_S
)
"""They may have. All nodes are on one machine, so that a saved one can continue on each."""
TICK_S = 1.0
TICKS_TO_DISCARD = 5
"""Every so many it is looked for machines of jobs that are gone."""
MOST_JOBS = 10_000
MOST_JOBS_OF_ONE = 1_000
MOST_BYTES_OF_ONE = 4 << 20
"""Of one user's jobs in the journal, which is written whole at every change."""
MOST_RESERVATIONS = 10_000
MOST_METADATA = 65_536
GONE = "its command was gone when the service came back"


class JobLog(Protocol):
    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...


def no_image(job: RmsJob) -> str:
    """A job that is told of no image."""
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedHooks:
    """What happens on the nodes. `image_of` gives what a job finds in OUTRIDER_IMAGE.

    They are called with the batch system standing still, so they have to be quick. An epilog
    comes when the job's command is over; of a suspended job, which needs its instance still, none.
    """

    prolog: Prolog = go_on
    epilog: Epilog = pass_by
    image_of: Callable[[RmsJob], str] = no_image


class EmbeddedSystem:
    """A BatchSystem of virtual nodes on this machine. Any thread may call."""

    def __init__(
        self,
        nodes: Iterable[RmsNode],
        path: Path,
        *,
        clock: Clock,
        launcher: Launcher,
        log: JobLog,
        hooks: EmbeddedHooks | None = None,
        machines: JobMachines | None = None,
        jobs_on_a_processor: int = 1,
    ) -> None:
        """Without `machines` no job runs in a virtual one."""
        self._path = path
        self._clock = clock
        self._launcher = launcher
        self._log = log
        self._hooks = hooks or EmbeddedHooks()
        self._guard = threading.RLock()
        self._written = b""
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._tick_on, name="embedded batch system", daemon=True)
        self._machines = machines
        self._left: frozenset[str] = frozenset()
        """Jobs that are gone, and whose machines could not be removed."""
        rules = replace(RULES if machines is None else MACHINE_RULES, jobs_on_a_processor=jobs_on_a_processor)
        twin_hooks = Hooks(prolog=self._hooks.prolog, epilog=self._epilog, work_s=lambda submission: None)
        self._twin = Twin(nodes, clock=clock, rules=rules, hooks=twin_hooks)
        self._world = self._twin.world
        self._landing = (
            None if machines is None else LandingMachines(self._world, machines, self, self._follow)
        )
        self._runs = Runs(launcher, self._command_of, self._fail)
        self._restore()

    @property
    def name(self) -> str:
        return "embedded"

    @property
    def outside(self) -> Outside:
        """What users and administrators do to it; `tick` follows."""
        return self._twin.outside

    def start(self) -> None:
        """Let time pass from now on, until `stop`."""
        self._thread.start()

    def stop(self, *, ends_jobs: bool = False) -> None:
        """Commands go on and are found again by the next service, or all end."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._guard:
            if ends_jobs:
                for job in self._world.all_jobs():
                    if job.state in OCCUPYING or job.key in self._runs.all:
                        self._world.end(job, "the service was stopped")
                self._runs.end_all()
                self._write()
            self._runs.leave_all()

    def tick(self) -> None:
        """Let what has become due happen, and follow what commands have done."""
        with self._guard:
            self._settle()

    def discard_left(self) -> None:
        """Remove the saved machines of jobs that are gone. It takes its time, and nobody waits for it."""
        if self._machines is None:
            return
        with self._guard:
            jobs = {*self._world.jobs, *self._runs.all}
        left = frozenset(self._machines.discard_others(jobs))
        for job in sorted(left - self._left):
            self._log.warning("machine of a job that is gone not removed", job=job)
        self._left = left

    def look(self) -> Sight:
        with self._call():
            sight, jobs = self._twin.look(), self._world.jobs
            machines = {key for key, job in jobs.items() if job.submission.machine}
            return replace(
                sight, jobs=tuple(_shown(job, is_machine=job.key in machines) for job in sight.jobs)
            )

    def shares(self) -> dict[str, int]:
        # Nobody keeps account of what its users have had.
        return {}

    def silent(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        # Its nodes have no daemon but this very process.
        return ()

    def reserve(self, wanted: RmsReservation) -> None:
        with self._call():
            known = self._world.reservations
            if wanted.name not in known and len(known) >= MOST_RESERVATIONS:
                raise Refused(f"there are {len(known)} reservations: this batch system keeps no more")
            self._twin.reserve(wanted)

    def unreserve(self, name: str) -> None:
        with self._call():
            self._twin.unreserve(name)

    def bind(self, job: str, reservation: str | None, limit_s: int | None = None) -> None:
        with self._call():
            self._twin.bind(job, reservation, limit_s)

    def hold(self, job: str, reason: str) -> None:
        with self._call():
            self._twin.hold(job, reason)

    def release(self, job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> None:
        with self._call():
            self._twin.release(job, nodes, ticket)

    def resize(
        self, job: str, nodes_wanted: int, limit_s: int, each: Resources = NOTHING, option: int = 0
    ) -> None:
        with self._call():
            self._twin.resize(job, nodes_wanted, limit_s, each, option)

    def note(self, job: str, text: str, start_s: int | None = None) -> None:
        with self._call():
            self._twin.note(job, text, start_s)

    def ticket(self, job: str, text: str) -> None:
        with self._call():
            self._twin.ticket(job, text)

    def suspend(self, job: str) -> None:
        with self._call():
            self._twin.suspend(job)

    def resume(self, job: str) -> None:
        with self._call():
            self._twin.resume(job)

    def signal(self, job: str, name: str, start_s: int) -> None:
        with self._call():
            self._twin.signal(job, name, start_s)
            self._runs.signal(job, name)

    def requeue(self, job: str, start_s: int, reason: str) -> None:
        with self._call():
            self._twin.requeue(job, start_s, reason)

    def save(self, job: str, start_s: int, reason: str, *, is_kept: bool = False) -> None:
        with self._call():
            found = self._world.jobs.get(job)
            if found is not None and not found.submission.machine:
                raise Refused(f"job {job} cannot be saved: it runs in no virtual machine")
            self._twin.save(job, start_s, reason, is_kept=is_kept)

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> None:
        with self._call():
            self._twin.move(job, nodes, goes_first=goes_first)

    def land(self, wanted: Landing) -> bool:
        with self._call():
            run = self._runs.all.get(wanted.job)
            if self._landing is None or run is None or not run.is_machine or run.is_saving:
                return False
            return self._landing.land(wanted)

    def drain(self, nodes: Sequence[str], *, is_ended: bool) -> None:
        with self._call():
            check_nodes(self._world, nodes)
            for node in nodes:
                (self.outside.repair if is_ended else self.outside.drain)(node)

    def prepare(self, job: RmsJob, node: str) -> str | None:
        """Of `NodeHooks`."""
        return None if self._hooks.prolog(job, node) is not None else self._hooks.image_of(job)

    def clear(self, job: RmsJob, node: str) -> None:
        self._hooks.epilog(job, node)

    def use_of(self, job: str) -> JobUse:
        raise Refused(f"job {job} is no holder job: there are none here")

    def cancel(self, job: str, reason: str) -> None:
        with self._call():
            self._twin.cancel(job, reason)

    def submit(self, submission: Submission) -> str:
        with self._call():
            self._check(submission)
            return self._twin.submit(submission)

    def _check(self, submission: Submission) -> None:
        if len(self._world.jobs) >= MOST_JOBS:
            raise Refused(
                f"there are {len(self._world.jobs)} jobs: cancel some, or wait until some have ended"
            )
        if submission.machine and self._machines is None:
            raise Refused("no job runs in a virtual machine here: jobs.machines is not set in outriderd.yaml")
        if submission.machine and self._machines is not None:
            reason = self._machines.refusal(submission)
            if reason is not None:
                raise Refused(reason)
        if submission.metadata is not None and len(submission.metadata) > MOST_METADATA:
            raise Refused(f"a job's metadata have at most {MOST_METADATA} characters")
        self._check_share(submission)
        reason = self._launcher.refusal(submission)
        if reason is not None:
            raise Refused(f"the job cannot be run: {reason}")

    def _check_share(self, submission: Submission) -> None:
        """No user fills the journal, without which the service does not start again."""
        own = [job.submission for job in self._world.jobs.values() if job.submission.uid == submission.uid]
        if len(own) >= MOST_JOBS_OF_ONE:
            raise Refused(f"you have {len(own)} jobs, the most that one user may have: wait until some ended")
        if sum(map(journal.size_of, [*own, submission])) > MOST_BYTES_OF_ONE:
            raise Refused(
                f"your jobs' commands and metadata have more than {MOST_BYTES_OF_ONE} bytes: put long ones "
                "into a file, or wait until some jobs have ended"
            )
        if len(self._written) + journal.size_of(submission) > journal.MOST_BYTES // 2:
            raise Refused("there are too many jobs with long commands: wait until some have ended")

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self._guard:
            self._settle()
            yield
            self._follow()

    def _settle(self) -> None:
        """Commands that have ended end their jobs; then time passes; then commands follow."""
        for key in self._runs.over():
            job = self._world.jobs.get(key)
            if job is None:
                continue
            if job.state is JobState.RUNNING and job.leaving is None:
                # Its work has taken as long as it has: the world ends it as done.
                job.work_s = 0
            elif job.state is JobState.RUNNING and job.leaving is not None and job.submission.machine:
                # Its machine is saved, or gone.
                job.leaving = replace(job.leaving, at_s=self._world.now_s)
            elif job.state not in OCCUPYING:
                self._world.end(job, "its command ended while it was suspended")
        self._give_up_saving()
        self._twin.advance(self._clock.now_s())
        self._follow()

    def _give_up_saving(self) -> None:
        """Let jobs go on whose machines could not be saved: a job that is about to leave has no limit."""
        now_s = self._clock.now_s()
        for job in self._world.all_jobs():
            leaving = job.leaving
            if leaving is None or leaving.kept_s is None or not job.submission.machine:
                continue
            # Of one that is saved the time has come.
            is_late = now_s < leaving.at_s < now_s + SAVE_S - SAVED_WITHIN_S
            if is_late and job.key in self._runs.all:
                job.leaving, job.saved_nodes = None, ()
                job.holders.discard(Holder.OURS)
                self._runs.all[job.key].is_saving = False
                self._log.warning("machine could not be saved", job=job.key)

    def _follow(self) -> None:
        self._runs.follow(self._world.jobs)
        try:
            self._write()
        except OSError as error:
            raise Unavailable(
                f"the embedded batch system cannot write {self._path} ({error.strerror}): make room, and ask "
                "again"
            ) from error
        self._runs.begin()
        self._runs.save(self._world.jobs)

    def _write(self) -> None:
        """The journal, if anything has changed."""
        world = self._world
        data = journal.encode(
            JournalContent(
                jobs=tuple(world.all_jobs()),
                ended=world.ended,
                reservations=tuple(world.all_reservations()),
                nodes={name: node.state for name, node in world.nodes.items()},
                runs={key: _kept(run) for key, run in self._runs.all.items()},
                last_number=world.last_number,
            )
        )
        if data != self._written:
            journal.write(self._path, data)
            self._written = data

    def _restore(self) -> None:
        kept = journal.read(self._path)
        if kept is None:
            return
        world = self._world
        named = {name for job in kept.jobs for name in job.nodes}
        named |= {name for reservation in kept.reservations for name in reservation.nodes}
        unknown = sorted(named - set(world.nodes))
        if unknown:
            raise JournalError(
                f"the journal {self._path} has jobs or reservations on {', '.join(unknown)}, of which the "
                "configuration says nothing: name these nodes, or move the journal away"
            )
        world.restore(
            jobs=kept.jobs,
            ended=dict(kept.ended),
            reservations=kept.reservations,
            last_number=kept.last_number,
        )
        for name, state in kept.nodes.items():
            if name in world.nodes and state is not NodeState.UP:
                world.set_node(name, state, "as it was before the service was started")
        for key, run in kept.runs.items():
            self._adopt(key, run)

    def _adopt(self, key: str, kept: JournaledRun) -> None:
        """Find a command again. One that is gone has ended its job, however far it came."""
        handle = self._launcher.adopt(kept.identity)
        job = self._world.jobs.get(key)
        if handle is not None:
            self._runs.all[key] = JobRun(
                handle,
                kept.start_s,
                is_machine=job is None or bool(job.submission.machine),
                is_begun=kept.is_begun,
                is_stopped=kept.is_stopped,
            )
        elif job is not None and job.submission.machine and job.leaving is not None:
            # Its machine was saved, or ended, while no service was there.
            job.leaving = replace(job.leaving, at_s=self._world.now_s)
        elif job is not None:
            self._log.warning("command is gone", job=key, has_begun=kept.is_begun)
            self._fail(job, GONE)

    def _command_of(self, job: TwinJob) -> Command:
        seen = job.seen()
        variables = {"OUTRIDER_JOB": job.key, "OUTRIDER_NODES": ",".join(job.nodes)}
        if job.reservation is not None:
            variables["OUTRIDER_RESERVATION"] = job.reservation
        image = self._hooks.image_of(seen)
        if image:
            variables["OUTRIDER_IMAGE"] = image
        asked = job.submission
        command = Command(
            job=job.key, uid=seen.uid, argv=asked.argv, variables=variables, folder=asked.folder
        )
        if not asked.machine or self._machines is None:
            return command
        return self._machines.wrapped(job, command)

    def _epilog(self, job: RmsJob, node: str) -> None:
        now = self._world.jobs.get(job.key)
        state = None if now is None else now.state
        run = self._runs.all.get(job.key)
        is_machine = run is not None and run.is_machine
        if self._landing is not None:
            self._landing.clear(job)
        self._runs.off_nodes(job.key, state)
        if is_machine and self._machines is not None and not self._machines.tidy(job.key, job.uid):
            self._log.warning("machine not tidied", job=job.key)
        if state is not JobState.SUSPENDED or is_machine:
            self._hooks.epilog(job, node)

    def _fail(self, job: TwinJob, why: str) -> None:
        self._log.warning("job cannot go on", job=job.key, reason=why)
        self._world.end(job, why)

    def _tick_on(self) -> None:
        count = 0
        while not self._is_stopping.wait(TICK_S):
            try:
                self.tick()
                if (count := count + 1) % TICKS_TO_DISCARD == 0:
                    self.discard_left()
            except Unavailable as error:
                self._log.warning("journal not written", reason=str(error))
            except Exception:  # noqa: BLE001 - a thread's outermost loop: a hook's fault must not stop time
                self._log.warning("tick failed", traceback=traceback.format_exc())


def _shown(job: RmsJob, *, is_machine: bool) -> RmsJob:
    return job if is_machine else replace(job, can_save=False, saved_on=(), elsewhere=())


def _kept(run: JobRun) -> JournaledRun:
    return JournaledRun(
        identity=run.handle.identity,
        start_s=run.start_s,
        is_begun=run.is_begun,
        is_stopped=run.is_stopped,
    )
