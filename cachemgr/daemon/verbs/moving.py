"""Suspended machines of jobs that go on at another node: each step is done with the rights of their user."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from dataclasses import dataclass, field

from cachemgr.base.errors import BadRequest, CacheError, InUse, NotAllowed, NotInPool, every_error
from cachemgr.daemon.verbs import access
from cachemgr.machines.batch import kept
from cachemgr.machines.batch.moving import ARRIVE, DROP, DROPPED, MOVE, STEPS
from cachemgr.protocol import JOB_OWNER, MovedMachine, MoveRequest
from cachemgr.relay.machines import machine_path, thing_of
from cachemgr.relay.tickets import make_ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.verbs.requests import VerbRequest

COMING = "coming"
TICKET_S = 86_400
STEP_S = 15
"""Less than the service waits for an answer."""


@dataclass
class Arrivals:
    """Machines that come to this node, one thread each, and what became of those that are done. Any thread
    may call. What was not told before the daemon ended is found out anew."""

    most: int = 16
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _running: dict[str, threading.Thread] = field(default_factory=dict)
    _done: dict[str, MovedMachine | CacheError] = field(default_factory=dict)

    def look(self, owner: str, uid: int, given: str) -> MovedMachine:
        """How far it is; begun if it was not. What has come of it is told once."""
        with self._guard:
            if owner in self._done:
                found = self._done.pop(owner)
                if isinstance(found, CacheError):
                    raise found
                return found
            if owner not in self._running:
                if len(self._running) >= self.most:
                    raise InUse(f"{self.most} machines are coming to this node already")
                thread = threading.Thread(
                    target=self._bring, args=(owner, uid, given), name=f"arrival {owner}", daemon=True
                )
                self._running[owner] = thread
                thread.start()
        return MovedMachine(COMING)

    def _bring(self, owner: str, uid: int, given: str) -> None:
        found: MovedMachine | CacheError
        try:
            found = _step(ARRIVE, owner, uid, given, None)
        except CacheError as error:
            found = error
        with self._guard:
            del self._running[owner]
            self._done[owner] = found


def move_machine(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> MovedMachine:
    """Let a machine come here, be given away, or go once it was taken elsewhere."""
    access.require_privilege(caller, "moving a job's machine")
    wanted = request.read(MoveRequest)
    if wanted.step not in STEPS or not wanted.owner.startswith(JOB_OWNER) or wanted.user < 1:
        raise BadRequest(f"there is no step {wanted.step[:20]!r} of a machine of {wanted.owner[:40]!r}")
    if os.geteuid() not in (0, wanted.user):
        raise NotAllowed("the node's daemon is not root: it cannot move machines of users")
    if wanted.step == ARRIVE:
        if not node.keys or not wanted.source:
            raise BadRequest("machines come over a relay, with a ticket: set relay_key on all nodes")
        key = _key(wanted.owner)
        given = {
            "source": wanted.source,
            "path": machine_path(wanted.user, key),
            "ticket": make_ticket(node.keys[0], thing_of(wanted.user, key), node.clock.now_s() + TICKET_S),
            "rate_bytes_per_s": wanted.rate_bytes_per_s,
        }
        return node.arrivals.look(wanted.owner, wanted.user, json.dumps(given))
    if all(f"{JOB_OWNER}{each.job}" != wanted.owner for each in kept.kept_machines()):
        if wanted.step == DROP:
            return MovedMachine(DROPPED)
        raise NotInPool(f"this node has no machine of {wanted.owner}")
    given_text = json.dumps({"place": wanted.place})
    moved = _step(wanted.step, wanted.owner, wanted.user, given_text, STEP_S)
    node.log.info("machine moves", owner=wanted.owner, step=wanted.step, uid=wanted.user)
    return moved


def _step(name: str, owner: str, uid: int, given: str, timeout_s: float | None) -> MovedMachine:
    argv = [kept.PROGRAM, MOVE, name, _key(owner)]
    try:
        done = kept.as_user(uid, argv, given, timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CacheError(f"the machine of {owner} could not be moved: {error}") from error
    if done.returncode != 0:
        kind = next((each for each in every_error() if each.exit_code == done.returncode), CacheError)
        words = done.stderr.strip()[-500:].removeprefix("outrider: ")
        raise kind(words or f"the machine of {owner} could not be moved")
    try:
        said = json.loads(done.stdout)
        return MovedMachine(str(said["state"]), str(said["place"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CacheError(f"{kept.PROGRAM} says {done.stdout[:100]!r}: is it of another version?") from error


def _key(owner: str) -> str:
    """As the machine of a job, or of a task of an array, is called in its folder's name."""
    return owner[len(JOB_OWNER) :].replace(".", "-")
