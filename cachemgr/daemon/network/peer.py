"""Who is at the other end of the socket, as the kernel says it."""

from __future__ import annotations

import os
import pwd
import socket
import struct

from cachemgr.protocol import USER_OWNER

CREDENTIALS = struct.Struct("3i")
# Not in the socket module; the numbers are Linux'.
SO_PEERGROUPS = 59
# What `getsockopt` of the standard library takes: 256 groups.
MOST_ANSWER_BYTES = 1024


class NodeCaller:
    """A user of this node, and for whom a privileged one acts. Groups are looked up when asked for."""

    __slots__ = ("_gids", "is_privileged", "pid", "real_uid", "uid")

    def __init__(
        self, *, uid: int, real_uid: int, pid: int, is_privileged: bool, gids: frozenset[int] | None = None
    ) -> None:
        self.uid = uid
        self.real_uid = real_uid
        self.pid = pid
        self.is_privileged = is_privileged
        self._gids = gids

    def gids(self) -> frozenset[int]:
        if self._gids is None:
            self._gids = groups_of(self.uid)
        return self._gids

    def acting_for(self, uid: int) -> NodeCaller:
        """A privileged caller in place of a user: what that user may not, this one may not."""
        return NodeCaller(uid=uid, real_uid=self.real_uid, pid=self.pid, is_privileged=True)

    @property
    def sees_all(self) -> bool:
        return self.is_privileged and self.uid == self.real_uid

    @property
    def culprit(self) -> int | None:
        """Who is to blame for lines in the log; root and the service cause as many as they like."""
        return None if self.is_privileged else self.uid

    def owner(self, owner: str) -> str:
        """The name under which an owner's things are kept: nobody can write another's."""
        return owner if self.is_privileged else f"{USER_OWNER}{self.uid}:{owner}"


def caller_of(connection: socket.socket, service_uid: int) -> NodeCaller:
    pid, uid, gid = CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    )
    others = _peer_groups(connection)
    gids = None if others is None else frozenset({gid, *others})
    is_privileged = uid in (0, service_uid)
    return NodeCaller(uid=uid, real_uid=uid, pid=pid, is_privileged=is_privileged, gids=gids)


def groups_of(uid: int) -> frozenset[int]:
    """The groups that the user database gives a user; none for a user whom it does not know."""
    try:
        entry = pwd.getpwuid(uid)
        return frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))
    except (KeyError, OSError):
        return frozenset()


def identity(name: str) -> tuple[int, int, list[int]]:
    """A user's number, group and all groups, by name; KeyError if there is no such user."""
    entry = pwd.getpwnam(name)
    return entry.pw_uid, entry.pw_gid, sorted(os.getgrouplist(name, entry.pw_gid))


def _peer_groups(connection: socket.socket) -> tuple[int, ...] | None:
    """All groups of the process; None before Linux 4.13, and if there are more than fit."""
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, MOST_ANSWER_BYTES)
    except OSError:
        return None
    return struct.unpack(f"{len(found) // 4}I", found)
