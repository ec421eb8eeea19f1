"""Transfers without a deadline on a link of their own: first come, first served (thesis, section 6.2).

A transfer is appended behind the last one and never moved, so its end is known when it is
appended. Whoever wants the same image on the same node may join a transfer that is still
to come instead of adding one ("piggybacking", thesis, section 6.3.1).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from outrider.core.model import Transfer


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduled:
    """A transfer with its place on a link."""

    transfer: Transfer
    start_s: int
    end_s: int


class BestEffortLink(Protocol):
    """What best-effort scheduling needs of a link."""

    def end_if_added(self, duration_s: int, now_s: int) -> int:
        """When a transfer added now would end."""

    def add(self, transfer: Transfer, now_s: int) -> Scheduled:
        """Append a transfer."""


class FifoLink:
    """A link that serves best effort alone."""

    def __init__(self) -> None:
        self.busy_until_s = 0
        self._scheduled: deque[Scheduled] = deque()

    def __len__(self) -> int:
        return len(self._scheduled)

    def end_if_added(self, duration_s: int, now_s: int) -> int:
        return max(now_s, self.busy_until_s) + duration_s

    def add(self, transfer: Transfer, now_s: int) -> Scheduled:
        start_s = max(now_s, self.busy_until_s)
        scheduled = Scheduled(transfer=transfer, start_s=start_s, end_s=start_s + transfer.duration_s)
        self.busy_until_s = scheduled.end_s
        self._scheduled.append(scheduled)
        return scheduled

    def forget_before(self, now_s: int) -> None:
        """Drop what has ended."""
        while self._scheduled and self._scheduled[0].end_s <= now_s:
            self._scheduled.popleft()

    def upcoming(self) -> tuple[Scheduled, ...]:
        """What runs or waits, in order."""
        return tuple(self._scheduled)
