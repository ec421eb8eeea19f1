"""Transfers with deadlines over several links: each takes one lane of every link that it crosses.

In a lane transfers stand in the order of their deadlines, and of their numbers among equals. As on one
link (`deadline`), each has a latest start with which it and all behind it keep their deadlines:

    latest[k] = min(deadline[k], latest of the next in each of its lanes) - duration[k]

If nobody's latest start is before its lanes are free, then starting in that order, as late as that or
earlier, keeps every deadline: the first of each lane is free to begin, and whoever ends by then leaves
its lanes to the next by the next one's latest start.

A transfer keeps the lanes that it was planned with. To let it take any lane that is free when it begins
would use links better now and then, and break promises: with several resources at once, who begins early
can be in the way of somebody who begins later (Graham's anomaly). For the same reason nobody uses a gap
unless all that stand before it in its lanes can still begin in time afterwards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product

from outrider.core.links.lanes import (
    Lanes,
    Place,
    WaitingTransfer,
    deadline_of,
    entry_of,
    latest_and_place,
    place_of,
)
from outrider.core.links.network import Network, NetworkLink
from outrider.core.links.schedule import Insertion, ScheduleMark
from outrider.core.model import Transfer

NO_NUMBER = 1 << 62
"""Of a transfer that is only tried; it stands behind all others of its deadline."""
MOST_LANE_CHOICES = 6
"""So many combinations of lanes are tried for a transfer, the emptiest first."""
MOST_DEADLINES_TRIED = 64
"""Between so many deadlines the earliest one for a new transfer is looked for one by one."""
MOST_LOOKED_AHEAD = 32
"""So many transfers of a lane are looked at for one that may begin before those ahead of it."""


class DeadlineNetwork:
    """All waiting transfers of a network, and those that run."""

    def __init__(self, network: Network, *, reserve_s: int | None = None) -> None:
        if reserve_s is not None and reserve_s < 0:
            raise ValueError(f"a reserve of {reserve_s} s is impossible: give 0 or more, or None for EDF")
        self.network = network
        self.reserve_s = reserve_s
        self.aside: dict[int, Transfer] = {}
        self._lanes = Lanes()
        self._running: dict[int, tuple[Transfer, int]] = {}

    def __len__(self) -> int:
        return len(self._lanes.waiting)

    def plan(self, transfers: Sequence[Transfer], now_s: int) -> Insertion | None:
        """Where transfers of one deadline can go; None if nowhere."""
        before: dict[int, int] = {}
        placed: list[WaitingTransfer] = []
        try:
            for transfer in transfers:
                entry = self._put_anywhere(transfer, now_s, before)
                if entry is None:
                    return None
                placed.append(entry)
            new = {entry.transfer.number for entry in placed}
            moved = sorted((self._lanes.waiting[number] for number in before.keys() - new), key=place_of)
            return Insertion(
                transfers=tuple(entry.transfer for entry in placed),
                latest=tuple(entry.latest_s for entry in placed),
                moved=tuple(entry.transfer for entry in moved),
                pushed=tuple(entry.latest_s for entry in moved),
            )
        finally:
            for entry in placed:
                self._lanes.take_out(entry)
            for number, latest_s in before.items():
                if number in self._lanes.waiting:
                    self._lanes.set_latest(number, latest_s)

    def apply(self, insertion: Insertion) -> None:
        """Carry out what `plan` found. Nothing may have changed in between."""
        for transfer, latest_s in zip(insertion.transfers, insertion.latest, strict=True):
            self._lanes.put_in(entry_of(transfer, latest_s))
        for transfer, latest_s in zip(insertion.moved, insertion.pushed, strict=True):
            self._lanes.set_latest(transfer.number, latest_s)

    def in_order(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """The nodes as a relay passes an image on to them: those behind one link together."""
        return self.network.in_order(nodes)

    def cut_off(self, transfers: Sequence[Transfer], now_s: int) -> frozenset[str]:
        """After a refusal: the nodes behind links that have no time by then. None if their source's has none:
        other nodes would be no better off."""
        first = transfers[0]
        assert first.deadline_s is not None
        if all(self._is_full(source, first, now_s) for source in self.network.sources_for(first.image)):
            return frozenset()
        full: dict[str, bool] = {}
        found = []
        for node, link in self.network.groups.items():
            if link.name not in full:
                full[link.name] = self._is_full(link, first, now_s)
            if full[link.name]:
                found.append(node)
        return frozenset(found)

    def _is_full(self, link: NetworkLink, transfer: Transfer, now_s: int) -> bool:
        """Whether none of a link's lanes has time for a transfer, even if it crossed no other."""
        before: dict[int, int] = {}
        for lane in link.lane_names:
            # It may wait itself, with a later deadline.
            entry = entry_of(replace(transfer, number=NO_NUMBER, lanes=(lane,)))
            fits = self._put(entry, now_s, before)
            if fits:
                self._lanes.take_out(entry)
            for number, latest_s in before.items():
                if number in self._lanes.waiting:
                    self._lanes.set_latest(number, latest_s)
            before.clear()
            if fits:
                return False
        return True

    def _put_anywhere(self, transfer: Transfer, now_s: int, before: dict[int, int]) -> WaitingTransfer | None:
        """Enter a transfer on the emptiest lanes on which it has a place; None if it has none.

        `before` gets the latest starts that others had.
        """
        if transfer.deadline_s is None or transfer.release_s:
            raise ValueError(f"transfer {transfer.number} needs a deadline, and cannot have a release")
        hops = self.network.hops(transfer.image, transfer.nodes)
        choices = [self._by_room(hop, transfer, now_s) for hop in hops]
        # The last varies first: that is to be the source, which may have mirrors.
        for *others, source in islice(product(*choices[1:], choices[0]), MOST_LANE_CHOICES):
            entry = entry_of(replace(transfer, lanes=(source, *others)))
            tried: dict[int, int] = {}
            if self._put(entry, now_s, tried):
                for number, latest_s in tried.items():
                    before.setdefault(number, latest_s)
                return entry
            for number, latest_s in tried.items():
                self._lanes.set_latest(number, latest_s)
        return None

    def _by_room(self, hop: Sequence[NetworkLink], transfer: Transfer, now_s: int) -> list[str]:
        """The lanes of links, first those with most idle time before the transfer would have to begin."""
        names = [lane for link in hop for lane in link.lane_names]
        if len(names) == 1:
            return names
        place, room = entry_of(transfer).place, {}
        for lane in names:
            row = self._lanes.rows.get(lane, [])
            index = bisect_right(row, place)
            next_s = self._lanes.waiting[row[index][1]].latest_s if index < len(row) else place[0]
            taken_s = sum(self._lanes.waiting[number].transfer.duration_s for _, number in row[:index])
            room[lane] = min(place[0], next_s) - max(now_s, self._lanes.busy_s.get(lane, 0)) - taken_s
        return sorted(names, key=lambda lane: -room[lane])

    def _put(self, entry: WaitingTransfer, now_s: int, before: dict[int, int]) -> bool:
        """Enter a transfer and push ahead those before it; False, and it is not entered, if one of them, or
        it, would have to begin before its lanes are free."""
        self._lanes.put_in(entry)
        entry.latest_s = self._lanes.latest_of(entry)
        if entry.latest_s < self._lanes.free_of(entry, now_s) or not self._lanes.push(entry, now_s, before):
            self._lanes.take_out(entry)
            return False
        if (
            self._lanes.is_any_late(now_s)
            and self._lanes.starts(now_s)[entry.transfer.number] > entry.latest_s
        ):
            # Those before it are late: they still need all of their time.
            self._lanes.take_out(entry)
            return False
        return True

    def remove(self, number: int) -> bool:
        """Take a waiting transfer out; those before it may then start later. False if not waiting."""
        if number not in self._lanes.waiting:
            return False
        self._lanes.leave(number)
        return True

    def waits(self, number: int) -> bool:
        """Whether a transfer is planned and has not begun."""
        return number in self._lanes.waiting

    def waiting(self, only: Collection[int] | None = None) -> list[Transfer]:
        """The waiting transfers in their order, or those with these numbers in the order of these."""
        if only is None:
            return [self._lanes.waiting[number].transfer for _, number in self._lanes.order]
        return [
            self._lanes.waiting[number].transfer for number in sorted(only) if number in self._lanes.waiting
        ]

    def latest_start(self, number: int) -> int:
        """The latest start of one transfer, which waits."""
        return self._lanes.waiting[number].latest_s

    def latest_starts(self, before_s: int | None = None) -> list[tuple[Transfer, int]]:
        """Every waiting transfer with the latest start that keeps all deadlines, if that is before then."""
        if before_s is not None and (not self._lanes.order or self._lanes.soonest() >= before_s):
            return []
        entries = (self._lanes.waiting[number] for _, number in self._lanes.order)
        found = [each for each in entries if before_s is None or each.latest_s < before_s]
        return [(each.transfer, each.latest_s) for each in sorted(found, key=latest_and_place)]

    def due_after(self, at_s: int) -> Iterator[Transfer]:
        """The waiting transfers whose deadlines are later than that."""
        first = bisect_right(self._lanes.order, at_s, key=deadline_of)
        return (self._lanes.waiting[number].transfer for _, number in self._lanes.order[first:])

    def has_younger(self, deadline_s: int, number: int) -> bool:
        """Whether a transfer with this deadline waits whose number is higher."""
        index = bisect_right(self._lanes.order, (deadline_s, number))
        return index < len(self._lanes.order) and self._lanes.order[index][0] == deadline_s

    def next_deadline(self, after_s: int) -> int | None:
        """The next deadline from which on a new transfer stands in another place."""
        index = bisect_right(self._lanes.order, after_s, key=deadline_of)
        return self._lanes.order[index][0] if index < len(self._lanes.order) else None

    def late(self, now_s: int) -> frozenset[int]:
        """The waiting transfers that will begin too late even if nothing takes longer than planned."""
        if not self._lanes.is_any_late(now_s):
            return frozenset()
        starts = self._lanes.starts(now_s)
        return frozenset(
            number for number, at_s in starts.items() if at_s > self._lanes.waiting[number].latest_s
        )

    def overdue(self, now_s: int) -> frozenset[int]:
        """What can no longer keep its deadline by the plan: it waits behind what runs, or runs itself."""
        found = {
            number
            for number, each in self._lanes.waiting.items()
            if each.latest_s < self._lanes.free_of(each, now_s)
        }
        for number, (transfer, end_s) in self._running.items():
            if transfer.deadline_s is not None and max(now_s, end_s) > transfer.deadline_s:
                found.add(number)
        return frozenset(found)

    def planned(self, now_s: int, most: int | None = None) -> list[tuple[Transfer, int]]:
        """Every waiting transfer with about the start that it has if nothing else happens, or the first of
        them: who begins before those ahead of it is not told apart."""
        first = (self._lanes.waiting[number] for _, number in islice(self._lanes.order, most))
        pairs = [(each.transfer, each.latest_s) for each in first]
        begins = self.begins(pairs, now_s)
        found = [(transfer, at_s) for (transfer, _), at_s in zip(pairs, begins, strict=True)]
        return sorted(found, key=lambda pair: (pair[1], pair[0].number))

    def begins(self, planned: Iterable[tuple[Transfer, int]], now_s: int) -> list[int]:
        """When transfers with these latest starts are expected to begin, each behind those before it."""
        free_s, found = dict(self._lanes.busy_s), []
        for transfer, latest_s in planned:
            begin_s = max([now_s, *(free_s.get(lane, 0) for lane in transfer.lanes)])
            if self.reserve_s is not None:
                begin_s = max(begin_s, latest_s - self.reserve_s)
            found.append(begin_s)
            free_s.update(dict.fromkeys(transfer.lanes, begin_s + transfer.duration_s))
        return found

    def earliest_deadline(self, duration_s: int, now_s: int, not_before_s: int) -> int:
        """No deadline before this one leaves so much time: whichever way it takes, it takes so long."""
        return max(not_before_s, now_s + 1)

    def earliest_deadline_of(self, transfers: Sequence[Transfer], now_s: int, not_before_s: int) -> int:
        """The earliest deadline by which all these can be brought.

        Between two deadlines of others a later one leaves more time, and is found by halving. Behind the
        first `MOST_DEADLINES_TRIED` of these, what is found need not be the very first.
        """
        if not transfers:
            return not_before_s
        longest_s = sum(each.duration_s for each in transfers)
        low = max(not_before_s, now_s + max(each.duration_s for each in transfers))
        last_s = self._lanes.order[-1][0] if self._lanes.order else now_s
        high = max(low, last_s, *self._lanes.busy_s.values(), now_s) + longest_s
        first = bisect_right(self._lanes.order, low, key=deadline_of)
        for edge_s in sorted({place[0] for place in self._lanes.order[first:][:MOST_DEADLINES_TRIED]}):
            if edge_s > low and self._can_by(edge_s - 1, transfers, now_s):
                high = edge_s - 1
                break
            low = max(low, edge_s)
        while low < high:
            middle = (low + high) // 2
            if self._can_by(middle, transfers, now_s):
                high = middle
            else:
                low = middle + 1
        return high

    def _can_by(self, deadline_s: int, transfers: Sequence[Transfer], now_s: int) -> bool:
        return self.plan([replace(each, deadline_s=deadline_s) for each in transfers], now_s) is not None

    def mark(self) -> ScheduleMark:
        return self._lanes.mark()

    def back_to(self, mark: ScheduleMark) -> None:
        """Let that wait which waited when `mark` was made; nothing may have begun since."""
        self._lanes.back_to(mark)

    def under_way(self) -> tuple[tuple[Transfer, int], ...]:
        """What runs by the plan, and when each has ended by it."""
        return tuple(sorted(self._running.values(), key=lambda each: (each[1], each[0].number)))

    def next_event_s(self, now_s: int) -> int | None:
        """When the next transfer begins, or one that runs has ended by the plan."""
        instants = [end_s for _, end_s in self._running.values()]
        following = self.next_start(now_s)
        if following is not None:
            instants.append(following[0])
        return min(instants, default=None)

    def next_start(self, now_s: int) -> tuple[int, int] | None:
        """When the next transfer may begin and its number; None if none may before one ends.

        In a lane the first, or one behind it that ends before all ahead of it must have begun.
        """
        in_use = {lane for transfer, _ in self._running.values() for lane in transfer.lanes}
        best: tuple[int, Place] | None = None
        for lane in sorted(self._lanes.rows):
            if lane in in_use:
                continue
            for place in self._lanes.rows[lane][:MOST_LOOKED_AHEAD]:
                entry = self._lanes.waiting[place[1]]
                start_s = self._start_s(entry, now_s)
                if best is not None and (start_s, place) >= best:
                    # Who stands behind it has a later latest start.
                    if self.reserve_s is not None and entry.latest_s - self.reserve_s > best[0]:
                        break
                    continue
                if in_use.isdisjoint(entry.lanes) and self._may_overtake(entry, start_s):
                    best = start_s, place
        return None if best is None else (best[0], best[1][1])

    def _start_s(self, entry: WaitingTransfer, now_s: int) -> int:
        start_s = self._lanes.free_of(entry, now_s)
        return start_s if self.reserve_s is None else max(start_s, entry.latest_s - self.reserve_s)

    def _may_overtake(self, entry: WaitingTransfer, start_s: int) -> bool:
        """Whether it ends before the first of each of its lanes must begin, unless it is that itself."""
        end_s = start_s + entry.transfer.duration_s
        heads = (self._lanes.waiting[self._lanes.rows[lane][0][1]] for lane in entry.lanes)
        return all(head is entry or end_s <= head.latest_s for head in heads)

    def begin(self, place: int, now_s: int) -> Transfer:
        """Start the transfer that `next_start` named. From now on it cannot be moved."""
        entry = self._lanes.waiting[place]
        taken = [
            number for number, (other, _) in self._running.items() if set(other.lanes) & set(entry.lanes)
        ]
        if taken:
            raise ValueError(f"transfer {taken[0]} still runs on a link of transfer {place}")
        self._lanes.leave(place)
        self.resume_running(entry.transfer, now_s + entry.transfer.duration_s)
        return entry.transfer

    def would_delay(self, number: int, until_s: int) -> bool:
        """Whether somebody who waits would be late if what runs took until then."""
        transfer, _ = self._running[number]
        rows = (self._lanes.rows.get(lane) for lane in transfer.lanes)
        return any(row and self._lanes.waiting[row[0][1]].latest_s < until_s for row in rows)

    def extend(self, number: int, until_s: int) -> None:
        """What runs is expected to end then."""
        transfer, _ = self._running[number]
        self.resume_running(transfer, until_s)

    def set_aside(self, number: int, now_s: int) -> Transfer:
        """Let what runs go on outside of the plan, so that others may begin."""
        transfer = self.aside[number] = self._finish(number, now_s)
        return transfer

    def end(self, number: int, now_s: int) -> Transfer:
        """A transfer that had begun has really ended, early or late, within the plan or aside."""
        return self.aside.pop(number) if number in self.aside else self._finish(number, now_s)

    def _finish(self, number: int, now_s: int) -> Transfer:
        if number not in self._running:
            raise ValueError(f"transfer {number} does not run on these links")
        transfer, _ = self._running.pop(number)
        for lane in transfer.lanes:
            self._lanes.busy_s[lane] = now_s
        return transfer

    def resume_running(self, transfer: Transfer, until_s: int) -> None:
        """Put back what ran before a restart, and by when it should have ended."""
        self._running[transfer.number] = transfer, until_s
        self._lanes.busy_s.update(dict.fromkeys(transfer.lanes, until_s))

    def resume_aside(self, transfer: Transfer) -> None:
        """Put back a transfer that went on outside of the plan before a restart."""
        self.aside[transfer.number] = transfer

    def resume_waiting(self, transfers: Sequence[Transfer]) -> None:
        """Put back what waited before a restart; latest starts may have passed in the meantime.

        What was planned for links that are others now gets lanes of these.
        """
        if self._lanes.waiting:
            raise ValueError("transfers wait on these links already")
        for transfer in sorted(transfers, key=lambda each: entry_of(each).place):
            self._lanes.put_in(entry_of(self._on_lanes(transfer)))
        for _, number in reversed(self._lanes.order):
            entry = self._lanes.waiting[number]
            entry.latest_s = self._lanes.latest_of(entry)

    def _on_lanes(self, transfer: Transfer) -> Transfer:
        hops = self.network.hops(transfer.image, transfer.nodes)
        known = [lane for hop in hops for link in hop for lane in link.lane_names if lane in transfer.lanes]
        if len(known) == len(hops) == len(transfer.lanes):
            return transfer
        # Those ahead of it have their lanes already, in which nobody's latest start is known yet.
        return replace(transfer, lanes=tuple(map(self._shortest, hops)))

    def _shortest(self, hop: Sequence[NetworkLink]) -> str:
        lanes = [lane for link in hop for lane in link.lane_names]
        return min(lanes, key=lambda lane: (len(self._lanes.rows.get(lane, ())), lane))
