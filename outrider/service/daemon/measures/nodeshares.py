"""What nodes said of their users' shares, in the reports that they send anyway: the largest few of each node.

Nobody waits for a node here, and thousands of them cost a few rows each.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from cachemgr.base.shares import Share
from outrider.service.ports import NodeReport

MOST_OF_NODE, MOST_OF_THING = 12, 2
STALE_S = 3_600
"""What a node said so long ago is nothing to be shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeShare:
    """A share on a node, and when that was so."""

    node: str
    at_s: int
    share: Share

    @property
    def ratio(self) -> float:
        return self.share.held / self.share.most if self.share.most else 0.0


class NodeShares:
    """The last word of each node. Any thread may call."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, tuple[NodeShare, ...]]] = {}
        self._guard = threading.Lock()

    def note(self, report: NodeReport) -> None:
        """Reports without shares, of which there are more, leave what was known."""
        if report.shares is None:
            return
        seen: Counter[str] = Counter()
        rows: list[NodeShare] = []
        # They come with the largest first.
        for share in report.shares:
            if seen[share.thing] < MOST_OF_THING and len(rows) < MOST_OF_NODE:
                seen[share.thing] += 1
                rows.append(NodeShare(node=report.node, at_s=report.at_s, share=share))
        with self._guard:
            self._told[report.node] = report.at_s, tuple(rows)

    def rows(self, now_s: int) -> tuple[NodeShare, ...]:
        """What was said within the last hour; what is older is forgotten."""
        with self._guard:
            for node in [node for node, (at_s, _) in self._told.items() if at_s < now_s - STALE_S]:
                del self._told[node]
            return tuple(each for _, rows in self._told.values() for each in rows)

    @property
    def count(self) -> int:
        """How many nodes have said anything."""
        return len(self._told)

    @property
    def oldest_s(self) -> int | None:
        """When the node reported that has not reported for longest."""
        with self._guard:
            return min((at_s for at_s, _ in self._told.values()), default=None)
