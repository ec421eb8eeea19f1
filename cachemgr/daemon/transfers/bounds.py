"""What of the daemon's transfers one user may have, and how users take turns. No threads, no clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(frozen=True)
class Bounds:
    """Limits of transfers. Root and the service are bound by the numbers for all together alone."""

    # Of the places for all, those that are for root and the service.
    kept: int = 0
    places_of_user: int = 1 << 30
    slots_of_user: int | None = None
    turn_s: int = 30
    longest_s: int = 86_400
    # Of all transfers together that only users want.
    rate_bytes_per_s: int | None = None
    files: int = 512
    files_of_user: int = 32
    # Ended transfers are remembered so long, and so many of them.
    remembered_s: int = 3600
    remembered: int = 1000
    remembered_of_user: int = 100


class UserTurns:
    """How long each user's transfers have run, so that who has had less goes first.

    Only differences count: who comes later begins with the least that anybody has who is there.
    What a user has had beyond that is remembered, so that leaving and coming back gains nothing.
    """

    def __init__(self, turn_s: int) -> None:
        self._turn_s = turn_s
        self._had_s: dict[int, float] = {}

    def charge(self, uid: int, seconds: float) -> None:
        if uid in self._had_s:
            self._had_s[uid] += seconds

    def of(self, users: Collection[int]) -> Mapping[int, int]:
        """The turns that each of these users has had; they are those who want to run now."""
        least_s = min((self._had_s[uid] for uid in users if uid in self._had_s), default=0.0)
        kept = {uid: had_s for uid, had_s in self._had_s.items() if had_s > least_s} if users else {}
        self._had_s = {**dict.fromkeys(users, least_s), **kept}
        return {uid: int(self._had_s[uid] // self._turn_s) for uid in users}


class Remembered:
    """The numbers of ended transfers, oldest first, by who began them."""

    def __init__(self, most: int, most_of_user: int) -> None:
        self._most = most
        self._most_of_user = most_of_user
        self._of: dict[int, deque[int]] = {}
        self._count = 0

    def note(self, uid: int, number: int, *, is_ordinary: bool) -> list[int]:
        """One more has ended; which are to be forgotten: the oldest of whoever has too many."""
        self._of.setdefault(uid, deque()).append(number)
        self._count += 1
        gone = []
        if is_ordinary and len(self._of[uid]) > self._most_of_user:
            gone.append(self._pop(uid))
        while self._count > self._most:
            gone.append(self._pop(max(sorted(self._of), key=lambda each: len(self._of[each]))))
        return gone

    def forget(self, uid: int, number: int) -> None:
        if number in self._of.get(uid, ()):
            self._of[uid].remove(number)
            self._count -= 1
            if not self._of[uid]:
                del self._of[uid]

    def _pop(self, uid: int) -> int:
        number = self._of[uid].popleft()
        self._count -= 1
        if not self._of[uid]:
            del self._of[uid]
        return number
