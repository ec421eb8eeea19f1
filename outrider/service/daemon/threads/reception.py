"""What stands between the API and everything behind it: each question goes to who can answer it."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

from outrider.metadata.errors import MetadataError
from outrider.metadata.notation.hostlists import fold
from outrider.rms.base import BatchSystem, DrainsNodes, RmsError, Unknown
from outrider.service.answers.reply import Answer, Trouble
from outrider.service.answers.site import ShareList
from outrider.service.daemon.configuration.model import Config
from outrider.service.daemon.configuration.policies import PolicyBook
from outrider.service.daemon.log import TracingLog
from outrider.service.daemon.measures.health import judge
from outrider.service.daemon.measures.metrics import Metrics
from outrider.service.daemon.measures.recent import RecentRequests
from outrider.service.daemon.measures.sharing import ShareBook
from outrider.service.daemon.threads.backups import copy_asked_for
from outrider.service.daemon.threads.job_handover import JobHandover
from outrider.service.daemon.threads.loop import Loop
from outrider.service.daemon.threads.workers import Workers
from outrider.service.front import (
    BackedUp,
    Configuration,
    Health,
    NotDone,
    Reloaded,
    Submit,
    WantedShares,
)
from outrider.service.ports import FoundImage, ImageClaim, LoginBook
from outrider.service.requests import Caller, Request
from outrider.store.place import is_database

MOST_KEYS = 1_000
"""How many submissions of each user are remembered by their keys."""
RELOAD_S = 60.0


class Reception:
    """The API's Front. Any thread may call."""

    def __init__(
        self,
        *,
        loop: Loop[Any],
        workers: Workers,
        config: Config,
        policies: PolicyBook,
        metrics: Metrics,
        log: TracingLog,
        shares: ShareBook,
        recent: RecentRequests,
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._config = config
        self._policies = policies
        self._metrics = metrics
        self._log = log
        self._shares = shares
        self._recent = recent
        self._guard = threading.Lock()
        self._submitted: OrderedDict[tuple[int, str], tuple[str, Future[str]]] = OrderedDict()

    def now_s(self) -> int:
        return self._loop.now_s()

    def ask(self, caller: Caller, request: Request) -> Future[Answer]:
        self._recent.note(caller.uid)
        return self._loop.ask(caller, request)

    def resolve(self, claim: ImageClaim) -> Future[FoundImage]:
        return self._workers.resolve(claim)

    def drain(self, nodes: tuple[str, ...], *, is_ended: bool) -> Future[bool]:
        def drained(rms: BatchSystem) -> bool:
            if not isinstance(rms, DrainsNodes):
                return False
            try:
                rms.drain(nodes, is_ended=is_ended)
            except RmsError as error:
                code = "not-found" if isinstance(error, Unknown) else "unavailable"
                raise NotDone(Trouble(code=code, message=str(error))) from error
            self._log.info("nodes drained", nodes=fold(nodes), is_ended=is_ended)
            self._loop.wake()
            return True

        return self._workers.with_rms(drained, os.geteuid())

    def logins(self) -> LoginBook:
        found = self._workers.logins
        if found is None:
            raise NotDone(Trouble(code="unavailable", message="nobody can log in at registries here"))
        return found

    def submit(self, caller: Caller, submission: Submit) -> Future[str]:
        """Hand a job over, once for each key."""
        if not submission.key:
            return self._hand_over(caller, submission)
        name = (caller.uid, submission.key)
        with self._guard:
            known = self._submitted.get(name)
            if known is not None and not _has_failed(known[1]):
                if known[0] != submission.request_hash:
                    words = "the idempotency key was used for another submission: use a new one"
                    conflict: Future[str] = Future()
                    conflict.set_exception(NotDone(Trouble(code="conflict", message=words)))
                    return conflict
                return known[1]
            future = self._hand_over(caller, submission)
            self._submitted[name] = (submission.request_hash, future)
            # Nobody's keys give way to those of others, who would have a job run twice.
            own = [each for each in self._submitted if each[0] == caller.uid]
            for each in own[:-MOST_KEYS]:
                del self._submitted[each]
        return future

    def shares(self, caller: Caller, wanted: WantedShares) -> ShareList:
        return self._shares.listed(caller, wanted)

    def health(self) -> Health:
        loop = self._loop
        return judge(beat_age_s=loop.beat_age_s, is_running=loop.is_running, status=loop.status)

    def metrics_text(self) -> bytes:
        return self._metrics.text()

    def config(self) -> Configuration:
        """What is in force, with the units in the names. There is nothing secret in it: URIs with a
        password are refused, and keys are named by their files."""
        return Configuration(
            settings=self._config.model_dump(mode="json"),
            policies=self._policies.current.model_dump(mode="json", exclude_none=True),
        )

    def reload_policies(self) -> Reloaded:
        try:
            policies = self._policies.read_again()
        except (MetadataError, OSError) as error:
            words = f"the policies stay as they are: {error}"
            raise NotDone(Trouble(code="invalid", message=words)) from error
        try:
            # A desk that is made anew before it hears of them takes them from the book of policies.
            self._loop.set_policies(policies).result(RELOAD_S)
        except (TimeoutError, CancelledError) as error:
            words = "the policies were read, but the desk has not taken them yet: ask for the status"
            raise NotDone(Trouble(code="unavailable", message=words)) from error
        self._log.info("policies read", rules=len(policies.rules))
        return Reloaded(rules=len(policies.rules))

    def back_up(self, path: str) -> BackedUp:
        if is_database(self._config.store_path):
            words = "the store is a PostgreSQL database: copy it with pg_dump or pg_basebackup"
            raise NotDone(Trouble(code="invalid", message=words))
        made = copy_asked_for(Path(self._config.store_path), path)
        self._log.info("store copied", target=made.path, reservations=made.reservations)
        return made

    def _hand_over(self, caller: Caller, submission: Submit) -> Future[str]:
        handover = JobHandover(self._loop, self._log, caller, submission)
        return self._workers.submitting(handover.hand_over, caller.uid)


def _has_failed(future: Future[str]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)
