"""What carries transfers that have deadlines, as the book and an executor see it: one link, or several.

`deadline.DeadlineLink` is one link with one transfer at a time, `deadline_network.DeadlineNetwork` several
links that transfers cross.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from outrider.core.model import Transfer


@dataclass(frozen=True, kw_only=True, slots=True)
class Insertion:
    """New transfers with their latest starts, and the waiting ones that they push ahead with theirs."""

    transfers: tuple[Transfer, ...]
    latest: tuple[int, ...]
    moved: tuple[Transfer, ...]
    pushed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScheduleMark:
    """What waits at some instant, in its order and with its latest starts, to go back to."""

    waiting: tuple[Transfer, ...]
    latest: tuple[int, ...]
    keys: tuple[int, ...]


class DeadlineSchedule(Protocol):
    """Transfers that wait, with the latest instants at which they may start, and those that run."""

    reserve_s: int | None
    aside: dict[int, Transfer]

    def __len__(self) -> int:
        """How many wait."""

    def plan(self, transfers: Sequence[Transfer], now_s: int) -> Insertion | None:
        """Where transfers of one deadline can go; None if nowhere."""

    def apply(self, insertion: Insertion) -> None:
        """Carry out what `plan` found. Nothing may have changed in between."""

    def in_order(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """The nodes as a relay passes an image on to them."""

    def cut_off(self, transfers: Sequence[Transfer], now_s: int) -> frozenset[str]:
        """After a refusal: the nodes that no such transfer can reach in time, while others may be reached."""

    def remove(self, number: int) -> bool:
        """Take a waiting transfer out. False if it does not wait."""

    def waits(self, number: int) -> bool:
        """Whether a transfer is planned and has not begun."""

    def under_way(self) -> tuple[tuple[Transfer, int], ...]:
        """What runs by the plan, and when each has ended by it."""

    def next_event_s(self, now_s: int) -> int | None:
        """When the next transfer begins, or one that runs has ended by the plan."""

    def next_start(self, now_s: int) -> tuple[int, int] | None:
        """When the next transfer may begin, and its place for `begin`; None if none may before one ends."""

    def begin(self, place: int, now_s: int) -> Transfer:
        """Start what `next_start` named. From now on it cannot be moved."""

    def would_delay(self, number: int, until_s: int) -> bool:
        """Whether somebody who waits would be late if what runs took until then."""

    def extend(self, number: int, until_s: int) -> None:
        """What runs is expected to end then."""

    def set_aside(self, number: int, now_s: int) -> Transfer:
        """Let what runs go on outside of the plan, so that others may begin."""

    def end(self, number: int, now_s: int) -> Transfer:
        """A transfer that had begun has really ended, early or late, within the plan or aside."""

    def begins(self, planned: Iterable[tuple[Transfer, int]], now_s: int) -> list[int]:
        """When transfers with these latest starts are expected to begin, each behind those before it."""

    def mark(self) -> ScheduleMark:
        """What waits now."""

    def back_to(self, mark: ScheduleMark) -> None:
        """Let that wait which waited when `mark` was made; nothing may have begun since."""

    def due_after(self, at_s: int) -> Iterator[Transfer]:
        """The waiting transfers whose deadlines are later than that."""

    def has_younger(self, deadline_s: int, number: int) -> bool:
        """Whether a transfer with this deadline waits whose number is higher."""

    def planned(self, now_s: int, most: int | None = None) -> list[tuple[Transfer, int]]:
        """Every waiting transfer with its start if nothing else happens, or the first of them."""

    def waiting(self, only: Collection[int] | None = None) -> list[Transfer]:
        """The waiting transfers in their order, or those with these numbers in the order of these."""

    def latest_starts(self, before_s: int | None = None) -> list[tuple[Transfer, int]]:
        """Every waiting transfer with the latest start that keeps all deadlines, if that is before then."""

    def latest_start(self, number: int) -> int:
        """The same of one transfer, which waits."""

    def late(self, now_s: int) -> frozenset[int]:
        """The waiting transfers that will begin too late even if nothing takes longer than planned."""

    def overdue(self, now_s: int) -> frozenset[int]:
        """What can no longer keep its deadline by the plan: it waits behind what runs, or runs itself."""

    def earliest_deadline(self, duration_s: int, now_s: int, not_before_s: int) -> int:
        """No deadline before this one leaves so much time for one more transfer, or several."""

    def earliest_deadline_of(self, transfers: Sequence[Transfer], now_s: int, not_before_s: int) -> int:
        """The earliest deadline by which all these can be brought, as far as is known."""

    def next_deadline(self, after_s: int) -> int | None:
        """The next deadline from which on a new transfer stands in another place."""

    def resume_running(self, transfer: Transfer, until_s: int) -> None:
        """Put back what ran before a restart, and by when it should have ended."""

    def resume_aside(self, transfer: Transfer) -> None:
        """Put back a transfer that went on outside of the plan before a restart."""

    def resume_waiting(self, transfers: Sequence[Transfer]) -> None:
        """Put back what waited before a restart; latest starts may have passed in the meantime."""


@contextmanager
def without(schedule: DeadlineSchedule, numbers: Collection[int]) -> Iterator[None]:
    """For the time being these do not wait; nothing may begin meanwhile."""
    mark = schedule.mark()
    for number in sorted(numbers):
        schedule.remove(number)
    try:
        yield
    finally:
        schedule.back_to(mark)
