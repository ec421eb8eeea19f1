"""Hands one job to the batch system: noted before, noted after, and never twice under one key.

It runs in a thread for submissions, since its user can make the command last that hands it over. It may wait
for the thread that asks the batch system, and for the desk, which keeps the notes: neither waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

from outrider.core.model import Resources
from outrider.rms.base import BatchSystem, Refused, RmsError, Submission, SubmitsByCommand
from outrider.service.answers.jobs import Handover
from outrider.service.answers.reply import Trouble
from outrider.service.daemon.log import TracingLog
from outrider.service.daemon.threads.loop import Loop
from outrider.service.daemon.threads.workers import OnBatchSystem
from outrider.service.desk.batch.submissions import tag_of
from outrider.service.front import QEMU_MIB, Busy, NotDone, Submit
from outrider.service.requests import BeginSubmission, Caller, EndSubmission

NOTE_S = 20.0
"""How long the desk is waited for."""


class JobHandover:
    """One submission of one caller."""

    def __init__(self, loop: Loop[Any], log: TracingLog, caller: Caller, submission: Submit) -> None:
        self._loop = loop
        self._log = log
        self._caller = caller
        self._key = submission.key
        self._hash = submission.request_hash
        self._wanted = _submission(caller, submission)

    def hand_over(self, on_rms: OnBatchSystem) -> str:
        """The job's key. Raises NotDone."""
        if not self._key:
            return self._submit(on_rms)
        known = self._ask(BeginSubmission(key=self._key, request_hash=self._hash))
        if not known.is_new:
            return known.job or on_rms(self._found)
        try:
            job = self._submit(on_rms)
        except NotDone as error:
            if error.trouble.code == "invalid":
                self._note("")
            raise
        self._note(job)
        return job

    def _submit(self, on_rms: OnBatchSystem) -> str:
        try:
            begun = on_rms(self._begun)
            if isinstance(begun, str):
                return begun
            job = begun()
        except Refused as error:
            raise NotDone(Trouble(code="invalid", message=str(error))) from error
        except RmsError as error:
            raise NotDone(Trouble(code="unavailable", message=str(error))) from error
        try:
            on_rms(lambda rms: self._settle(rms, job))
        except (NotDone, RmsError) as error:
            # It is there all the same.
            self._log.warning("job not settled", job=job, user=self._caller.user, words=str(error))
        return job

    def _begun(self, rms: BatchSystem) -> str | Callable[[], str]:
        """The job's key, or what hands it over in its user's name."""
        if isinstance(rms, SubmitsByCommand):
            return rms.prepare(self._wanted)
        return rms.submit(self._wanted)

    def _settle(self, rms: BatchSystem, job: str) -> None:
        assert isinstance(rms, SubmitsByCommand)
        rms.settle(self._wanted, job)

    def _found(self, rms: BatchSystem) -> str:
        """The job of a submission that was begun, and of which no end is known."""
        try:
            jobs = rms.look().jobs
        except RmsError as error:
            raise NotDone(Trouble(code="unavailable", message=str(error))) from error
        # A tag may stand where its user can write, so it counts for the user's own jobs alone.
        own = (job.key for job in jobs if job.tag == self._wanted.tag and job.uid == self._wanted.uid)
        found = next(own, None)
        if found is None:
            words = (
                "this job was about to be handed over when something failed, and no such job is there now: "
                "it has ended, or never was. See what it has done, and submit it again if it has to run"
            )
            raise NotDone(Trouble(code="conflict", message=words))
        self._log.info("job found again", job=found, user=self._caller.user)
        self._note(found)
        return found

    def _note(self, job: str) -> None:
        """What is not noted is looked for when it is asked for again: the answer is true all the same."""
        try:
            self._ask(EndSubmission(key=self._key, request_hash=self._hash, job=job))
        except NotDone as error:
            self._log.warning("job not noted", job=job or None, user=self._caller.user, words=str(error))

    def _ask(self, request: BeginSubmission | EndSubmission) -> Handover:
        try:
            answer = self._loop.ask(self._caller, request).result(NOTE_S)
        except Busy as error:
            raise NotDone(Trouble(code="busy", message=str(error))) from error
        except (TimeoutError, CancelledError) as error:
            words = "the service could not note the job down in time: ask again with the same key"
            raise NotDone(Trouble(code="unavailable", message=words)) from error
        if isinstance(answer, Trouble):
            raise NotDone(answer)
        if not isinstance(answer, Handover):
            raise TypeError(f"{type(request).__name__} was answered with a {type(answer).__name__}")
        return answer


def _submission(caller: Caller, submission: Submit) -> Submission:
    """A job as the batch system is asked for it. Without a workspace it wants one processor a node."""
    deployment = submission.workspace.deployment if submission.workspace is not None else None
    amounts = {"cpus": 1}
    if deployment is not None:
        each = deployment.instances_per_node
        amounts = {"cpus": deployment.cpus * each, "gpus": deployment.gpus * each}
        if deployment.memory_mib is not None:
            amounts["memory_mib"] = deployment.memory_mib * each + (QEMU_MIB if submission.machine else 0)
    return Submission(
        user=caller.user,
        uid=caller.uid,
        argv=submission.argv,
        nodes_wanted=submission.nodes,
        resources=Resources.from_mapping(amounts),
        limit_s=submission.duration_s,
        metadata=submission.metadata,
        reservation=submission.reservation,
        tag=tag_of(caller.uid, submission.key) if submission.key else "",
        account=submission.account,
        machine=submission.machine,
        folder=submission.folder,
    )
