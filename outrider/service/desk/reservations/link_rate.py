"""What transfers get of the link that was planned for them: whether link.rate is more than there is.

A slow server is not a slow link: the link is doubted when transfers from several servers got less. From one
server alone it is said that it may be either. A transfer counts if it had the whole planned rate from its
beginning on, and was large enough that its first seconds do not matter.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from urllib.parse import urlsplit

from outrider.core.reservations.refusal import size

LEAST_PLANNED_S = 20
"""Shorter transfers say little: a few seconds pass before the first byte and after the last."""
LEAST_SEEN, MOST_SEEN = 3, 10
LOW_PERCENT = 80
"""If the best of the last transfers got less of the planned rate, the link has not got it."""
RIGHT_PERCENT = 90
"""It is right again with the first that got so much."""
MOST_PERCENT = 115
"""More than it was allowed: a part of the image was there before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """What one transfer got."""

    server: str
    rate_bytes_per_s: int
    planned_bytes_per_s: int

    @property
    def percent(self) -> int:
        return 100 * self.rate_bytes_per_s // self.planned_bytes_per_s


class LinkWatch:
    """The transfers of late. After a change of link.rate, which takes a new start, it begins again."""

    def __init__(self) -> None:
        self._seen: deque[Carried] = deque(maxlen=MOST_SEEN)
        self._is_low = False

    def note(self, uri: str, size_bytes: int, took_s: int, planned_bytes_per_s: int) -> None:
        """So much has come in so long of a transfer that could have had the whole planned rate."""
        if size_bytes < LEAST_PLANNED_S * planned_bytes_per_s:
            return
        carried = Carried(
            server=urlsplit(uri).netloc.rpartition("@")[2] or "files of the site",
            rate_bytes_per_s=size_bytes // max(1, took_s),
            planned_bytes_per_s=planned_bytes_per_s,
        )
        if carried.percent > MOST_PERCENT:
            return
        self._seen.append(carried)
        best = max(each.percent for each in self._seen)
        if carried.percent >= RIGHT_PERCENT:
            self._is_low = False
        elif len(self._seen) >= LEAST_SEEN and best < LOW_PERCENT:
            self._is_low = True

    @property
    def is_doubted(self) -> bool:
        """Whether transfers from several servers got less, so that it is no server's fault."""
        return self._is_low and len({each.server for each in self._seen}) > 1

    @property
    def measured_bytes_per_s(self) -> int | None:
        """The most that any of them got, if that is too little."""
        return max(each.rate_bytes_per_s for each in self._seen) if self._is_low else None

    @property
    def words(self) -> str:
        """What is wrong and what to do; nothing if nothing is."""
        measured = self.measured_bytes_per_s
        if measured is None:
            return ""
        servers = sorted({each.server for each in self._seen})
        planned = self._seen[-1].planned_bytes_per_s
        low = f"the last {len(self._seen)} transfers got at most {size(measured)}/s of {size(planned)}/s"
        value = f"set link.rate to {measured}"
        if len(servers) > 1:
            return f"{low}, from {len(servers)} servers: {value}, or find what slows the link"
        return f"{low}, all from {servers[0]}: if others can have no more from there either, {value}"
