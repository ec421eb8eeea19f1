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

from outrider.core.besteffort.backfilling.group_line import GroupLine
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


class WaitingLine:
    """All that wait, in the order of the queue."""

    def __init__(self) -> None:
        self._waiting: dict[int, WaitingWorkspace] = {}
        self._orders: list[int] = []
        self._alone: list[int] = []
        self._groups: dict[WaitingGroup, GroupLine[int]] = {}
        self._lines: dict[tuple[int, int], dict[tuple[str, bool], list[tuple[int, GroupLine[int]]]]] = {}
        """The same, by what decides how many nodes are free, by what decides how long, and, in order, by how
        many nodes it takes."""

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
        line = self._groups.get(group)
        if line is None:
            line = self._groups[group] = GroupLine()
            insort(self._sizes(group), (group.least_nodes, line), key=_size)
        line.add(order, waiting.workspace.duration_s)

    def remove(self, waiting: WaitingWorkspace) -> None:
        order, group = waiting.order, waiting.group
        del self._waiting[order]
        del self._orders[bisect_left(self._orders, order)]
        if group is None:
            del self._alone[bisect_left(self._alone, order)]
            return
        line = self._groups[group]
        line.remove(order)
        if not line.places:
            del self._groups[group]
            sizes = self._sizes(group)
            del sizes[bisect_left(sizes, group.least_nodes, key=_size)]

    def _sizes(self, group: WaitingGroup) -> list[tuple[int, GroupLine[int]]]:
        """The groups that differ from this one in nothing but how many nodes they take."""
        sources = self._lines.setdefault((group.need, group.image_bytes), {})
        return sources.setdefault((group.image_key, group.is_suspendable), [])

    def after(self, order: int) -> WaitingWorkspace | None:
        """The first behind a place in the queue."""
        index = bisect_right(self._orders, order)
        return self._waiting[self._orders[index]] if index < len(self._orders) else None

    def possible_after(self, order: int, chances: StartChances) -> WaitingWorkspace | None:
        """The first behind a place in the queue that may be able to start."""
        best = FOREVER
        if self._alone and self._alone[-1] > order:
            best = self._alone[bisect_right(self._alone, order)]
        for (need, image_bytes), sources in self._lines.items():
            windows = chances.windows((need, image_bytes))
            if not windows.count:
                continue
            for (image_key, is_suspendable), sizes in sources.items():
                starts = windows
                for least_nodes, line in sizes:
                    if least_nodes > windows.count:
                        break
                    orders = line.places
                    if orders[-1] <= order or orders[0] >= best:
                        continue
                    if not is_suspendable:
                        longest_s = windows.longest_unbroken_s(least_nodes)
                    elif windows.longest_s(least_nodes) < line.shortest_s:
                        # For no image are nodes free for long enough.
                        continue
                    else:
                        if starts is windows:
                            starts = chances.starts(need, image_key, image_bytes)
                        longest_s = starts.longest_s(least_nodes)
                        if longest_s == FOREVER and chances.is_none(need, image_key, least_nodes):
                            longest_s = max(starts.longest_unbroken_s(least_nodes), chances.least_run_s - 1)
                    best = line.first_after(order, longest_s, best)
        return self._waiting.get(best)


def _size(line: tuple[int, GroupLine[int]]) -> int:
    return line[0]


class PossibleStart:
    """An instant at which what has one need and one image could start, and until when nodes are free."""

    __slots__ = ("_board", "_change_s", "_need", "stairs")

    def __init__(self, board: QueueBoard, need: int, stairs: FreeStairs) -> None:
        self._board = board
        self._need = need
        self.stairs = stairs
        self._change_s: int | None = None

    @property
    def change_s(self) -> int:
        """The next instant at which what runs on these nodes could be suspended."""
        if self._change_s is None:
            board, stairs = self._board, self.stairs
            if board.rules.suspension.makes_way_for_all:
                self._change_s = stairs.at_s + 1
            else:
                self._change_s = board.first_suspension_s(self._need, stairs.at_s, stairs.free)
        return self._change_s


class PossibleStarts:
    """All instants at which what has one need and one image could start, and for how long it could last then.

    It falls as more nodes are wanted. What is known of a number of nodes is kept.
    """

    __slots__ = ("_longest", "_starts", "count")

    def __init__(self, starts: tuple[PossibleStart, ...]) -> None:
        self._starts = starts
        self._longest: dict[int, int] = {}
        self.count = max([each.stairs.count for each in starts], default=0)
        """How many nodes are free at most at any of them."""

    def longest_s(self, nodes: int) -> int:
        """So long can last at most what takes so many nodes and is suspendable; for ever, if it could be
        suspended for a reservation."""
        longest_s = self._longest.get(nodes)
        if longest_s is None:
            longest_s = self._longest[nodes] = self._look(nodes, is_suspendable=True)
        return longest_s

    def longest_unbroken_s(self, nodes: int) -> int:
        """The same for what cannot be suspended."""
        longest_s = self._longest.get(-nodes)
        if longest_s is None:
            longest_s = self._longest[-nodes] = self._look(nodes, is_suspendable=False)
        return longest_s

    def _look(self, nodes: int, *, is_suspendable: bool) -> int:
        longest_s = 0
        for start in self._starts:
            stairs = start.stairs
            if stairs.count >= nodes:
                until_s = stairs.until_s(nodes)
                if is_suspendable and until_s >= start.change_s:
                    return FOREVER
                longest_s = max(longest_s, until_s - stairs.at_s)
        return longest_s


class StartChances:
    """How long what waits can last at most if it is to start now, or when its image could be there.

    As many nodes as it takes at least must be free to its end, or until it could be suspended: for a
    reservation that begins or ends, or for anything. That tells most of a long queue apart without looking
    for nodes: what cannot be suspended by one look for all images of its size, and what can by one for all
    images that are on the same nodes. It holds as long as nothing is placed; afterwards `forget`.
    """

    def __init__(self, board: QueueBoard, now_s: int) -> None:
        self._board = board
        self._now_s = now_s
        self._at: dict[tuple[int, int, int], PossibleStart] = {}
        """By need, instant, and a mask of nodes."""
        self._same: dict[tuple[PossibleStart, ...], PossibleStarts] = {}
        self._starts: dict[tuple[int, str], PossibleStarts] = {}
        self._windows: dict[tuple[int, int], PossibleStarts] = {}
        self._vain: set[tuple[int, str, int]] = set()
        """Needs, images and numbers of nodes that were tried and that could be suspended nowhere."""

    @property
    def least_run_s(self) -> int:
        return self._board.rules.suspension.least_run_s

    def none_for(self, group: WaitingGroup) -> None:
        """Of this group whoever is longer than nodes are free throughout was sought in vain."""
        self._vain.add((group.need, group.image_key, group.least_nodes))

    def is_none(self, need: int, image_key: str, nodes: int) -> bool:
        return (need, image_key, nodes) in self._vain

    def forget(self) -> None:
        if self._vain:
            self._vain.clear()
        if self._windows:
            self._windows.clear()
            self._starts.clear()
            self._same.clear()
            self._at.clear()

    def windows(self, kind: tuple[int, int]) -> PossibleStarts:
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
            found = self._windows[kind] = self._of(need, [(at_s, everyone) for at_s in sorted(instants)])
        return found

    def starts(self, need: int, image_key: str, image_bytes: int) -> PossibleStarts:
        """For a need and an image, the instants at which the image could be on some nodes."""
        key = need, image_key
        found = self._starts.get(key)
        if found is None:
            found = self._starts[key] = self._of(need, self._instants(image_key, image_bytes))
        return found

    def _instants(self, image_key: str, image_bytes: int) -> list[tuple[int, int]]:
        """When an image could be where."""
        board, now_s = self._board, self._now_s
        everyone = board.everything.everyone
        if not image_key:
            return [(now_s, everyone)]
        pools = board.book.pools
        instants = [(board.links.end_if_added(image_bytes, 1, now_s), everyone)]
        holders = pools.mask_with(image_key)
        if holders:
            instants.append((now_s, holders))
            instants += [(at_s, holders) for at_s in pools.coming_times(image_key) if at_s > now_s]
        return instants

    def _of(self, need: int, instants: list[tuple[int, int]]) -> PossibleStarts:
        masks, available = self._board.everything.free_masks(need), self._board.book.available
        # On a site that is full no node is free at most instants.
        starts = tuple([
            self._start(need, at_s, mask) for at_s, mask in instants if masks.at(at_s) & mask & available
        ])  # fmt: skip
        found = self._same.get(starts)
        if found is None:
            found = self._same[starts] = PossibleStarts(starts)
        return found

    def _start(self, need: int, at_s: int, mask: int) -> PossibleStart:
        key = need, at_s, mask
        found = self._at.get(key)
        if found is None:
            board = self._board
            found = self._at[key] = PossibleStart(board, need, board.free_stairs(need, at_s, mask))
        return found
