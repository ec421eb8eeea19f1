"""When a promise cannot be kept where it was made: other nodes at the same time, or an alarm."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from outrider.core.reservations.book import ReservationPlan
from outrider.core.reservations.renegotiation import renegotiate
from outrider.service.desk.nodes.fixed_parts import crowded
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.reservations.admission import ReservationAdmission
from outrider.service.desk.reservations.alarms import ReservationAlarms
from outrider.service.desk.reservations.copies import ReservationCopies
from outrider.service.desk.reservations.decision import reason_of
from outrider.service.desk.reservations.execution import PlanExecution
from outrider.service.desk.state.site import Live, Site
from outrider.service.desk.state.troubles import Troubles
from outrider.service.meter import Log

RETRY_S = 30
MOST_MOVES = 2
"""So often a reservation is moved since its image does not come: if it comes nowhere, that is its
source's fault."""


class ReservationRepair:
    """Looks for another place for reservations in trouble, the first to start first."""

    def __init__(
        self,
        site: Site,
        node_orders: NodeOrders,
        admission: ReservationAdmission,
        execution: PlanExecution,
        copies: ReservationCopies,
        alarms: ReservationAlarms,
        troubles: Troubles,
        log: Log,
    ) -> None:
        self._site = site
        self._node_orders = node_orders
        self._admission = admission
        self._execution = execution
        self._copies = copies
        self._alarms = alarms
        self._troubles = troubles
        self._log = log
        self._tried_s: dict[str, int] = {}
        self._moves: Counter[str] = Counter()
        """How often each was moved since its image did not come."""

    def mend(self) -> None:
        """Try what is to be tried now."""
        troubles, live = self._troubles, self._site.live
        known = [name for name in troubles if name in live]
        for name in sorted(known, key=lambda name: (live[name].reservation.start_s, name)):
            if self._tried_s.get(name, 0) <= self._site.now_s:
                self._mend(live[name], troubles.why(name))
        for name in [name for name in troubles if name not in live]:
            troubles.forget(name)
        for name in [name for name in self._tried_s if name not in troubles]:
            del self._tried_s[name]
        for name in [name for name in self._moves if name not in live]:
            del self._moves[name]

    def again(self, name: str) -> None:
        """Something has changed for a reservation in trouble: it is tried at once."""
        if name in self._tried_s:
            self._tried_s[name] = self._site.now_s

    def next_s(self) -> int | None:
        """When to try again."""
        return min(self._tried_s.values(), default=None)

    def bad_nodes(self, live: Live) -> frozenset[str]:
        """The nodes that a reservation had better not have."""
        site = self._site
        bad = {*self._troubles.bad_nodes(live.name), *site.gone_nodes(live)}
        if self._moves[live.name] < MOST_MOVES:
            bad |= self._failing(live)
        return frozenset(bad)

    def _failing(self, live: Live) -> set[str]:
        """The nodes to which its image could not be brought."""
        found = set()
        for name in live.nodes:
            status = self._node_orders.statuses.get(name)
            need = None if status is None else status.needs.get(live.name)
            if need is not None and need.has_failed_often and not need.is_there:
                found.add(name)
        return found

    def _mend(self, live: Live, why: str) -> None:
        site = self._site
        if live.spoiled:
            self._forget(live)
            return
        self._tried_s[live.name] = site.now_s + RETRY_S
        bad, failing = self.bad_nodes(live), self._failing(live)
        if not bad and failing:
            self._alarms.endanger(live, why)
            return
        if not bad:
            self._on_its_nodes(live, why)
            return
        if live.reservation.start_s <= site.now_s or live.name not in site.book.entries:
            self._alarms.endanger(live, why)
            return
        before = live.reservation
        # One that might have started at any time has been told this start.
        workspace = replace(before.workspace, start_s=before.start_s, finish_by_s=None, is_spread=True)
        full = crowded(site, workspace, before.start_s, before.end_s, live.name)
        nodes = site.book.timeline.nodes
        among = frozenset(each.name for number, each in enumerate(nodes) if not full >> number & 1) - bad
        renegotiated = renegotiate(site.book, workspace, site.now_s, among=among)
        if not isinstance(renegotiated.admission, ReservationPlan):
            words = reason_of(renegotiated.admission.refusal)
            self._alarms.endanger(live, f"{why}; and no other nodes will do: {words}")
            return
        self._moves[live.name] += bool(failing)
        self._admission.moved(live, renegotiated, f"moved to other nodes, since {why}")
        self._execution.release(live, tuple(set(before.nodes) - set(live.nodes)))
        self._execution.prune()
        self._execution.arrange(live)
        site.note("repair", live.name, "moved", f"{why}: it has other nodes now")
        self._log.warning("reservation is moved", reservation=live.name, words=why)
        self._forget(live)

    def _on_its_nodes(self, live: Live, why: str) -> None:
        """Its nodes will do: what it lacks there is brought again, and what is late there is late."""
        site = self._site
        entry = site.book.entries.get(live.name)
        if entry is None:
            self._alarms.endanger(live, why)
            return
        if {node for node, _ in entry.copies()} != {chosen.node for chosen in entry.fits}:
            self._copies.restage(live, why)
        start_s = live.reservation.start_s
        coming = [life for _, life in entry.lives if life.transfer is not None]
        late = {transfer.number for transfer, _ in site.book.link.latest_starts(site.now_s)}
        is_whole = len(entry.copies()) == len(entry.fits)
        is_in_time = live.is_ready or (
            start_s > site.now_s and late.isdisjoint(life.transfer for life in coming)
        )
        if is_whole and is_in_time and all(life.ready_s <= max(start_s, site.now_s) for life in coming):
            self._forget(live)
            self._alarms.save(live)
        else:
            self._alarms.endanger(live, why)

    def _forget(self, live: Live) -> None:
        self._troubles.forget(live.name)
        self._tried_s.pop(live.name, None)
