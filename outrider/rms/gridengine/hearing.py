"""Which hosts are lost, and which have only not been heard of yet: a qmaster that starts knows of none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from outrider.rms.gridengine.parsing import QueueInstance

UNHEARD_S = 90
"""For so long a host may be unheard of. Nodes find a qmaster that was restarted within 30 s and report after
load_report_time, 40 s mostly. One that is lost is unheard of for max_unheard, 5 min, before it is said."""
UNKNOWN = "u"


class Hearing:
    """Remembers from look to look since when each host has been unheard of."""

    def __init__(self) -> None:
        self._since_s: dict[str, int] = {}

    def told(self, instances: Iterable[QueueInstance], now_s: int) -> tuple[QueueInstance, ...]:
        """The queues, as if those hosts had been heard of that were before, a moment ago."""
        all_of_them = tuple(instances)
        unheard = {each.host for each in all_of_them if UNKNOWN in each.state}
        self._since_s = {host: self._since_s.get(host, now_s) for host in unheard}
        recent = {host for host, since_s in self._since_s.items() if now_s - since_s < UNHEARD_S}
        return tuple(
            replace(each, state=each.state.replace(UNKNOWN, "")) if each.host in recent else each
            for each in all_of_them
        )
