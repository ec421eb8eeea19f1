"""Slot tables of nodes that are mostly taken as a whole, hundreds at a time.

What is taken or given back then is one entry for all of the nodes. It gets into the table of a node when
somebody asks for that table, and never if it is over by then: who looks for nodes by masks asks for none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outrider.core.nodes.node_timeline import NodeTimeline

FEWEST = 64
"""Below so many entries it is not worth looking which are over."""


@dataclass(slots=True)
class _Entry:
    """Of all `nodes` those that are `left` do not have it in their tables."""

    nodes: int
    left: int
    start_s: int
    end_s: int
    is_taken: bool
    is_broken: bool = False
    """Some of its time was given back by another entry."""


class LateRows(list[NodeTimeline]):
    """The tables, by node. All nodes have the same capacity."""

    def __init__(self, rows: Sequence[NodeTimeline]) -> None:
        super().__init__(rows)
        self.past_s = 0
        """Nobody asks for what was before."""
        self._capacity = rows[0].capacity
        self._entries: list[_Entry] = []
        self._open: dict[tuple[int, int], _Entry] = {}
        """What is taken, by nodes and end: it usually is given back earlier."""
        self._waiting = 0
        """A mask of the nodes for which there may be entries."""
        self._most = FEWEST

    def __getitem__(self, node: int) -> NodeTimeline:  # type: ignore[override]
        if self._waiting >> node & 1:
            self._enter(node)
        return list.__getitem__(self, node)

    def __iter__(self) -> Iterator[NodeTimeline]:
        return (self[node] for node in range(len(self)))

    def take(self, nodes: int, start_s: int, end_s: int) -> None:
        """These nodes are taken as a whole, and were free."""
        entry = _Entry(nodes, nodes, start_s, end_s, True)
        self._append(entry)
        self._open[nodes, end_s] = entry

    def give_back(self, nodes: int, start_s: int, end_s: int) -> None:
        """They are free again, and were taken."""
        entry = self._open.pop((nodes, end_s), None)
        if entry is not None and entry.start_s <= start_s:
            # In tables that do not have it yet it is only shorter.
            nodes &= ~entry.left
            entry.end_s = start_s
            if entry.start_s < start_s:
                self._open[entry.nodes, start_s] = entry
        else:
            self._break(nodes, start_s, end_s)
            if entry is not None:
                entry.is_broken = True
        if nodes:
            self._append(_Entry(nodes, nodes, start_s, end_s, False))

    def _break(self, nodes: int, start_s: int, end_s: int) -> None:
        """What is taken in this time cannot be made shorter any more as if nothing else had happened."""
        for key, each in list(self._open.items()):
            if each.nodes & nodes and each.start_s < end_s and start_s < each.end_s:
                each.is_broken = True
                del self._open[key]

    def _append(self, entry: _Entry) -> None:
        if len(self._entries) >= self._most:
            past_s = self.past_s
            self._entries = [
                each for each in self._entries if each.left and each.end_s > max(past_s, each.start_s)
            ]
            self._open = {
                (each.nodes, each.end_s): each
                for each in self._entries
                if each.is_taken and not each.is_broken
            }
            self._waiting = 0
            for each in self._entries:
                self._waiting |= each.left
            self._most = max(FEWEST, 2 * len(self._entries))
        self._entries.append(entry)
        self._waiting |= entry.left

    def _enter(self, node: int) -> None:
        """Everything that is not over gets into one table, in its order."""
        row, bit = list.__getitem__(self, node), 1 << node
        self._waiting ^= bit
        for entry in self._entries:
            if entry.left & bit:
                entry.left ^= bit
                start_s = max(self.past_s, entry.start_s)
                if start_s < entry.end_s:
                    change = row.reserve if entry.is_taken else row.release
                    change(self._capacity, start_s, entry.end_s)
