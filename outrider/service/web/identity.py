"""Who asks: from a user's number, as the kernel or MUNGE vouches for it, to a caller with names and groups.

The names come from the machine's user database, which may be a slow network service: they are
asked for in a thread and kept for a minute.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache

from cachemgr.base.shares import Share
from outrider.service.requests import Caller
from outrider.service.settings import Administrators
from outrider.service.web.limits import WebThreads

MOST_KEPT = 1_024
KEPT_S = 60
MOST_NAMES = 2_000


class Users:
    """Callers by their numbers. `monotonic_s` tells how old an entry is."""

    def __init__(self, administrators: Administrators, monotonic_s: Callable[[], float]) -> None:
        self._administrators = administrators
        self._monotonic_s = monotonic_s
        self._threads = WebThreads("users to be looked up", threads=8, most_of_one=8)
        self._kept: OrderedDict[tuple[int, int], tuple[float, Caller]] = OrderedDict()
        self._asked: dict[tuple[int, int], asyncio.Task[Caller]] = {}
        """Those who are being looked up: once, however many requests they have."""
        self._privileged = {0, os.geteuid()} | _uids(administrators.users)

    def is_privileged(self, uid: int) -> bool:
        """Whether there are places for this user that others cannot have. Those who are administrators
        by a group are known as such once they have asked."""
        return uid in self._privileged

    def shares(self) -> list[Share]:
        return self._threads.shares()

    async def caller(self, uid: int, gid: int) -> Caller:
        """The user of that number. Raises Busy."""
        found = self._kept.get((uid, gid))
        if found is not None and self._monotonic_s() - found[0] < KEPT_S:
            return found[1]
        task = self._asked.get((uid, gid))
        if task is None:
            task = self._asked[uid, gid] = asyncio.ensure_future(self._look_up(uid, gid))
            task.add_done_callback(lambda _: self._asked.pop((uid, gid), None))
        return await asyncio.shield(task)

    async def _look_up(self, uid: int, gid: int) -> Caller:
        now_s = self._monotonic_s()
        caller = await self._threads.do(
            lambda: look_up(uid, gid, self._administrators), uid, is_first=self.is_privileged(uid)
        )
        if caller.is_admin:
            self._privileged.add(uid)
        elif uid not in (0, os.geteuid()):
            self._privileged.discard(uid)
        self._kept[uid, gid] = (now_s, caller)
        self._kept.move_to_end((uid, gid))
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return caller

    def close(self) -> None:
        self._threads.close()


@lru_cache(maxsize=MOST_NAMES)
def name_of(user: str) -> str:
    """A user's name; as it was if it is not a number, or the user database does not know it."""
    if not user.isdecimal() or len(user) > 10:
        return user
    try:
        return pwd.getpwuid(int(user)).pw_name
    except (KeyError, OverflowError):
        return user


def look_up(uid: int, gid: int, administrators: Administrators) -> Caller:
    """The caller with all groups of the user database; one that it does not know has their number for
    a name, and the group that was vouched for."""
    gids: tuple[int, ...]
    primary = gid
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        user, gids = str(uid), (gid,)
    else:
        user, primary = entry.pw_name, entry.pw_gid
        gids = tuple(sorted(set(os.getgrouplist(user, entry.pw_gid))))
    groups = tuple(_group_name(each) for each in gids)
    is_admin = uid == 0 or user in administrators.users or not administrators.groups.isdisjoint(groups)
    return Caller(uid=uid, user=user, gids=gids, groups=groups, is_admin=is_admin, group=_group_name(primary))


def _uids(users: Iterable[str]) -> set[int]:
    found = set()
    for user in users:
        with suppress(KeyError):
            found.add(pwd.getpwnam(user).pw_uid)
    return found


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
