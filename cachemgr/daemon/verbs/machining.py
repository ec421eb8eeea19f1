"""What this node has for jobs in virtual machines, and what is left of theirs."""

from __future__ import annotations

import json
import os

from cachemgr.base.errors import BadRequest, CacheError, InUse, NotAllowed, NotInPool
from cachemgr.daemon.verbs import access, quota
from cachemgr.machines.batch import arrivals, kept
from cachemgr.machines.batch.moving import ARRIVE, DROP, DROPPED, STEPS
from cachemgr.machines.keeper import PROGRAM
from cachemgr.machines.qemu.accelerator import find_facts
from cachemgr.protocol import (
    JOB_OWNER,
    Discarded,
    ListedMachines,
    MachineFacts,
    MachineRoom,
    MovedMachine,
    MoveRequest,
    NoFields,
    ReleaseRequest,
)
from cachemgr.relay.machines import machine_path, thing_of
from cachemgr.relay.tickets import make_ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.verbs.requests import VerbRequest

TICKET_S = 86_400


def machines(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> MachineFacts:
    """What is found out takes a test boot the first time, so it is not for everybody to ask for."""
    request.read(NoFields)
    if not caller.is_privileged:
        raise NotAllowed("only root and the pool's own user ask the daemon: run `cachemgr machines`")
    disk = node.pool.disk
    found = find_facts(PROGRAM, node.clock, disk)
    return MachineFacts(
        version=found.version,
        accelerator=found.accelerator,
        reason=found.reason,
        processor=found.processor,
        free_bytes=_room(node).free_bytes,
    )


def machine_room(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> MachineRoom:
    """What a job's machine may take of the disk, as everybody may ask who is about to make one."""
    request.read(NoFields)
    return _room(node)


def _room(node: NodeContext) -> MachineRoom:
    """A pool on the same file system has a right to what is promised and held there, and is not here yet."""
    free_bytes, promised_bytes = node.pool.disk.free_bytes(kept.FOLDER), 0
    if os.stat(kept.FOLDER).st_dev == os.stat(node.pool.layout.root).st_dev:
        found = quota.account_of(node)
        wanted_bytes = min(found.limit_bytes, found.promised_bytes + found.others_bytes)
        promised_bytes = max(0, wanted_bytes - node.pool.index.used_bytes())
    return MachineRoom(free_bytes=max(0, free_bytes - promised_bytes), promised_bytes=promised_bytes)


def kept_machines(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> ListedMachines:
    """Of which jobs there are machines here, saved or not, and how far these are."""
    request.read(NoFields)
    access.require_privilege(caller, "listing all jobs' machines")
    return kept.listed_machines(int(node.clock.monotonic_s() * 1_000_000))


def discard(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> Discarded:
    """Remove the machine of a job that is gone. Each is ended with the rights of its user."""
    access.require_privilege(caller, "discarding a job's machine")
    owner = request.read(ReleaseRequest).owner
    found = [each for each in kept.kept_machines() if f"{JOB_OWNER}{each.job}" == owner]
    for each in found:
        is_done = node.removals.remove(each)
        if is_done is None:
            raise InUse(f"the machine of {owner} is still being removed, or another one of its user's")
        if not is_done:
            raise CacheError(f"the machine of {owner} could not be removed: look at {kept.FOLDER}")
        node.log.info("machine of a job that is gone", owner=owner, uid=each.uid)
    return Discarded(len(found))


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
        key = arrivals.key_of(wanted.owner)
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
    moved = arrivals.step_of(wanted.step, wanted.owner, wanted.user, given_text, arrivals.STEP_S)
    node.log.info("machine moves", owner=wanted.owner, step=wanted.step, uid=wanted.user)
    return moved
