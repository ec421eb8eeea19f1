"""Prolog and epilog of virtual nodes: an instance of its image for each job, and its end."""

from __future__ import annotations

from collections.abc import Mapping

from cachemgr.base.clock import Clock
from cachemgr.base.errors import CacheError
from cachemgr.base.message import plain
from cachemgr.network.client import DaemonClient
from cachemgr.network.fields import read_answer
from cachemgr.protocol import JOB_OWNER, InstanceEntry, InstanceRequest, ReleaseRequest
from outrider.rms.base import RmsJob
from outrider.rms.embedded import EmbeddedHooks
from outrider.rms.twin import NotReady
from outrider.service.meter import Log
from outrider.service.nodes.agent import owner_of
from outrider.service.nodes.promised import Promised

ASK_S = 10.0
GRACE_S = 600
UNLIMITED_S = 86_400
"""How long the instance of a job without a limit is leased at first."""


class PoolHooks:
    """What the hooks of real nodes do, on the pools of virtual ones. Nothing is ever transferred here."""

    def __init__(self, sockets: Mapping[str, str], promised: Promised, *, clock: Clock, log: Log) -> None:
        self._sockets = dict(sockets)
        self._promised = promised
        self._clock = clock
        self._log = log
        self._paths: dict[tuple[str, str], str] = {}

    def as_hooks(self) -> EmbeddedHooks:
        return EmbeddedHooks(prolog=self.prolog, epilog=self.epilog, image_of=self.image_of)

    def prolog(self, job: RmsJob, node: str) -> NotReady | None:
        """An instance for the job's user, or why the job has to wait."""
        digest = self._digest_of(job)
        if digest is None or node not in self._sockets:
            return None
        if not digest:
            return NotReady("its image is not known yet: it is released when that is on its nodes")
        lease_s = UNLIMITED_S if job.limit_s is None else job.limit_s + GRACE_S
        began_s = self._clock.monotonic_s()
        try:
            until_s = self._clock.now_s() + lease_s
            wanted = InstanceRequest(digest, _owner(job), until_s, job.uid, made_for=_pins_of(job))
            made = read_answer(InstanceEntry, self._ask(node, "instance", wanted))
        except CacheError as error:
            return NotReady(f"node {node}: {error}")
        if not made.path or made.state == "prepared":
            return NotReady(
                f"node {node}: its instances need mounts, which only a service that runs as root can make"
            )
        self._paths[job.key, node] = made.path
        self._log.info(
            "instance made",
            job=job.key,
            node=node,
            image=digest,
            method=made.method,
            milliseconds=round(1_000 * (self._clock.monotonic_s() - began_s)),
        )
        return None

    def epilog(self, job: RmsJob, node: str) -> None:
        self._paths.pop((job.key, node), None)
        if node not in self._sockets or (job.reservation is None and job.metadata is None):
            return
        try:
            self._ask(node, "release", ReleaseRequest(_owner(job)))
        except CacheError as error:
            # Its lease ends, and then the node's daemon removes it.
            self._log.warning("instance not released", job=job.key, node=node, reason=str(error))

    def image_of(self, job: RmsJob) -> str:
        """Where the job finds its image: on the first of its nodes."""
        return self._paths.get((job.key, job.nodes[0]), "") if job.nodes else ""

    def _digest_of(self, job: RmsJob) -> str | None:
        """Which image it has to have: its reservation's, or the one that it names itself. None if none,
        empty if that is not known yet."""
        if job.reservation is not None:
            return self._promised.digest(job.reservation)
        return None if job.metadata is None else self._promised.job(job.key)

    def _ask(self, node: str, verb: str, request: InstanceRequest | ReleaseRequest) -> dict[str, object]:
        with DaemonClient(self._sockets[node]) as client:
            return client.ask(verb, plain(request), timeout_s=ASK_S)


def _pins_of(job: RmsJob) -> tuple[str, ...]:
    """Under which names nodes pin for a job: its copy may have been made before for one of them."""
    return tuple(owner_of(each) for each in (_owner(job), job.reservation) if each)


def _owner(job: RmsJob) -> str:
    return f"{JOB_OWNER}{job.key}"
