"""Who may fetch from the node's mirror: logins that the daemon itself signs, as a user of the node.

    outrider:EXPIRES.UID.MAC         as name and password, which container runtimes send as Basic

The key is the daemon's own and dies with it, so that a login admits to nothing but this mirror: not to the
relays of other nodes, and not to a daemon that is started later.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets

from cachemgr.base.steady import past_s
from cachemgr.daemon.network.peer import NodeCaller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.base.clock import Clock

USER = "outrider"
KEY_BYTES = 32
PASSWORD = re.compile(r"(\d{1,12})\.(\d{1,10})\.([0-9a-f]{64})")


class MirrorLogins:
    """The logins of one mirror. Any thread may call."""

    def __init__(self, address: str, clock: Clock) -> None:
        self.address = address
        self._clock = clock
        self._key = secrets.token_bytes(KEY_BYTES)

    def password(self, uid: int, until_s: int) -> str:
        return f"{until_s}.{uid}.{self._signature(uid, until_s)}"

    def caller(self, authorization: str) -> NodeCaller | None:
        """As whom a request is made; None if nobody has shown who it is."""
        found = PASSWORD.fullmatch(_password_in(authorization))
        if found is None:
            return None
        until_s, uid = int(found[1]), int(found[2])
        if not hmac.compare_digest(found[3], self._signature(uid, until_s)) or until_s <= past_s(self._clock):
            return None
        return NodeCaller(uid=uid, real_uid=uid, pid=0, is_privileged=uid in (0, os.geteuid()))

    def _signature(self, uid: int, until_s: int) -> str:
        return hmac.new(self._key, f"{uid}|{until_s}".encode(), hashlib.sha256).hexdigest()


def _password_in(authorization: str) -> str:
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
