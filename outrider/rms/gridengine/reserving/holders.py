"""Jobs of Grid Engine whose running machines go to other nodes: each in a holder job of its owner's.

As on Slurm (`outrider/rms/holders.py`), with what Grid Engine has for it. A job's context names its holder,
which has the name by which it says how far it is, and a context that says for whom it is. There is no signal
for a job alone, so a holder has the checkpoint of machines' jobs: told to save its machine it goes back to
the queue, where it is deleted. Grid Engine kills without a word when a job's time is over, so a holder is
given some more than it is told to use. It opens its job's output itself, to which is added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from cachemgr.base.clock import WallClock
from cachemgr.machines.batch.steps.marks import HAS, HOLDER_NAME, WAITS
from outrider.rms.base import JobState, Landing, Refused, RmsJob, Sight, Unavailable, Unknown
from outrider.rms.commands import AccountOf, account_of
from outrider.rms.gridengine import context, seeing, submitting
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.mending import nobody
from outrider.rms.gridengine.parsing import Detail
from outrider.rms.gridengine.reserving.leading import FIRST
from outrider.rms.gridengine.settings import GridEngineSettings
from outrider.rms.gridengine.snapshot import Snapshot
from outrider.rms.gridengine.system import EXECD_PORT, MOST_ASKED, PATIENCE_S, GridEngine
from outrider.rms.holders import PROGRAM, SUBMITTED_S, HolderJob, MovingJob, land, word_of

KILLED_AFTER_S = 90
"""So much longer than its machine's time a holder may run: it ends the machine, which has 20 s for that."""
LEAST_S = 60
ORPHAN_S = 60
"""So long a holder whose job is gone may take to notice it: it asks every 30 s."""
WAITING = (JobState.HELD, JobState.PENDING, JobState.SUSPENDED)
NO_LIMIT = "INFINITY"


class GridEngineHolders(GridEngine):
    """Grid Engine, with machines that go to other nodes alive."""

    def __init__(
        self,
        settings: GridEngineSettings,
        commands: GridEngineCommands,
        *,
        clock: WallClock,
        account_of: AccountOf = account_of,
        shown: Collection[str] = (),
        execd_port: int = EXECD_PORT,
        warn: Callable[[str], None] = nobody,
    ) -> None:
        """`warn` is told why there is no holder job for a machine, which is saved then."""
        super().__init__(
            settings, commands, clock=clock, account_of=account_of, shown=shown, execd_port=execd_port
        )
        self._warn = warn
        self._orphans: dict[str, int] = {}
        """Since when holders have been seen whose jobs are gone."""

    def look(self) -> Sight:
        seen = super().look()
        snapshot = self._last
        if snapshot is not None and any(context.HOLDS in each.context for each in snapshot.details.values()):
            self._compare(snapshot)
        return seen

    def _compare(self, snapshot: Snapshot) -> None:
        """Note what has landed, and delete holders that hold nothing any more: those that have run and wait,
        and those whose jobs are gone. Of these one that runs notices it by itself, and leaves nothing."""
        jobs = {job.key: job for job in snapshot.sight.jobs}
        for number, detail in snapshot.details.items():
            meant, holder = context.holds(detail), jobs.get(number)
            if meant is None or holder is None:
                continue
            job, own = snapshot.details.get(meant[0]), jobs.get(meant[0])
            if number in snapshot.requeued or (job is None and self._is_late(number, holder)):
                self._delete(number)
            elif (
                job is not None
                and own is not None
                and job.uid == detail.uid
                and job.context.get(context.NEXT_HOLDER) == number
                and detail.name == HOLDER_NAME.format(HAS, meant[0])
                and own.state is JobState.RUNNING
                and own.nodes == holder.nodes
            ):
                with suppress(Unknown):
                    self._landed(job.number, number, holder.nodes)

    def _is_late(self, number: str, holder: RmsJob) -> bool:
        """Whether a holder whose job is gone does not notice that."""
        now_s = self._clock.now_s()
        self._orphans = dict(list(self._orphans.items())[-MOST_ASKED:])
        return not holder.nodes or now_s - self._orphans.setdefault(number, now_s) > ORPHAN_S

    def land(self, wanted: Landing) -> bool:
        snapshot = self._snapshot()
        found = {job.key: job for job in snapshot.sight.jobs}.get(wanted.job)
        detail = snapshot.details.get(wanted.job)
        if found is None or detail is None or not context.runs_in_machine(detail):
            return False
        source, target = _held(snapshot, detail), _holder(snapshot, detail, context.NEXT_HOLDER)
        job = MovingJob(
            key=found.key,
            is_waiting=found.key not in snapshot.placed,
            is_suspended=context.SAVED in detail.context,
            has_landed=context.HOLDER in detail.context,
            memory_bytes=context.machine_bytes(detail),
        )
        steps = _Steps(self, found, detail, wanted, snapshot)
        return land(job, source, target, wanted, steps, self._clock.now_s())

    def hold(self, job: str, reason: str) -> None:
        self._check_not_held(job)
        super().hold(job, reason)

    def release(self, job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> None:
        self._check_not_held(job)
        super().release(job, nodes, ticket)

    def resume(self, job: str) -> None:
        snapshot = self._snapshot_for(job)
        detail = snapshot.details.get(job)
        holder = None if detail is None else _held(snapshot, detail)
        if holder is None or detail is None:
            super().resume(job)
            return
        machine = context.saved_machine(detail)
        if context.SAVED not in detail.context or machine is None:
            return
        if self._clock.now_s() - machine.asked_s < PATIENCE_S:
            raise Unavailable(f"job {job} is still being saved: ask again")
        # It could not be saved.
        self._commands.attempt("qmod", "-usj", holder.key)
        self._commands.ask("qrls", "-h", "s", holder.key)
        self._commands.ask("qalter", "-dc", context.SAVED, "-dc", context.MACHINE, job)

    def requeue(self, job: str, start_s: int, reason: str) -> None:
        snapshot = self._snapshot_for(job)
        detail = snapshot.details.get(job)
        holder = None if detail is None else _held(snapshot, detail)
        if holder is None:
            super().requeue(job, start_s, reason)
            return
        found = self._job(snapshot, job)
        if found.start_s != start_s:
            raise Refused(f"job {job} runs since {found.start_s}, not since {start_s}: it has come back")
        self._alter(found, "-h", "s", "-ac", f"{context.NOTE}={context.shown(reason)}")
        self._delete(holder.key)

    def cancel(self, job: str, reason: str) -> None:
        with suppress(Unknown):
            detail = self._snapshot_for(job).details.get(job)
            if detail is not None:
                for word in (context.NEXT_HOLDER, context.HOLDER):
                    holder = _holder(self._snapshot_for(job), detail, word)
                    if holder is not None and not holder.is_over:
                        self._delete(holder.key)
        super().cancel(job, reason)

    def _snapshot_for(self, job: str) -> Snapshot:
        """Of one whose machine is in a holder, or goes to one, all: that one, too, is asked for."""
        found = super()._snapshot_for(job)
        if not _names_holder(found.details.get(job)):
            return found
        return found if len(found.details) > 1 else self._snapshot()

    def _told_to_save(self, job: str) -> None:
        snapshot = self._snapshot_for(job)
        detail = snapshot.details.get(job)
        holder = None if detail is None else _held(snapshot, detail)
        if holder is None:
            super()._told_to_save(job)
            return
        # It goes back to the queue then, and holds nothing there.
        self._commands.ask("qalter", "-h", "s", holder.key)
        super()._told_to_save(holder.key)

    def _check_not_held(self, job: str) -> None:
        if self._last is not None and not _names_holder(self._last.details.get(job)):
            return
        snapshot = self._snapshot_for(job)
        detail = snapshot.details.get(job)
        holder = None if detail is None else _held(snapshot, detail)
        if holder is not None:
            raise Refused(f"job {job} runs on {', '.join(holder.nodes)}, in its holder job {holder.key}")

    def _landed(self, job: str, holder: str, nodes: tuple[str, ...]) -> None:
        words = context.shown(f"outrider: its machine runs on {' '.join(nodes)} in job {holder}")
        gone = [
            word for name in (context.NEXT_HOLDER, context.SAVED, context.MACHINE) for word in ("-dc", name)
        ]
        noted = ["-ac", f"{context.HOLDER}={holder}", "-ac", f"{context.NOTE}={words}"]
        self._commands.ask("qalter", "-h", "s", *gone, *noted, job)

    def _delete(self, holder: str) -> None:
        with suppress(Unknown):
            self._commands.ask("qdel", holder)

    def _begun(self, found: RmsJob, detail: Detail, wanted: Landing, snapshot: Snapshot) -> bool:
        if found.tasks != 1 or found.nodes_wanted != 1 or found.reservation or not wanted.metadata:
            return False
        if found.state is not JobState.RUNNING or not found.can_save:
            return False
        if found.start_s != wanted.start_s:
            raise Refused(
                f"job {found.key} runs since {found.start_s}, not since {wanted.start_s}: it has come back"
            )
        left_s = 0
        if found.limit_s is not None:
            left_s = max(LEAST_S, wanted.start_s + found.limit_s - self._clock.now_s())
        elif self._has_limit(found.queue):
            # It would begin anew over there, and the job with it when a holder is killed by it.
            return False
        key = _waiting_holder(snapshot, detail)
        if not key:
            try:
                key = self._submitted(found, detail, wanted, left_s)
            except Refused as error:
                self._warn(f"no holder job for the machine of job {found.key}: {error}")
                return False
        self._commands.ask("qalter", "-ac", f"{context.NEXT_HOLDER}={key}", detail.number)
        raise Unavailable(f"the holder job {key} waits for room on {wanted.node}")

    def _submitted(self, found: RmsJob, detail: Detail, wanted: Landing, left_s: int) -> str:
        """A holder job is handed over as any job with an image: it waits until that is on its node."""
        account = self._account_of(found.user, found.uid)
        requests = dict(seeing.own_wishes(detail, self._settings).requests)
        argv = ["qsub", "-terse", "-r", "n", "-b", "y", "-shell", "n"]
        argv += ["-N", HOLDER_NAME.format(WAITS, found.key), "-j", "y", "-o", "/dev/null"]
        argv += ["-wd", detail.folder or account.home, "-q", f"{found.queue}@{wanted.node}"]
        if detail.environment:
            argv += ["-pe", detail.environment, str(detail.slots)]
        requests.pop("h_rt", None)
        if left_s:
            requests["h_rt"] = str(left_s + KILLED_AFTER_S)
        if requests:
            argv += ["-l", submitting.requests(requests)]
        argv += ["-ckpt", context.CHECKPOINT, *self._charged(detail, wanted.account)]
        argv += ["-ac", f"{context.METADATA}={context.encoded(wanted.metadata)}"]
        argv += ["-ac", f"{context.HOLDS}={found.key}:{left_s}:{wanted.node}"]
        argv += [PROGRAM, "hold", found.key, str(wanted.rate_bytes_per_s), *([str(left_s)] if left_s else [])]
        return self._commands.ask_as(account, *argv, timeout_s=SUBMITTED_S).decode().split()[-1]

    def _charged(self, job: Detail, account: str) -> list[str]:
        """To whom a holder is charged: as its job, or to the account that is named, which is a project where
        there is one of that name."""
        project = job.project
        if account:
            project = account if self._commands.attempt("qconf", "-sprj", account).code == 0 else ""
        text = account or job.account_text
        return [*(["-P", project] if project else []), *(["-A", text] if text else [])]

    def _has_limit(self, queue: str) -> bool:
        shown = self._commands.read("qconf", "-sq", queue)
        lines = [line.split() for line in shown.splitlines()]
        return any(words[1:] != [NO_LIMIT] for words in lines if words and words[0] in ("h_rt", "s_rt"))


@dataclass(frozen=True, slots=True)
class _Steps:
    """What is asked of Grid Engine for one job that moves."""

    system: GridEngineHolders
    found: RmsJob
    detail: Detail
    wanted: Landing
    snapshot: Snapshot

    def landed(self, target: HolderJob) -> None:
        self.system._landed(self.detail.number, target.key, target.nodes)

    def forget(self) -> None:
        self.system._commands.ask("qalter", "-dc", context.NEXT_HOLDER, self.detail.number)

    def end(self, holder: HolderJob) -> None:
        self.system._delete(holder.key)

    def leave(self) -> None:
        self.system.save(self.wanted.job, self.wanted.start_s, self.wanted.reason, is_kept=True)

    def put_first(self, target: HolderJob) -> None:
        if self.snapshot.details[target.key].priority < FIRST:
            self.system._commands.ask("qalter", "-p", str(FIRST), target.key)

    def begin(self) -> bool:
        return self.system._begun(self.found, self.detail, self.wanted, self.snapshot)


def _holder(snapshot: Snapshot, job: Detail, word: str) -> HolderJob | None:
    """The holder job that a job's context names, also if it has ended; None if none is named."""
    key = job.context.get(word, "")
    if not key.isdecimal():
        return None
    seen: Mapping[str, RmsJob] = {each.key: each for each in snapshot.sight.jobs}
    found = seeing.holder_of(job, key, seen, snapshot.details)
    if found is None or key in snapshot.requeued:
        return HolderJob(key=key, word="", submitted_s=0, nodes=(), is_over=True)
    detail = snapshot.details[key]
    meant = context.holds(detail)
    return HolderJob(
        key=key,
        word=word_of(detail.name, job.number),
        submitted_s=found.submitted_s,
        nodes=found.nodes or (() if meant is None else (meant[2],)),
        is_waiting=found.state in WAITING,
    )


def _names_holder(job: Detail | None) -> bool:
    return job is not None and bool({context.HOLDER, context.NEXT_HOLDER} & set(job.context))


def _held(snapshot: Snapshot, job: Detail) -> HolderJob | None:
    """The holder that has a job's machine."""
    found = _holder(snapshot, job, context.HOLDER)
    is_there = found is not None and found.word == HAS and not found.is_over and not found.is_waiting
    return found if is_there else None


def _waiting_holder(snapshot: Snapshot, job: Detail) -> str:
    """One that an earlier service has submitted, and not noted."""
    for number, detail in snapshot.details.items():
        meant = context.holds(detail)
        is_meant = meant is not None and meant[0] == job.number and detail.uid == job.uid
        is_new = number not in (job.context.get(context.HOLDER), *snapshot.requeued)
        if is_meant and is_new and word_of(detail.name, job.number) not in ("", HAS):
            return number
    return ""
