"""What waits in the queue, in its order and by what decides when it could start.

A walk of a long queue asks of most that wait only whether they could start at all. Those that differ in
nothing but how long they last are a `Group`, and one look tells for all of them; so what a walk costs depends
on how many groups there are, not on how many wait.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from outrider.core.besteffort.board import QueueBoard
from outrider.core.model import Workspace
from outrider.core.nodes.free_masks import FreeStairs
from outrider.core.nodes.node_timeline import FOREVER


class WaitingGroup(NamedTuple):
    """Waiting workspaces that could start at the same instants: the first of them tells for all."""

    need: int
    image_key: str
    image_bytes: int
    least_nodes: int
    is_suspendable: bool


@dataclass(slots=True)
class WaitingWorkspace:
    """A workspace in the queue. `left` counts the instances of a serial one still to place."""

    order: int
    workspace: Workspace
    need: int
    left: int
    least_nodes: int = 1
    """How many nodes it takes at the very least."""
    submitted_s: int = 0
    group: WaitingGroup | None = None
    """What decides when it could start, beside how long it lasts. None if that depends on how many
    transfers it takes."""


class GroupLine:
    """Those of one group, by their order in the queue."""

    __slots__ = ("_lengths", "_shortest_s", "orders")

    def __init__(self) -> None:
        self.orders: list[int] = []
        self._lengths: list[int] = []
        self._shortest_s: int | None = None

    def add(self, order: int, length_s: int) -> None:
        index = bisect_left(self.orders, order)
        self.orders.insert(index, order)
        self._lengths.insert(index, length_s)
        self._shortest_s = None

    def remove(self, order: int) -> None:
        index = bisect_left(self.orders, order)
        del self.orders[index], self._lengths[index]
        self._shortest_s = None

    def first_from(self, index: int, longest_s: int) -> int | None:
        """The order of the first from an index on that lasts no longer."""
        if self._shortest_s is None:
            self._shortest_s = min(self._lengths)
        if longest_s < self._shortest_s:
            return None
        lengths = self._lengths
        for later in range(index, len(lengths)):
            if lengths[later] <= longest_s:
                return self.orders[later]
        return None


class WaitingLine:
    """All that wait, in the order of the queue."""

    def __init__(self) -> None:
        self._waiting: dict[int, WaitingWorkspace] = {}
        self._orders: list[int] = []
        self._alone: list[int] = []
        # By what decides how many nodes are free, and by how many nodes it takes.
        self._lines: dict[tuple[int, int], dict[int, dict[WaitingGroup, GroupLine]]] = {}
        self._sizes: dict[tuple[int, int], list[int]] = {}

    def __len__(self) -> int:
        return len(self._orders)

    def __iter__(self) -> Iterator[WaitingWorkspace]:
        return (self._waiting[order] for order in self._orders)

    def get(self, order: int) -> WaitingWorkspace | None:
        return self._waiting.get(order)

    def add(self, waiting: WaitingWorkspace) -> None:
        order, group = waiting.order, waiting.group
        self._waiting[order] = waiting
        insort(self._orders, order)
        if group is None:
            insort(self._alone, order)
            return
        kind, least_nodes = (group.need, group.image_bytes), group.least_nodes
        sizes = self._lines.setdefault(kind, {})
        if least_nodes not in sizes:
            sizes[least_nodes] = {}
            insort(self._sizes.setdefault(kind, []), least_nodes)
        line = sizes[least_nodes].setdefault(group, GroupLine())
        line.add(order, waiting.workspace.duration_s)

    def remove(self, waiting: WaitingWorkspace) -> None:
        order, group = waiting.order, waiting.group
        del self._waiting[order]
        del self._orders[bisect_left(self._orders, order)]
        if group is None:
            del self._alone[bisect_left(self._alone, order)]
            return
        kind = group.need, group.image_bytes
        sizes = self._lines[kind]
        line = sizes[group.least_nodes][group]
        line.remove(order)
        if not line.orders:
            del sizes[group.least_nodes][group]
            if not sizes[group.least_nodes]:
                del sizes[group.least_nodes]
                self._sizes[kind].remove(group.least_nodes)

    def after(self, order: int) -> WaitingWorkspace | None:
        """The first behind a place in the queue."""
        index = bisect_right(self._orders, order)
        return self._waiting[self._orders[index]] if index < len(self._orders) else None

    def possible_after(self, order: int, chances: StartChances) -> WaitingWorkspace | None:
        """The first behind a place in the queue that may be able to start."""
        best = FOREVER
        if self._alone and self._alone[-1] > order:
            best = self._alone[bisect_right(self._alone, order)]
        for kind, sizes in self._lines.items():
            windows = chances.windows(kind)
            for least_nodes in self._sizes[kind]:
                if least_nodes > windows.count:
                    break
                for group, line in sizes[least_nodes].items():
                    index = bisect_right(line.orders, order)
                    if index < len(line.orders) and line.orders[index] < best:
                        if group.is_suspendable:
                            longest_s = chances.longest_s(group)
                        else:
                            longest_s = windows.longest_s(least_nodes)
                        found = line.first_from(index, longest_s)
                        if found is not None and found < best:
                            best = found
        return self._waiting.get(best)


class PossibleStart:
    """An instant at which what has one need and one image could start, and until when nodes are free."""

    __slots__ = ("_board", "_change_s", "_free", "stairs")

    def __init__(self, board: QueueBoard, need: int, at_s: int, mask: int) -> None:
        self._board = board
        self._free = board.free_nodes(need, at_s) & mask
        self.stairs = board.free_stairs(need, at_s, self._free)
        self._change_s: int | None = None

    @property
    def change_s(self) -> int:
        """The next instant at which what runs on these nodes could be suspended."""
        if self._change_s is None:
            board, free, at_s, self._change_s = self._board, self._free, self.stairs.at_s, FOREVER
            if board.rules.suspension.makes_way_for_all:
                self._change_s = at_s + 1
            else:
                for instant_s, begun, ended in board.book.timeline.boundaries_after(at_s):
                    if (begun | ended) & free:
                        self._change_s = instant_s
                        break
        return self._change_s


class StartWindows:
    """For how long so many nodes are free at most, of several instants."""

    __slots__ = ("_longest", "_stairs", "count")

    def __init__(self, stairs: list[FreeStairs]) -> None:
        self._stairs = stairs
        self._longest: dict[int, int] = {}
        self.count = max([each.count for each in stairs])
        """How many nodes are free at most at any of them."""

    def longest_s(self, nodes: int) -> int:
        longest_s = self._longest.get(nodes)
        if longest_s is None:
            longest_s = max([each.until_s(nodes) - each.at_s for each in self._stairs])
            self._longest[nodes] = longest_s
        return longest_s


class StartChances:
    """How long what waits can last at most if it is to start now, or when its image could be there.

    As many nodes as it takes at least must be free to its end, or until it could be suspended: for a
    reservation that begins or ends, or for anything. That tells most of a long queue apart without looking
    for nodes: what cannot be suspended by one look for all images of its size. It holds as long as nothing
    is placed; afterwards `forget`.
    """

    def __init__(self, board: QueueBoard, now_s: int) -> None:
        self._board = board
        self._now_s = now_s
        self._starts: dict[tuple[int, str], list[PossibleStart]] = {}
        self._longest: dict[WaitingGroup, int] = {}
        self._windows: dict[tuple[int, int], StartWindows] = {}

    def forget(self) -> None:
        if self._windows:
            self._windows.clear()
            self._starts.clear()
            self._longest.clear()

    def windows(self, kind: tuple[int, int]) -> StartWindows:
        """For a need, the instants at which an image of some size could be anywhere."""
        found = self._windows.get(kind)
        if found is None:
            board, now_s = self._board, self._now_s
            need, image_bytes = kind
            instants = {now_s}
            if image_bytes:
                instants.add(board.links.end_if_added(image_bytes, 1, now_s))
                instants.update(at_s for at_s in board.book.pools.all_coming_times() if at_s > now_s)
            everyone = board.everything.everyone
            stairs = [board.free_stairs(need, at_s, everyone) for at_s in instants]
            found = self._windows[kind] = StartWindows(stairs)
        return found

    def longest_s(self, group: WaitingGroup) -> int:
        """So long can what is suspendable last; for ever, if it could be suspended for a reservation."""
        longest_s = self._longest.get(group)
        if longest_s is None:
            longest_s = self._longest[group] = self._look(group)
        return longest_s

    def _look(self, group: WaitingGroup) -> int:
        key = group.need, group.image_key
        starts = self._starts.get(key)
        if starts is None:
            starts = self._starts[key] = self._make_starts(group)
        longest_s, least = 0, group.least_nodes
        for start in starts:
            stairs = start.stairs
            if stairs.count >= least:
                until_s = stairs.until_s(least)
                if until_s >= start.change_s:
                    return FOREVER
                longest_s = max(longest_s, until_s - stairs.at_s)
        return longest_s

    def _make_starts(self, group: WaitingGroup) -> list[PossibleStart]:
        board, now_s, need = self._board, self._now_s, group.need
        everyone = board.everything.everyone
        if not group.image_key:
            return [PossibleStart(board, need, now_s, everyone)]
        pools = board.book.pools
        arrival_s = board.links.end_if_added(group.image_bytes, 1, now_s)
        starts = [PossibleStart(board, need, arrival_s, everyone)]
        holders = pools.mask_with(group.image_key)
        if holders:
            coming = [at_s for at_s in pools.coming_times(group.image_key) if at_s > now_s]
            starts += [PossibleStart(board, need, at_s, holders) for at_s in (now_s, *coming)]
        return starts
