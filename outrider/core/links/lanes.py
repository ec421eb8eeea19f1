"""Who stands where in the lanes of a network, and when each has to begin at the latest.

`deadline_network` says what follows from it.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from heapq import heappop, heappush

from outrider.core.links.schedule import ScheduleMark
from outrider.core.model import Transfer

Place = tuple[int, int]
"""Where a transfer stands in its lanes: deadline, number."""


@dataclass(slots=True)
class WaitingTransfer:
    """A transfer that waits, and its latest start."""

    transfer: Transfer
    place: Place
    latest_s: int = 0

    @property
    def lanes(self) -> tuple[str, ...]:
        return self.transfer.lanes


class Lanes:
    """The waiting transfers of all lanes, and until when each lane is taken by what runs."""

    def __init__(self) -> None:
        self.waiting: dict[int, WaitingTransfer] = {}
        self.order: list[Place] = []
        """All that wait."""
        self.rows: dict[str, list[Place]] = {}
        """By lane, those that wait for it."""
        self.busy_s: dict[str, int] = {}
        """By lane, until when what runs there has it."""
        self._soonest_s: int | None = None
        """The first of all latest starts; None if it has to be looked for."""

    def push(self, entry: WaitingTransfer, now_s: int, before: dict[int, int]) -> bool:
        """Let all before a transfer begin as early as it makes them; False if one cannot."""
        ahead: list[tuple[int, int]] = []
        self._note_previous(entry, ahead)
        while ahead:
            number = -heappop(ahead)[1]
            while ahead and -ahead[0][1] == number:
                heappop(ahead)
            other = self.waiting[number]
            latest_s = self.latest_of(other)
            if latest_s >= other.latest_s:
                continue
            if latest_s < self.free_of(other, now_s):
                return False
            before.setdefault(number, other.latest_s)
            other.latest_s = latest_s
            self._note_previous(other, ahead)
        return True

    def _note_previous(self, entry: WaitingTransfer, ahead: list[tuple[int, int]]) -> None:
        for lane in entry.lanes:
            row = self.rows[lane]
            index = bisect_right(row, entry.place) - 2
            if index >= 0:
                deadline_s, number = row[index]
                heappush(ahead, (-deadline_s, -number))

    def latest_of(self, entry: WaitingTransfer) -> int:
        """The latest start, as those behind it and its own deadline allow."""
        end_s = entry.place[0]
        for lane in entry.lanes:
            row = self.rows[lane]
            index = bisect_right(row, entry.place)
            if index < len(row):
                end_s = min(end_s, self.waiting[row[index][1]].latest_s)
        return end_s - entry.transfer.duration_s

    def free_of(self, entry: WaitingTransfer, now_s: int) -> int:
        """When all its lanes are free of what runs."""
        return max([now_s, *(self.busy_s.get(lane, 0) for lane in entry.lanes)])

    def put_in(self, entry: WaitingTransfer) -> None:
        """Let a transfer stand in its place. Nobody's latest start changes."""
        self.waiting[entry.transfer.number] = entry
        insort(self.order, entry.place)
        for lane in entry.lanes:
            insort(self.rows.setdefault(lane, []), entry.place)
        self._soonest_s = None

    def take_out(self, entry: WaitingTransfer) -> None:
        """The opposite of `put_in`."""
        del self.waiting[entry.transfer.number]
        del self.order[bisect_right(self.order, entry.place) - 1]
        for lane in entry.lanes:
            row = self.rows[lane]
            del row[bisect_right(row, entry.place) - 1]
        self._soonest_s = None

    def _slacken(self, previous: list[tuple[int, int]]) -> None:
        """Whoever stood before a transfer that has left may begin later now."""
        while previous:
            number = -heappop(previous)[1]
            while previous and -previous[0][1] == number:
                heappop(previous)
            other = self.waiting[number]
            latest_s = self.latest_of(other)
            if latest_s != other.latest_s:
                other.latest_s = latest_s
                self._note_previous(other, previous)

    def leave(self, number: int) -> WaitingTransfer:
        """A transfer waits no more, and those before it may begin later."""
        entry = self.waiting[number]
        previous: list[tuple[int, int]] = []
        self._note_previous(entry, previous)
        self.take_out(entry)
        self._slacken(previous)
        return entry

    def set_latest(self, number: int, latest_s: int) -> None:
        """A waiting transfer's latest start is what it was before, or what it was planned to be."""
        self.waiting[number].latest_s = latest_s
        self._soonest_s = None

    def mark(self) -> ScheduleMark:
        """What waits now."""
        entries = [self.waiting[number] for _, number in self.order]
        return ScheduleMark(
            tuple(each.transfer for each in entries), tuple(each.latest_s for each in entries), ()
        )

    def back_to(self, mark: ScheduleMark) -> None:
        """Let that wait which waited when `mark` was made; nothing may have begun since."""
        self.waiting.clear()
        self.order.clear()
        self.rows.clear()
        for transfer, latest_s in zip(mark.waiting, mark.latest, strict=True):
            entry = self.waiting[transfer.number] = entry_of(transfer, latest_s)
            # They come in the order of their places.
            self.order.append(entry.place)
            for lane in entry.lanes:
                self.rows.setdefault(lane, []).append(entry.place)
        self._soonest_s = None

    def soonest(self) -> int:
        """The first of all latest starts, if anything waits."""
        if self._soonest_s is None:
            heads = (self.waiting[row[0][1]] for row in self.rows.values() if row)
            self._soonest_s = min(head.latest_s for head in heads)
        return self._soonest_s

    def is_any_late(self, now_s: int) -> bool:
        """Whether anybody's latest start is before its lanes are free. The first of a lane is the first whose
        is."""
        if not self.order or self.soonest() >= max([now_s, *self.busy_s.values()]):
            return False
        heads = (self.waiting[row[0][1]] for row in self.rows.values() if row)
        return any(head.latest_s < self.free_of(head, now_s) for head in heads)

    def starts(self, now_s: int) -> dict[int, int]:
        """When each would begin if all began as early as they can, in order."""
        free_s, found = dict(self.busy_s), {}
        for _, number in self.order:
            transfer = self.waiting[number].transfer
            at_s = found[number] = max([now_s, *(free_s.get(lane, 0) for lane in transfer.lanes)])
            free_s.update(dict.fromkeys(transfer.lanes, at_s + transfer.duration_s))
        return found


def entry_of(transfer: Transfer, latest_s: int = 0) -> WaitingTransfer:
    """A transfer with its place."""
    if transfer.deadline_s is None or transfer.release_s:
        raise ValueError(f"transfer {transfer.number} has no deadline, or a release")
    return WaitingTransfer(transfer, (transfer.deadline_s, transfer.number), latest_s)


def place_of(entry: WaitingTransfer) -> Place:
    return entry.place


def latest_and_place(entry: WaitingTransfer) -> tuple[int, Place]:
    return entry.latest_s, entry.place


def deadline_of(place: Place) -> int:
    return place[0]
