"""The verb that tells what this node has for jobs in virtual machines."""

from __future__ import annotations

from cachemgr.base.errors import NotAllowed
from cachemgr.machines.keeper import PROGRAM
from cachemgr.machines.qemu.accelerator import find_facts
from cachemgr.protocol import MachineFacts, NoFields

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
