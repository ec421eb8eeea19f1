"""What transfers get of the link that was planned for them: whether link.rate is more than there is.

A slow server is not a slow link: the link is doubted when transfers from several servers got less, but for a
server's own link. From one
server alone it is said that it may be either. A transfer counts if it had the whole planned rate from its
beginning on, and was large enough that its first seconds do not matter. Of several links each is watched by
itself: one that is crossed by transfers that got enough is not to blame for others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
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
    """The transfers of late over one link, whose rate is `key` of the configuration. After a change of that,
    which takes a new start, it begins again."""

    def __init__(self, key: str = "link.rate", lanes: int = 1) -> None:
        self._key, self._lanes = key, lanes
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
        return self._is_low and (self._is_of_a_server or len({each.server for each in self._seen}) > 1)

    @property
    def _is_of_a_server(self) -> bool:
        return self._key.startswith("link.sources.")

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
        # Each of those at a time got so much.
        value = f"set {self._key} to {measured * self._lanes}"
        if self._is_of_a_server:
            return f"{low}: {value}, or find what slows {servers[0]}"
        if len(servers) > 1:
            return f"{low}, from {len(servers)} servers: {value}, or find what slows the link"
        return f"{low}, all from {servers[0]}: if others can have no more from there either, {value}"


class LinkWatches:
    """All links of a site, by the keys of their rates."""

    def __init__(self) -> None:
        self._watches: dict[str, LinkWatch] = {}

    def note(
        self,
        keys: Iterable[tuple[str, int]],
        uri: str,
        size_bytes: int,
        took_s: int,
        planned_bytes_per_s: int,
    ) -> None:
        """The same of a transfer that crossed these links."""
        for key, lanes in keys:
            watch = self._watches.setdefault(key, LinkWatch(key, lanes))
            watch.note(uri, size_bytes, took_s, planned_bytes_per_s)

    @property
    def is_doubted(self) -> bool:
        return any(each.is_doubted for each in self._watches.values())

    @property
    def measured_bytes_per_s(self) -> int | None:
        """Of the first link that has too little."""
        return next((found for each in self._low() if (found := each.measured_bytes_per_s)), None)

    @property
    def words(self) -> str:
        return "; ".join(each.words for each in self._low())

    def _low(self) -> list[LinkWatch]:
        found = [self._watches[key] for key in sorted(self._watches) if self._watches[key].words]
        # A link that several servers are behind says more than one of a single server.
        return sorted(found, key=lambda each: not each.is_doubted)
