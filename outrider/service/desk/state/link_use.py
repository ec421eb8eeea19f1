"""Whether what may take a part of the link takes any of it worth mentioning: by what nodes report."""

from __future__ import annotations

from collections import deque

IDLE_S = 20
"""What has taken next to nothing for so long does not keep the link from others any more."""
BACK_S = 4
"""It has the link again as soon as it has taken more than that for so long."""
IDLE_SHARE = 10
"""Next to nothing: less than this part, as a divisor, of what it may take."""


class LinkUse:
    """One transfer. There is one verdict until there is reason for another: what stands at the edge does
    not change sides with each report."""

    def __init__(self, rate_bytes_per_s: int) -> None:
        self.is_idle = False
        self._rate_bytes_per_s = rate_bytes_per_s
        self._samples: deque[tuple[int, int]] = deque()
        """Instants, and the bytes that had arrived by then."""

    def allow(self, rate_bytes_per_s: int) -> None:
        """It may take another rate from now on: what came before says nothing about that."""
        if rate_bytes_per_s != self._rate_bytes_per_s:
            self._rate_bytes_per_s = rate_bytes_per_s
            self.forget()

    def forget(self) -> None:
        """What was seen so far is no reason for a change."""
        self._samples.clear()

    def note(self, at_s: int, arrived_bytes: int) -> None:
        """So much has arrived."""
        samples = self._samples
        if samples and arrived_bytes < samples[-1][1]:
            # It begins again, with fewer.
            samples.clear()
        samples.append((at_s, arrived_bytes))
        window_s = BACK_S if self.is_idle else IDLE_S
        while len(samples) > 2 and samples[1][0] <= at_s - window_s:
            samples.popleft()
        span_s = at_s - samples[0][0]
        if span_s < window_s:
            return
        is_little = (arrived_bytes - samples[0][1]) * IDLE_SHARE < self._rate_bytes_per_s * span_s
        if is_little != self.is_idle:
            self.is_idle = is_little
            samples.clear()
            samples.append((at_s, arrived_bytes))
