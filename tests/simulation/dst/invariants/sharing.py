"""One link, two classes: whether best effort keeps out of the way of what has a deadline.

Looked at from the nodes, and only while nothing goes wrong: an order to slow down may be lost.
"""

from __future__ import annotations

from tests.simulation.dst.clockwork import Clockwork, Violation
from tests.simulation.dst.knobs import Knobs
from tests.simulation.dst.office import Office
from tests.simulation.dst.pools import Flow, Network

NOTICE_S = 15
"""Within this time best effort is held back when a deadline's transfer has begun."""
BORN_S = 120
"""A service that was just started finds out first what its predecessor has begun."""
HELD_BACK_SHARE = 100
"""The part of the link, as a divisor, from which on best effort is in the way."""
JOB = "job-"


class Sharing:
    """Watches the link."""

    def __init__(self, clock: Clockwork, knobs: Knobs, network: Network, office: Office) -> None:
        self._clock = clock
        self._network = network
        self._office = office
        self._settings = knobs.settings
        self._settled_ms = 0 if knobs.is_calm else (knobs.troubled_s + BORN_S) * 1000
        self._generation = 0
        self._both_ms: int | None = None
        """Since when both classes have taken bytes of the link."""

    def check(self) -> None:
        """Raises Violation if best effort does not give way."""
        now_ms = self._clock.now_ms
        if self._office.generation != self._generation:
            self._settled_ms = max(self._settled_ms, now_ms + BORN_S * 1000 if self._generation else 0)
            self._generation = self._office.generation
        if now_ms < self._settled_ms:
            return
        flows = [
            flow
            for pool in self._network.pools.values()
            for flow in pool.flows.values()
            if isinstance(flow.source, str) and flow.rate and not flow.has_failed
        ]
        beside = sum(flow.rate for flow in flows if flow.owners and _is_best_effort(flow))
        allowed = (
            self._settings.best_effort_rate_bytes_per_s
            + self._settings.link_rate_bytes_per_s // HELD_BACK_SHARE
        )
        if beside <= allowed or all(_is_best_effort(flow) for flow in flows):
            self._both_ms = None
        elif self._both_ms is None:
            self._both_ms = now_ms
        elif now_ms - self._both_ms > NOTICE_S * 1000:
            raise Violation(f"best effort takes {beside} bytes a second of the link beside a deadline")


def _is_best_effort(flow: Flow) -> bool:
    return all(owner.startswith(JOB) for owner in flow.owners)
