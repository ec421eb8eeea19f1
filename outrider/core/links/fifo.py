"""Transfers without a deadline on a link of their own: first come, first served (thesis, section 6.2).

A transfer is appended behind the last one, so its end is known when it is appended. Whoever
wants the same image on the same node may join a transfer that is still to come instead of
adding one ("piggybacking", thesis, section 6.3.1).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from outrider.core.model import Transfer


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduled:
    """A transfer with its place on a link."""

    transfer: Transfer
    start_s: int
    end_s: int


class FifoLink:
    """A link that serves best effort alone."""

    def __init__(self, *, rate_bytes_per_s: int) -> None:
        if rate_bytes_per_s < 1:
            raise ValueError(f"a link of {rate_bytes_per_s} bytes/s moves nothing")
        self.rate_bytes_per_s = rate_bytes_per_s
        self.busy_until_s = 0
        self._scheduled: deque[Scheduled] = deque()
        self._has_begun = False

    def duration_s(self, size_bytes: int) -> int:
        """How long so many bytes keep the link busy, rounded up to a second."""
        return -(-size_bytes // self.rate_bytes_per_s)

    def end_if_added(self, size_bytes: int, count: int, now_s: int) -> int:
        """When the last of `count` transfers of one size would end if they were added now."""
        return max(now_s, self.busy_until_s) + count * self.duration_s(size_bytes)

    def add(self, transfer: Transfer, now_s: int) -> Scheduled:
        start_s = max(now_s, self.busy_until_s)
        self.busy_until_s = start_s + transfer.duration_s
        scheduled = Scheduled(transfer=transfer, start_s=start_s, end_s=self.busy_until_s)
        self._scheduled.append(scheduled)
        return scheduled

    def resume(self, scheduled: Scheduled, *, has_begun: bool) -> None:
        """Put back, behind what is there, a transfer that was on the link before a restart."""
        if has_begun and self._scheduled:
            raise ValueError(f"transfer {scheduled.transfer.number} cannot run behind another one")
        self._has_begun = has_begun or self._has_begun
        self._scheduled.append(scheduled)
        self.busy_until_s = scheduled.end_s

    @property
    def is_running(self) -> bool:
        """Whether the first transfer has begun, so that its end is the next event."""
        return self._has_begun

    def next_event_s(self) -> int | None:
        """When the first transfer begins or ends."""
        if not self._scheduled:
            return None
        first = self._scheduled[0]
        return first.end_s if self._has_begun else first.start_s

    def take_event(self) -> tuple[Transfer, bool]:
        """The first transfer begins (True) or ends (False)."""
        first = self._scheduled[0]
        self._has_begun = not self._has_begun
        if not self._has_begun:
            self._scheduled.popleft()
        return first.transfer, self._has_begun

    def stall(self, lost_s: int) -> None:
        """The link lost so much time: everything on it ends that much later."""
        self.busy_until_s += lost_s
        for index, scheduled in enumerate(self._scheduled):
            start_s = scheduled.start_s if index == 0 and self._has_begun else scheduled.start_s + lost_s
            self._scheduled[index] = replace(scheduled, start_s=start_s, end_s=scheduled.end_s + lost_s)

    def end_of(self, number: int) -> int | None:
        """When a transfer that runs or waits will end; None if there is no such transfer."""
        return next(
            (scheduled.end_s for scheduled in self._scheduled if scheduled.transfer.number == number), None
        )

    def upcoming(self) -> tuple[Scheduled, ...]:
        """What runs or waits, in order."""
        return tuple(self._scheduled)
