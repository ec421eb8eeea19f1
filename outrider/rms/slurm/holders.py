"""Jobs whose running machines go to other nodes: each in a holder job of its owner's, which stands for it.

Slurm has no way to give a batch job another node while it runs. So a holder job of the same user, with the
same size, the same account or the one that the site names, and the time that is left, takes room over there
and receives the machine (`cachemgr/machines/batch/steps/holding.py`); the job itself goes back to the queue,
held. Its record names
the holder, and while that has the machine everything that is asked for the job is asked of the holder. When
the machine is over the job is there again as one that waits: its next run ends at once, as the machine did.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from cachemgr.machines.batch.steps.marks import HAS, HOLDER_NAME, READY, WAITS
from outrider.core.model import Resources
from outrider.metadata.errors import TextError
from outrider.metadata.notation.hostlists import expand
from outrider.rms.base import JobUse, Landing, Refused, Submission, Unavailable, Unknown
from outrider.rms.holders import PROGRAM, SUBMITTED_S, HolderJob, MovingJob, land, word_of
from outrider.rms.saved import saved_again
from outrider.rms.slurm.asking import Standing, check_run, standing, use_of
from outrider.rms.slurm.fields import BadField
from outrider.rms.slurm.handing import arguments, key_in, record_for, script_of
from outrider.rms.slurm.jobs import OVER, WAITING, SlurmJob
from outrider.rms.slurm.records import JobRecord
from outrider.rms.slurm.system import FIRST, SAVING, SlurmSystem

FORMAT = "%A|%T|%U|%V|%N|%n|%j"


class SlurmHolders(SlurmSystem):
    """Slurm, with machines that go to other nodes alive."""

    def land(self, wanted: Landing) -> bool:
        with self._guard:
            found, known = standing(self._commands, wanted.job), self._seen.job(wanted.job)
            if found.is_over:
                return False
            source, target = self._held(wanted.job), self._holder(known, known.record.next_holder)
            job = MovingJob(
                key=known.key,
                is_waiting=found.is_waiting,
                is_suspended=known.record.is_suspended,
                has_landed=bool(known.record.holder),
                memory_bytes=known.resources["memory_mib"] << 20,
            )
            steps = _Steps(self, found, known, wanted, source)
            return land(job, source, target, wanted, steps, self._clock.now_s())

    def _has_landed(self, found: Standing, known: SlurmJob, target: HolderJob) -> None:
        changed = replace(known.record, holder=target.key, next_holder="", is_suspended=False, saved=None)
        record = replace(changed, is_held=True, is_stopped=True)
        self._write(found, known, record.said(f"outrider: its machine runs in job {target.key}"))
        self._keep_output(found)

    def _keep_output(self, found: Standing) -> None:
        """Its next run, which only ends, would empty its output; one that does more opens that by itself."""
        try:
            self._commands.ask("scontrol", "update", f"JobId={found.address}", "StdOut=/dev/null")
        except Refused as error:
            self._log.warning("output of a job is not kept", job=found.key, words=str(error))

    def _begun(self, found: Standing, known: SlurmJob, wanted: Landing, source: HolderJob | None) -> bool:
        if known.array or known.nodes_wanted != 1 or known.reservation or not wanted.metadata:
            return False
        runs = found if source is None else standing(self._commands, source.key)
        run = check_run(self._commands, runs, wanted.start_s)
        limit_s = known.limit_s
        left_s = None if limit_s is None else max(60, run.start_s + limit_s - self._clock.now_s())
        shown = self._commands.ask("scontrol", "show", "job", runs.key).decode("utf-8", "replace")
        places = _places(shown)
        if places is None:
            return False
        try:
            key = self._waiting_holder(known) or self._submitted(known, places, wanted, left_s)
        except Refused as error:
            self._log.warning("no holder job", job=known.key, words=str(error))
            return False
        self._write(found, known, replace(known.record, next_holder=key))
        raise Unavailable(f"the holder job {key} waits for room on {wanted.node}")

    def _submitted(self, known: SlurmJob, places: list[str], wanted: Landing, left_s: int | None) -> str:
        """A holder job is handed over as any job with an image: it waits until that is on its node."""
        account = self._account_of(known.user, known.uid)
        submission = Submission(
            user=known.user,
            uid=known.uid,
            argv=(PROGRAM, "hold", known.key, str(wanted.rate_bytes_per_s)),
            nodes_wanted=1,
            resources=Resources(known.resources.amounts),
            limit_s=left_s,
            metadata=wanted.metadata,
            account=wanted.account or known.account,
        )
        argv = [
            *arguments(submission, record_for(submission), self._clock.now_s(), account.home),
            "--no-requeue",
            "--open-mode=append",
            f"--job-name={HOLDER_NAME.format(WAITS, known.key)}",
            f"--nodelist={wanted.node}",
            *([f"--partition={known.partitions[0]}"] if known.partitions else []),
            *places,
        ]
        printed = self._commands.ask_as(account, *argv, text=script_of(submission), timeout_s=SUBMITTED_S)
        key = key_in(printed)
        self.settle(submission, key)
        return key

    def _waiting_holder(self, known: SlurmJob) -> str:
        """One that an earlier service has submitted, and not noted."""
        names = ",".join(HOLDER_NAME.format(word, known.key) for word in (WAITS, READY))
        lines = self._commands.ask(
            "squeue", "--noheader", "--all", f"--user={known.uid}", f"--name={names}", "--format=%A"
        )
        return next(iter(lines.decode("ascii", "replace").split()), "")

    def _holder(self, known: SlurmJob, key: str) -> HolderJob | None:
        """The holder job of that number, also if it has just ended; None if there is no number."""
        if not key.isdecimal():
            return None
        try:
            lines = self._commands.ask(
                "squeue", "--noheader", "--states=all", f"--jobs={key}", f"--format={FORMAT}"
            ).decode("utf-8", "replace")
        except Unknown:
            lines = ""
        for line in lines.splitlines():
            number, state, uid, submitted, nodes, wanted, name = line.split("|", 6)
            if number == key and uid == str(known.uid):
                return HolderJob(
                    key=key,
                    word=word_of(name, known.key),
                    submitted_s=int(submitted),
                    nodes=_expanded(nodes or wanted),
                    is_over=state in OVER,
                    is_waiting=state in WAITING,
                )
        return HolderJob(key=key, word="", submitted_s=0, nodes=(), is_over=True)

    def _held(self, job: str) -> HolderJob | None:
        """The holder that has a job's machine."""
        known = self._seen.job(job)
        found = self._holder(known, known.record.holder)
        is_there = found is not None and found.word == HAS and not found.is_over
        return found if is_there else None

    def save(self, job: str, start_s: int, reason: str, *, is_kept: bool = False) -> None:
        with self._guard:
            holder = self._held(job)
            if holder is None:
                super().save(job, start_s, reason, is_kept=is_kept)
                return
            found, known = self._standing(job), self._seen.job(job)
            its = standing(self._commands, holder.key)
            run = check_run(self._commands, its, start_s)
            saved = saved_again(
                known.record.saved, ",".join(holder.nodes), known.limit_s, run.start_s, self._clock.now_s()
            )
            self._write(
                found, known, _gone_back(known.record.said(reason), is_suspended=is_kept, saved=saved)
            )
            self._tell(SAVING, holder.key)

    def signal(self, job: str, name: str, start_s: int) -> None:
        with self._guard:
            holder = self._held(job)
            if holder is None:
                super().signal(job, name, start_s)
                return
            check_run(self._commands, standing(self._commands, holder.key), start_s)
            self._tell(name, holder.key)

    def requeue(self, job: str, start_s: int, reason: str) -> None:
        with self._guard:
            holder = self._held(job)
            if holder is None:
                super().requeue(job, start_s, reason)
                return
            found, known = self._standing(job), self._seen.job(job)
            check_run(self._commands, standing(self._commands, holder.key), start_s)
            self._write(found, known, _gone_back(known.record.said(reason), is_suspended=False, saved=None))
            self._cancel(holder.key)

    def release(self, job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> None:
        with self._guard:
            holder = self._held(job)
            if holder is not None:
                raise Refused(f"job {job} runs on {', '.join(holder.nodes)}, in its holder job {holder.key}")
            super().release(job, nodes, ticket)

    def resume(self, job: str) -> None:
        with self._guard:
            if self._held(job) is None:
                super().resume(job)

    def use_of(self, job: str) -> JobUse:
        with self._guard:
            return use_of(self._commands, job)

    def cancel(self, job: str, reason: str) -> None:
        with self._guard:
            with suppress(Unknown):
                known = self._seen.job(job)
                for key in (known.record.next_holder, known.record.holder):
                    holder = self._holder(known, key)
                    if holder is not None and not holder.is_over and holder.word:
                        self._cancel(holder.key)
            super().cancel(job, reason)

    def _tell(self, signal: str, holder: str) -> None:
        """It may have ended since it was looked at, as it does when its machine has gone to the next one."""
        try:
            self._commands.ask("scancel", "--batch", f"--signal={signal}", holder)
        except Unknown as error:
            raise Unavailable(f"the holder job {holder} has just ended") from error

    def _cancel(self, holder: str) -> None:
        with suppress(Unknown):
            self._commands.ask("scancel", holder)


@dataclass(frozen=True, slots=True)
class _Steps:
    """What is asked of Slurm for one job that moves."""

    system: SlurmHolders
    found: Standing
    known: SlurmJob
    wanted: Landing
    source: HolderJob | None

    def landed(self, target: HolderJob) -> None:
        self.system._has_landed(self.found, self.known, target)

    def forget(self) -> None:
        self.system._write(self.found, self.known, replace(self.known.record, next_holder=""))

    def end(self, holder: HolderJob) -> None:
        self.system._cancel(holder.key)

    def leave(self) -> None:
        self.system.save(self.wanted.job, self.wanted.start_s, self.wanted.reason, is_kept=True)

    def put_first(self, target: HolderJob) -> None:
        # Refused as long as it is held, until its image is there.
        with suppress(Refused):
            self.system._commands.ask("scontrol", "update", f"JobId={target.key}", f"Priority={FIRST}")

    def begin(self) -> bool:
        return self.system._begun(self.found, self.known, self.wanted, self.source)


def _gone_back(record: JobRecord, **changes: object) -> JobRecord:
    """Of a job that waits again once its holder has ended."""
    return replace(record, is_held=True, is_stopped=True, **changes)  # type: ignore[arg-type]


def _places(shown: str) -> list[str] | None:
    """The options by which a job has the folder and the output of another, as Slurm shows that. None of one
    whose errors go elsewhere: Slurm would empty that file at its next run."""
    found = dict(line.strip().partition("=")[::2] for line in shown.splitlines())
    folder, output, errors = (found.get(name, "") for name in ("WorkDir", "StdOut", "StdErr"))
    if not folder.startswith("/") or not output.startswith("/") or errors != output:
        return None
    path = output.replace("%", "%%")
    qos = next((word for word in shown.split() if word.startswith("QOS=")), "")
    named = [f"--qos={qos[4:]}"] if qos and not qos.startswith("QOS=(") else []
    return [f"--chdir={folder}", f"--output={path}", f"--error={path}", *named]


def _expanded(nodes: str) -> tuple[str, ...]:
    try:
        return expand(nodes) if nodes and not nodes.startswith("(") else ()
    except TextError as error:
        raise BadField(f"squeue printed the nodes {nodes[:60]!r}: {error}") from error
