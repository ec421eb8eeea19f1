"""Which refusals are written down: so many of each user in an hour. Of the others only their number is.

An answer is given to each. What is written is kept for months, so that whoever asks in vain without
end would fill the store, the log and what others look at.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

HOUR_S = 3_600
MOST_USERS = 10_000


class Noted(Enum):
    """What is to be written of a refusal."""

    ALONE = "alone"
    LAST = "last"
    """The last one of the hour that is: it has to say that others are not."""
    COUNTED = "counted"


@dataclass(slots=True)
class _Hour:
    since_s: int
    count: int = 0


class RefusalLog:
    """By user, how many there were in their last hour. `most` None: all are written down."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._hours: OrderedDict[int, _Hour] = OrderedDict()

    def add(self, uid: int, now_s: int) -> tuple[Noted, int]:
        """One more; and how many were only counted in the user's hour before, if that is over now."""
        if self._most is None:
            return Noted.ALONE, 0
        hour, left_out = self._hours.pop(uid, None), 0
        if hour is None or now_s - hour.since_s >= HOUR_S:
            left_out = 0 if hour is None else max(0, hour.count - self._most)
            hour = _Hour(now_s)
        hour.count += 1
        self._hours[uid] = hour
        if len(self._hours) > MOST_USERS:
            self._hours.popitem(last=False)
        if hour.count > self._most:
            return Noted.COUNTED, left_out
        return (Noted.LAST if hour.count == self._most else Noted.ALONE), left_out

    def is_full(self, uid: int) -> bool:
        """Whether the user's last refusal was only counted."""
        hour = self._hours.get(uid)
        return self._most is not None and hour is not None and hour.count > self._most
