"""Transfers with deadlines on one link: EDF, EDF/JIT and what lies between (thesis, Algorithms 2 and 3).

The schedule is a sequence of waiting transfers together with the latest instant at which
each may start so that it and all behind it still meet their deadlines:

    latest[k] = min(deadline[k], latest[k + 1]) - duration[k]

That is what Algorithm 3 computes. The sequence is feasible exactly when no latest start is
before the transfer's release and the first is not before the link is free; and then
*every* earlier start in the same order meets the deadlines too, which is what Algorithm 2
does. So one structure serves both strategies, and a transfer that is inserted touches only
those before it, as far as the first gap that is wide enough.

The sequence is in the order of deadlines unless a release forces a transfer into a gap
further ahead. A transfer that runs is never moved. `reserve_s` says how long before its
latest start a transfer is started if the link is idle: None is EDF (at once), 0 is EDF/JIT
(as late as possible). Pure JIT leaves the link idle now and refuses later requests for want
of exactly that time, so a few minutes' reserve accepts more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from outrider.core.links.schedule import Insertion, ScheduleMark
from outrider.core.model import Transfer


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkInsertion(Insertion):
    """One behind another, from `position` in the sequence on, which is sorted by `key_s` there."""

    position: int
    key_s: int


class DeadlineLink:
    """One link's waiting transfers, and the one that runs.

    What runs may be put aside: it goes on outside of the plan, which no longer says when it ends.
    """

    def __init__(self, *, reserve_s: int | None = None) -> None:
        if reserve_s is not None and reserve_s < 0:
            raise ValueError(f"a reserve of {reserve_s} s is impossible: give 0 or more, or None for EDF")
        self.reserve_s = reserve_s
        self.running: Transfer | None = None
        self.busy_until_s = 0
        self.aside: dict[int, Transfer] = {}
        self._waiting: list[Transfer] = []
        self._by_number: dict[int, Transfer] = {}
        self._latest: list[int] = []
        # What the sequence is sorted by: the deadline, or less where a gap further ahead was used.
        self._keys: list[int] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def resume_running(self, transfer: Transfer, until_s: int) -> None:
        """Put back the transfer that ran before a restart, and by when it should have ended."""
        if self.running is not None:
            raise ValueError(f"transfer {self.running.number} and {transfer.number} cannot both run")
        self.running = transfer
        self.busy_until_s = until_s

    def resume_aside(self, transfer: Transfer) -> None:
        """Put back a transfer that went on outside of the plan before a restart."""
        self.aside[transfer.number] = transfer

    def resume_waiting(self, transfers: Sequence[Transfer]) -> None:
        """Put back what waited before a restart; latest starts may have passed in the meantime.

        Without releases the sequence is that of deadlines, and of numbers among equals.
        """
        if self._waiting:
            raise ValueError("transfers wait on this link already")
        keyed: list[tuple[int, int, Transfer]] = []
        for transfer in transfers:
            if transfer.deadline_s is None or transfer.release_s:
                raise ValueError(
                    f"transfer {transfer.number} has no deadline, or a release: its place is lost"
                )
            keyed.append((transfer.deadline_s, transfer.number, transfer))
        keyed.sort(key=lambda each: each[:2])
        self._waiting = [transfer for _, _, transfer in keyed]
        self._by_number = {transfer.number: transfer for transfer in self._waiting}
        self._keys = [deadline_s for deadline_s, _, _ in keyed]
        next_s = keyed[-1][0] if keyed else 0
        latest: list[int] = []
        for deadline_s, _, transfer in reversed(keyed):
            next_s = min(deadline_s, next_s) - transfer.duration_s
            latest.append(next_s)
        self._latest = latest[::-1]

    def plan(self, transfers: Sequence[Transfer], now_s: int) -> LinkInsertion | None:
        """Where `transfers`, which share deadline and release, can go; None if nowhere."""
        deadline_s = transfers[0].deadline_s
        if deadline_s is None:
            raise ValueError("a transfer without a deadline belongs in a FIFO link")
        floor_s = max(now_s, self.busy_until_s)
        position = bisect_right(self._keys, deadline_s)
        key_s = deadline_s
        while True:
            found = self._insertion(position, key_s, transfers, floor_s)
            if isinstance(found, LinkInsertion):
                return found
            # Only a release can make a place further ahead better than the deadline's own:
            # there the transfer uses a gap before one that cannot start earlier.
            if found >= position or self._waiting[found].release_s <= floor_s:
                return None
            position = found
            key_s = self._keys[position]

    def _insertion(
        self, position: int, key_s: int, transfers: Sequence[Transfer], floor_s: int
    ) -> LinkInsertion | int:
        """The insertion at `position`, or the index of the transfer that prevents it.

        An index of `position` means one of the new transfers itself.
        """
        waiting, latest = self._waiting, self._latest
        next_s = latest[position] if position < len(latest) else key_s
        starts: list[int] = []
        for transfer in reversed(transfers):
            assert transfer.deadline_s is not None
            next_s = min(transfer.deadline_s, next_s) - transfer.duration_s
            if next_s < transfer.release_s or next_s < floor_s:
                # Too early for itself: moving those before it cannot help.
                return position
            starts.append(next_s)
        if position and latest[0] < floor_s and self._sent_s(position, floor_s) > next_s:
            # Those before it are late: they still need all of their time, and nobody else may have it.
            return position
        pushed: list[int] = []
        index = position - 1
        while index >= 0:
            before = waiting[index]
            start_s = next_s - before.duration_s
            if start_s >= latest[index]:
                break
            if start_s < before.release_s or start_s < floor_s:
                return index
            pushed.append(start_s)
            next_s = start_s
            index -= 1
        return LinkInsertion(
            position=position,
            key_s=key_s,
            transfers=tuple(transfers),
            latest=tuple(reversed(starts)),
            moved=tuple(waiting[index + 1 : position]),
            pushed=tuple(reversed(pushed)),
        )

    def apply(self, insertion: Insertion) -> None:
        """Carry out what `plan` found. Nothing may have changed in between."""
        assert isinstance(insertion, LinkInsertion)
        position, count = insertion.position, len(insertion.transfers)
        self._latest[position - len(insertion.pushed) : position] = insertion.pushed
        self._latest[position:position] = insertion.latest
        self._waiting[position:position] = insertion.transfers
        self._by_number.update({transfer.number: transfer for transfer in insertion.transfers})
        self._keys[position:position] = [insertion.key_s] * count

    def in_order(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """The nodes as a relay passes an image on to them: on one link any order will do."""
        return tuple(nodes)

    def cut_off(self, transfers: Sequence[Transfer], now_s: int) -> frozenset[str]:
        """After a refusal: one link is as long for all nodes."""
        return frozenset()

    def remove(self, number: int) -> bool:
        """Take a waiting transfer out; those before it may then start later. False if not waiting."""
        if number not in self._by_number:
            return False
        index = self._place(number)
        del self._by_number[number]
        del self._waiting[index], self._latest[index], self._keys[index]
        self._slacken(index)
        return True

    def waits(self, number: int) -> bool:
        """Whether a transfer is planned and has not begun."""
        return number in self._by_number

    def next_start(self, now_s: int) -> tuple[int, int] | None:
        """When the next transfer starts and its index; None if nothing waits or one runs."""
        if self.running is not None or not self._waiting:
            return None
        return self._choose(range(len(self._waiting)), max(now_s, self.busy_until_s))

    def begin(self, index: int, now_s: int) -> Transfer:
        """Start the transfer that `next_start` named. From now on it cannot be moved."""
        if self.running is not None:
            raise ValueError(f"transfer {self.running.number} still runs on this link")
        transfer = self._waiting.pop(index)
        del self._by_number[transfer.number]
        del self._latest[index], self._keys[index]
        self._slacken(index)
        self.running = transfer
        self.busy_until_s = now_s + transfer.duration_s
        return transfer

    def under_way(self) -> tuple[tuple[Transfer, int], ...]:
        """What runs by the plan, and when it has ended by it."""
        return () if self.running is None else ((self.running, self.busy_until_s),)

    def next_event_s(self, now_s: int) -> int | None:
        """When the next transfer begins, or the running one has ended by the plan."""
        if self.running is not None:
            return self.busy_until_s
        following = self.next_start(now_s)
        return None if following is None else following[0]

    def would_delay(self, number: int, until_s: int) -> bool:
        """Whether somebody who waits would be late if what runs took until then."""
        return bool(self._latest) and self._latest[0] < until_s

    def extend(self, number: int, until_s: int) -> None:
        """What runs is expected to end then."""
        self._require_running(number)
        self.busy_until_s = until_s

    def set_aside(self, number: int, now_s: int) -> Transfer:
        """Let the running transfer go on outside of the plan, so that the next may begin."""
        transfer = self.aside[number] = self._finish(number, now_s)
        return transfer

    def end(self, number: int, now_s: int) -> Transfer:
        """A transfer that had begun has really ended, early or late, on the link or beside it."""
        return self.aside.pop(number) if number in self.aside else self._finish(number, now_s)

    def _finish(self, number: int, now_s: int) -> Transfer:
        transfer = self._require_running(number)
        self.running = None
        self.busy_until_s = now_s
        return transfer

    def _require_running(self, number: int) -> Transfer:
        if self.running is None or self.running.number != number:
            raise ValueError(f"transfer {number} does not run on this link")
        return self.running

    def begins(self, planned: Iterable[tuple[Transfer, int]], now_s: int) -> list[int]:
        """When transfers with these latest starts are expected to begin, each behind those before it."""
        free_s, found = max(now_s, self.busy_until_s), []
        for transfer, latest_s in planned:
            begin_s = free_s if self.reserve_s is None else max(free_s, latest_s - self.reserve_s)
            found.append(begin_s)
            free_s = begin_s + transfer.duration_s
        return found

    def mark(self) -> ScheduleMark:
        return ScheduleMark(tuple(self._waiting), tuple(self._latest), tuple(self._keys))

    def back_to(self, mark: ScheduleMark) -> None:
        """Let that wait which waited when `mark` was made; nothing may have begun since."""
        self._waiting, self._latest, self._keys = list(mark.waiting), list(mark.latest), list(mark.keys)
        self._by_number = {transfer.number: transfer for transfer in self._waiting}

    def due_after(self, at_s: int) -> Iterator[Transfer]:
        """The waiting transfers whose deadlines are later than that."""
        return islice(self._waiting, bisect_right(self._keys, at_s), None)

    def has_younger(self, deadline_s: int, number: int) -> bool:
        """Whether a transfer with this deadline waits whose number is higher."""
        first, last = bisect_left(self._keys, deadline_s), bisect_right(self._keys, deadline_s)
        return any(transfer.number > number for transfer in self._waiting[first:last])

    def planned(self, now_s: int, most: int | None = None) -> list[tuple[Transfer, int]]:
        """Every waiting transfer with the start it has if nothing else happens, or the first of them."""
        return [(self._waiting[index], start_s) for start_s, index in islice(self._starts(now_s), most)]

    def waiting(self, only: Collection[int] | None = None) -> list[Transfer]:
        """The waiting transfers in their order, or those with these numbers in the order of these."""
        if only is None:
            return list(self._waiting)
        return [self._by_number[number] for number in sorted(only) if number in self._by_number]

    def latest_starts(self, before_s: int | None = None) -> list[tuple[Transfer, int]]:
        """Every waiting transfer with the latest start that keeps all deadlines, if that is before then."""
        stop = len(self._latest) if before_s is None else bisect_left(self._latest, before_s)
        return list(zip(self._waiting[:stop], self._latest[:stop], strict=True))

    def late(self, now_s: int) -> frozenset[int]:
        """The waiting transfers that will begin too late even if nothing takes longer than planned:
        the first whose time is over, and who comes behind them until the link has caught up."""
        found: list[int] = []
        cursor_s = max(now_s, self.busy_until_s)
        for transfer, latest_s in zip(self._waiting, self._latest, strict=True):
            if cursor_s <= latest_s:
                break
            found.append(transfer.number)
            cursor_s = max(cursor_s, transfer.release_s) + transfer.duration_s
        return frozenset(found)

    def overdue(self, now_s: int) -> frozenset[int]:
        """What can no longer keep its deadline by the plan: it waits behind what runs, or runs itself."""
        free_s = max(now_s, self.busy_until_s)
        found = {transfer.number for transfer, _ in self.latest_starts(free_s)}
        running = self.running
        if running is not None and running.deadline_s is not None and free_s > running.deadline_s:
            found.add(running.number)
        return frozenset(found)

    def latest_start(self, number: int) -> int:
        """The same of one transfer, which waits."""
        return self._latest[self._place(number)]

    def earliest_deadline(self, duration_s: int, now_s: int, not_before_s: int) -> int:
        """The earliest deadline from `not_before_s` on that leaves `duration_s` of idle link before it.

        Exact when no waiting transfer has a release in the future; otherwise a lower bound.
        """
        cursor_s = max(now_s, self.busy_until_s)
        missing_s = duration_s
        for transfer, latest_s in zip(self._waiting, self._latest, strict=True):
            gap_s = latest_s - cursor_s
            if gap_s >= missing_s:
                return max(cursor_s + missing_s, not_before_s)
            missing_s -= gap_s
            cursor_s = latest_s + transfer.duration_s
        return max(cursor_s + missing_s, not_before_s)

    def earliest_deadline_of(self, transfers: Sequence[Transfer], now_s: int, not_before_s: int) -> int:
        """The same for several transfers."""
        return self.earliest_deadline(sum(each.duration_s for each in transfers), now_s, not_before_s)

    def next_deadline(self, after_s: int) -> int | None:
        """The next deadline from which on a new transfer stands in another place."""
        index = bisect_right(self._keys, after_s)
        return self._keys[index] if index < len(self._keys) else None

    def _sent_s(self, count: int, floor_s: int) -> int:
        """When the first so many will have been sent, one behind another from `floor_s` on."""
        cursor_s = floor_s
        for transfer in self._waiting[:count]:
            cursor_s = max(cursor_s, transfer.release_s) + transfer.duration_s
        return cursor_s

    def _slacken(self, index: int) -> None:
        """Whoever stood before a transfer that left from `index` may now start later."""
        next_s = self._latest[index] if index < len(self._latest) else None
        for before in range(index - 1, -1, -1):
            transfer = self._waiting[before]
            assert transfer.deadline_s is not None
            end_s = transfer.deadline_s if next_s is None else min(transfer.deadline_s, next_s)
            next_s = end_s - transfer.duration_s
            if next_s == self._latest[before]:
                break
            self._latest[before] = next_s

    def _place(self, number: int) -> int:
        """Where in the sequence a transfer waits: where its deadline belongs, or further ahead."""
        transfer = self._by_number[number]
        assert transfer.deadline_s is not None
        index = bisect_right(self._keys, transfer.deadline_s) - 1
        while self._waiting[index] is not transfer:
            index -= 1
        return index

    def _starts(self, now_s: int) -> Iterator[tuple[int, int]]:
        """Starts in the order in which they happen, each with its index in the sequence."""
        left = list(range(len(self._waiting)))
        clock_s = max(now_s, self.busy_until_s)
        while left:
            start_s, chosen = self._choose(left, clock_s)
            index = left.pop(chosen)
            yield start_s, index
            clock_s = start_s + self._waiting[index].duration_s

    def _choose(self, left: Sequence[int], clock_s: int) -> tuple[int, int]:
        """Who of the waiting `left` starts next, and when.

        The first of the sequence, unless the link would idle before it: then one behind it
        that can start sooner and ends before the first must start.
        """
        must_end_s = self._latest[left[0]]
        best_s, best = self._earliest_start(left[0], clock_s), 0
        for place in range(1, len(left)):
            if best_s == clock_s:
                break
            index = left[place]
            if self.reserve_s is not None and self._latest[index] - self.reserve_s >= best_s:
                break
            start_s = self._earliest_start(index, clock_s)
            if start_s < best_s and start_s + self._waiting[index].duration_s <= must_end_s:
                best_s, best = start_s, place
        return best_s, best

    def _earliest_start(self, index: int, clock_s: int) -> int:
        start_s = max(clock_s, self._waiting[index].release_s)
        return start_s if self.reserve_s is None else max(start_s, self._latest[index] - self.reserve_s)
