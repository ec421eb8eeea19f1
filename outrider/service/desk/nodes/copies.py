"""Full copies of images that nodes make before the jobs start that are to have them.

A node says of which formats its jobs get full copies: where its file system shares no blocks, of what is
no disk image. For such a need it is told to make one as soon as the image is there, and asked until it is
made. A job is ready on a node when it is. Afterwards the node is told again, once in a while, since a
job of an array or of a reservation takes the copy along, and the next one needs another.
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.service.desk.nodes.events import Copied, News, Uncopied
from outrider.service.desk.nodes.state import Need, NodeStatus
from outrider.service.ports import COPYING, NodeRoom, OrderResult

LOOK_S = 2
"""So often a node is asked whether it is made."""
AGAIN_S = 60
"""So often a node is asked whether it is still there."""
RETRY_S = 60
RATE_BYTES_PER_S = 50_000_000
"""So fast a copy is made at least, when a reservation's is begun in time."""
SPARE_S = 60


class Copiers:
    """The nodes that make copies, by the formats of images."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}

    def heard(self, status: NodeStatus, room: NodeRoom | None) -> None:
        """A node has spoken, which is about to be noted."""
        before = () if status.room is None else status.room.copied_formats
        if room is not None and room.copied_formats != before:
            self._known.clear()

    def of(self, image_format: str, statuses: Mapping[str, NodeStatus]) -> tuple[str, ...]:
        """The same list until it changes, since thousands of jobs ask."""
        if image_format not in self._known:
            self._known[image_format] = tuple(
                name
                for name, each in statuses.items()
                if each.room is not None and image_format in each.room.copied_formats
            )
        return self._known[image_format]


def begin_s(start_s: int, size_bytes: int) -> int:
    """When the copy for a reservation's first job is begun: not much earlier, since it takes room."""
    return start_s - SPARE_S - size_bytes // RATE_BYTES_PER_S


def is_prepared(status: NodeStatus, owner: str) -> bool:
    """Whether a job can start there: its image is there, and nothing has to be copied."""
    need = status.needs.get(owner)
    return need is not None and need.is_there and (need.is_copied or not status.copies_for(need))


def next_s(status: NodeStatus, need: Need, now_s: int, renewed_s: int) -> int:
    """When a node that has the image is told of the need again; without a copy, when the pin is renewed."""
    if need.copy_from_s is None or not status.copies_for(need):
        return renewed_s
    if need.copy_from_s > now_s:
        return min(renewed_s, need.copy_from_s)
    return min(renewed_s, now_s + (AGAIN_S if need.is_copied else LOOK_S))


def told(status: NodeStatus, need: Need, result: OrderResult, now_s: int) -> list[News]:
    """What has become of a copy."""
    if result.code == COPYING or not need.is_there:
        return []
    if result.code == "missing":
        need.is_copied = False
        return []
    if result.code:
        need.next_s = now_s + RETRY_S
        return [Uncopied(node=status.name, owner=need.owner, words=result.words)]
    was_copied, need.is_copied = need.is_copied, True
    need.next_s = max(need.next_s, min(now_s + AGAIN_S, (now_s + need.told_until_s) // 2))
    return [] if was_copied else [Copied(node=status.name, owner=need.owner)]
