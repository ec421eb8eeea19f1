"""What has to come about once nothing goes wrong any more."""

from __future__ import annotations

from outrider.service.documents import read_record
from outrider.store.states import State
from tests.dst.clockwork import BASE_S, Clockwork, Violation
from tests.dst.mishaps import look_in
from tests.dst.office import Office
from tests.dst.pools import Network
from tests.dst.people import MARGIN_S
from tests.dst.safety import Safety
from outrider.rms.twin import Twin


class Settling:
    """Looks at everything at the end."""

    def __init__(
        self, clock: Clockwork, network: Network, twin: Twin, office: Office, safety: Safety, calm_s: int
    ) -> None:
        self._clock = clock
        self._network = network
        self._twin = twin
        self._office = office
        self._safety = safety
        self._calm_s = BASE_S + calm_s

    def last_end_s(self) -> int:
        """When the last reservation will be over."""
        return max(
            (record.kept.reservation.end_s for record in self._safety.records.values()),
            default=self._clock.now_s(),
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
            if record.kept.reservation.start_s < self._calm_s + MARGIN_S or record.state is State.CANCELLED:
                continue
            if record.state is not State.ENDED or not read_record(record.receipt).is_met:
                raise Violation(f"{name} could have been met, and {record.state.value}: {record.why}")
        if store.count_effects():
            raise Violation(f"{store.count_effects()} effects are never carried out: {store.due_effects(1 << 60)}")
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
