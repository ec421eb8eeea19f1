"""What this node has for jobs in virtual machines, and what is left of theirs."""

from __future__ import annotations

from cachemgr.base.errors import CacheError, NotAllowed
from cachemgr.daemon.verbs import access
from cachemgr.machines.batch import kept
from cachemgr.machines.keeper import PROGRAM
from cachemgr.machines.qemu.accelerator import find_facts
from cachemgr.protocol import JOB_OWNER, Discarded, ListedMachines, MachineFacts, NoFields, ReleaseRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.verbs.requests import VerbRequest


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
        free_bytes=disk.free_bytes(node.pool.layout.root),
    )


def kept_machines(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> ListedMachines:
    """Of which jobs there are machines here, saved or not."""
    request.read(NoFields)
    access.require_privilege(caller, "listing all jobs' machines")
    return ListedMachines(tuple(f"{JOB_OWNER}{each.job}" for each in kept.kept_machines()))


def discard(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> Discarded:
    """Remove the machine of a job that is gone. Each is ended with the rights of its user."""
    access.require_privilege(caller, "discarding a job's machine")
    owner = request.read(ReleaseRequest).owner
    found = [each for each in kept.kept_machines() if f"{JOB_OWNER}{each.job}" == owner]
    for each in found:
        if not kept.discard(each):
            raise CacheError(f"the machine of {owner} could not be removed: look at {kept.FOLDER}")
        node.log.info("machine of a job that is gone", owner=owner, uid=each.uid)
    return Discarded(len(found))
