"""What has to come about once nothing goes wrong any more."""

from __future__ import annotations

from outrider.rms.twin import Twin
from outrider.service.desk.state.documents import read_record
from outrider.store.states import State
from tests.simulation.dst.clockwork import BASE_S, Clockwork, Violation
from tests.simulation.dst.invariants.safety import Safety
from tests.simulation.dst.mishaps import Mishaps, look_in
from tests.simulation.dst.office import Office
from tests.simulation.dst.people import MARGIN_S
from tests.simulation.dst.pools import Network

RECOVERY_S = 200
"""Within this time an image arrives although one node passes on wrong bytes."""


class JobRelease:
    """Looks at everything at the end."""

    def __init__(
        self,
        clock: Clockwork,
        network: Network,
        twin: Twin,
        office: Office,
        safety: Safety,
        mishaps: Mishaps,
        calm_s: int,
        is_calm: bool,
    ) -> None:
        self._clock = clock
        self._network = network
        self._twin = twin
        self._office = office
        self._safety = safety
        self._mishaps = mishaps
        self._calm_s = BASE_S + calm_s
        self._is_calm = is_calm

    def last_end_s(self) -> int:
        """When the last reservation will be over."""
        return max(
            (record.reservation.end_s for record in self._safety.records.values()),
            default=0,
        )

    def check(self) -> None:
        """All is over, tidy, and what could be met was."""
        store = self._office.store
        if store is None:
            raise Violation("the service does not come to life again")
        for record in self._safety.records.values():
            name = record.name
            if not record.state.is_final:
                raise Violation(f"{name} is over and still {record.state.value}: {record.why}")
            if record.state is State.CANCELLED:
                continue
            # By a clock that is ahead it came sooner.
            start_s = record.reservation.start_s - max(0, self._office.skew_s)
            if start_s < self._calm_s + MARGIN_S and not self._is_calm:
                continue
            if self._mishaps.has_lost_node and record.accepted_s < self._calm_s:
                # Others may have got what it had: that this was reported is seen at its end.
                continue
            if self._network.poisoned and (
                record.state is State.ENDED
                or record.reservation.end_s - record.reservation.start_s < RECOVERY_S
            ):
                # It may be late, since that such a node is to be gone round has to be found out first.
                continue
            if record.state is not State.ENDED or not read_record(record.receipt).is_met:
                raise Violation(f"{name} could have been met, and {record.state.value}: {record.why}")
        self._check_memory()
        if store.count_effects():
            raise Violation(
                f"{store.count_effects()} effects are never carried out: {store.due_effects(1 << 60)}"
            )
        ours = [each.name for each in look_in(self._twin).reservations if each.is_ours]
        if ours:
            raise Violation(f"the batch system still has {ours}")
        self._network.move()
        now_s = self._clock.now_s()
        for pool in self._network.pools.values():
            pins = {
                owner: until_s
                for pins in pool.pins.values()
                for owner, until_s in pins.items()
                if until_s > now_s
            }
            if pins:
                raise Violation(f"{pool.name} still has pins {pins}")
            if any(not flow.has_failed for flow in pool.flows.values()):
                raise Violation(f"{pool.name} still fetches what nobody needs")

    def _check_memory(self) -> None:
        """Nothing is left in the service's mind either."""
        components = None if self._office.desk is None else self._office.desk._parts
        if components is None:
            raise Violation("the service does not load its state")
        site, troubles, lane = components.site, components.troubles, components.best_effort.lane
        left = {
            "live": list(site.live),
            "moving": list(site.moving),
            "entries": list(site.book.entries),
            "waiting": len(site.book.link),
            "running": site.book.link.under_way(),
            "aside": list(site.book.link.aside),
            "troubled": list(troubles),
            "jobs": list(components.jobs.entries),
            "best effort": list(lane.all()),
        }
        if any(left.values()):
            raise Violation(f"all is over, and the service still has {left} in mind")
