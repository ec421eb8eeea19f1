"""Working as the pool's user: what root makes in a pool must not be root's."""

from __future__ import annotations

import os
import pwd
from contextlib import contextmanager

from cachemgr.base.errors import BadRequest, NotAllowed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """The body runs as that user; only root can become somebody else, and is root again afterwards."""
    if uid == os.geteuid():
        yield
        return
    if os.geteuid() != 0:
        raise NotAllowed(f"this is for {user_name(uid)}: run it as that user or as root")
    gid, groups = _groups(uid)
    before_gid, before_groups = os.getegid(), os.getgroups()
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(before_gid)
        os.setgroups(before_groups)


def user_id(name: str) -> int:
    """A user's number, from the name in the configuration or on the command line."""
    if name.isascii() and name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError as error:
        raise BadRequest(
            f"there is no user {name!r} on this node: make it with `useradd --system {name}`, or name another"
        ) from error


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def group_id(uid: int) -> int:
    return _groups(uid)[0]


def _groups(uid: int) -> tuple[int, list[int]]:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return uid, []
    return entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)
