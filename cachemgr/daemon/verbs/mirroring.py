"""The verb `mirror`: a login for the node's mirror, for the user who asks."""

from __future__ import annotations

from cachemgr.base.errors import BadRequest
from cachemgr.daemon.network.mirror_logins import USER
from cachemgr.daemon.verbs import access
from cachemgr.protocol import MirrorLogin, MirrorRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.verbs.requests import VerbRequest


def mirror(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> MirrorLogin:
    wanted = request.read(MirrorRequest)
    if node.mirror is None:
        raise BadRequest("this node has no mirror for runtimes: ask the administrator for mirror_listen")
    until_s = access.checked_until(node, caller, wanted.until_s)
    return MirrorLogin(node.mirror.address, USER, node.mirror.password(caller.uid, until_s), until_s)
