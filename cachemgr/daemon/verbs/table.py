"""The table of verbs, and how each request gets to its own."""

from __future__ import annotations

import dataclasses

from cachemgr.base.errors import BadRequest, CacheError, NotAllowed
from cachemgr.base.message import plain
from cachemgr.daemon import copies
from cachemgr.daemon.verbs import (
    adding,
    claiming,
    leasing,
    looking,
    machining,
    promising,
    steering,
    taking,
)
from cachemgr.pool.layout import disk_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.verbs.requests import VerbRequest

    Verb = Callable[[NodeContext, NodeCaller, VerbRequest], object]

VERBS: dict[str, Verb] = {
    "ping": looking.ping,
    "find": looking.find,
    "ls": looking.ls,
    "show": looking.show,
    "instances": looking.instances,
    "transfers": looking.transfers,
    "shares": taking.shares,
    "stats": looking.stats,
    "metrics": looking.metrics,
    "machines": machining.machines,
    "machine-room": machining.machine_room,
    "kept-machines": machining.kept_machines,
    "discard": machining.discard,
    "move-machine": machining.move_machine,
    "mirror": looking.mirror,
    "add": adding.add,
    "pin": leasing.pin,
    "unpin": leasing.unpin,
    "instance": leasing.instance,
    "claim": claiming.claim,
    "copy": copies.copy,
    "release": leasing.release,
    "forget": leasing.forget,
    "transfer-set": steering.transfer_set,
    "limits": steering.limits,
    "promise": promising.promise,
    "evict": steering.evict,
    "check": steering.check,
}


@dataclasses.dataclass(frozen=True)
class VerbTable:
    """Hands a request to its verb, for the user for whom it is made, and counts it."""

    node: NodeContext

    def __call__(self, caller: NodeCaller, request: VerbRequest) -> dict[str, object]:
        result = "ok"
        try:
            verb = VERBS.get(request.verb)
            if verb is None:
                raise BadRequest(f"there is no verb {request.verb!r}: choose one of {', '.join(VERBS)}")
            uid = request.take_uid()
            if uid is not None and uid != caller.uid:
                if not caller.is_privileged:
                    raise NotAllowed("only root and the pool's own user act for others")
                caller = caller.acting_for(uid)
            with disk_errors(f"the request {request.verb!r}"):
                found: dict[str, object] = plain(verb(self.node, caller, request))
                return found
        except CacheError as error:
            result = error.code
            self.node.log.debug(
                "request refused", culprit=caller.culprit, verb=request.verb, uid=caller.uid, error=error
            )
            raise
        finally:
            known = request.verb if request.verb in VERBS else "unknown"
            self.node.metrics.count("outrider_requests_total", known, result)
