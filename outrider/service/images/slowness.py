"""Which look-ups were slow lately: whose, and at which hosts. Nothing here waits or asks anybody.

A look-up's host is the web server's name, or the folder of a file.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest
from cachemgr.fetch.sources.uris import parse

SLOW_S = 2.0
"""What takes longer is slow."""
REMEMBERED_S = 300.0
"""For so long a user and a host count as slow after that."""
PAUSE_S = 30.0
"""After a slow look-up that failed its host is not asked again for its user so soon; after each
further one twice as long."""
LONGEST_PAUSE_S = 900.0
MOST_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class _Pause:
    until_s: float
    length_s: float


class Slowness:
    """Its owner sees to it that one thread calls at a time. Seconds are those of a monotonic clock."""

    def __init__(self) -> None:
        self._slow: OrderedDict[object, float] = OrderedDict()
        """Users and hosts, and until when they count as slow."""
        self._pauses: OrderedDict[tuple[int, str], _Pause] = OrderedDict()

    def note(self, uid: int, host: str, took_s: float, now_s: float, *, has_failed: bool) -> None:
        """A look-up has ended, or was given up."""
        key = (uid, host)
        if took_s < SLOW_S:
            if not has_failed:
                self._pauses.pop(key, None)
            return
        for slow in (uid, host):
            self._slow.pop(slow, None)
            self._slow[slow] = now_s + REMEMBERED_S
        if has_failed:
            before = self._pauses.pop(key, None)
            length_s = PAUSE_S if before is None else min(LONGEST_PAUSE_S, 2 * before.length_s)
            self._pauses[key] = _Pause(now_s + length_s, length_s)
        for each in (self._slow, self._pauses):
            while len(each) > MOST_REMEMBERED:
                each.popitem(last=False)

    def is_slow(self, uid: int, host: str, now_s: float) -> bool:
        return any(self._slow.get(each, 0.0) > now_s for each in (uid, host))

    def has_pause(self, uid: int, host: str, now_s: float) -> bool:
        """Whether the host is not to be asked for this user now."""
        found = self._pauses.get((uid, host))
        return found is not None and found.until_s > now_s


def host_of(uri: str) -> str:
    """What answers for an address: a web server's name, or the folder of a file. Empty for what is
    known without asking anybody."""
    if "://" not in uri and not uri.startswith("/"):
        return ""
    try:
        location = parse(uri)
    except BadRequest:
        return ""
    return location.path.rpartition("/")[0] or "/" if location.scheme == "file" else location.host
