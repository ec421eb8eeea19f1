"""How far what was promised has come, and when it is expected."""

from __future__ import annotations

from outrider.core.images.pools import Life
from outrider.service.answers.transfers import NodeStaging, PlannedTransfer
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.state import Need
from outrider.service.desk.reservations.decision import planned
from outrider.service.desk.state.site import Live, Moving, Site


class Progress:
    """The plan and what nodes have said, put together."""

    def __init__(self, site: Site, node_orders: NodeOrders) -> None:
        self._site = site
        self._node_orders = node_orders

    def expected_s(self, live: Live) -> int | None:
        """When its image is expected on all of its nodes."""
        site = self._site
        entry = site.book.entries.get(live.name)
        if entry is None:
            return None
        instants = [site.now_s]
        for _, life in entry.lives:
            if life.transfer is not None:
                moving = site.moving.get(life.transfer)
                instants.append(life.ready_s if moving is None else self.finish_s(moving))
        return max(instants)

    def finish_s(self, moving: Moving) -> int:
        """When a transfer that runs will have ended, by the rates that are seen."""
        site = self._site
        planned_s = moving.begun_s + moving.transfer.duration_s
        left = [need for need in self._needs(moving) if not need.is_there]
        if not left:
            return max(planned_s, site.now_s + 1)
        if any(need.rate <= 0 for need in left):
            return max(planned_s, site.now_s + 1)
        return max(
            site.now_s + 1,
            *(site.now_s + -(-(each.size_bytes - each.arrived_bytes) // each.rate) for each in left),
        )

    def _needs(self, moving: Moving) -> list[Need]:
        found: list[Need] = []
        for name in moving.transfer.nodes:
            status = self._node_orders.statuses.get(name)
            if status is not None:
                needs = [each for each in status.needs.values() if each.transfer == moving.transfer.number]
                found += needs[:1]
        return found

    def staging(self, live: Live, *, is_shown: bool) -> tuple[NodeStaging, ...]:
        site = self._site
        entry = site.book.entries.get(live.name)
        lives = (
            {}
            if entry is None
            else {site.book.timeline.nodes[node].name: life for node, life in entry.copies()}
        )
        found = []
        for name in live.nodes:
            status = self._node_orders.statuses.get(name)
            need = None if status is None else status.needs.get(live.name)
            life = lives.get(name)
            state = "unknown" if life is None else "waiting"
            if need is not None and need.is_there:
                state = "ready"
            elif need is not None:
                state = "failed" if need.failures else "arriving" if need.transfer is not None else state
            found.append(
                NodeStaging(
                    node=name,
                    state=state,
                    arrived_bytes=0 if need is None else need.arrived_bytes,
                    size_bytes=live.document.size_bytes,
                    rate_bytes_per_s=0 if need is None else need.rate,
                    source=need.source if need is not None and is_shown else "",
                    ready_s=ready_of(need, life),
                    words=need.words if need is not None and is_shown else "",
                )
            )
        return tuple(found)

    def transfers_of(self, live: Live) -> tuple[PlannedTransfer, ...]:
        """The transfers that a reservation still waits for."""
        site = self._site
        entry = site.book.entries.get(live.name)
        wanted = {life.transfer for _, life in entry.lives} if entry is not None else set()
        found = [
            planned(moving.transfer, moving.begun_s, moving.begun_s)
            for number, moving in site.moving.items()
            if number in wanted
        ]
        if wanted - site.moving.keys() - {None}:
            link = site.book.link
            waiting = link.waiting([number for number in wanted if number is not None])
            latest = {each.number: link.latest_start(each.number) for each in waiting}
            for transfer in sorted(waiting, key=lambda each: latest[each.number]):
                latest_s = latest[transfer.number]
                (begin_s,) = link.begins([(transfer, latest_s)], site.now_s)
                found.append(planned(transfer, begin_s, latest_s))
        return tuple(found)


def ready_of(need: Need | None, life: Life | None) -> int | None:
    """When an image is expected on a node, or since when it is there: never later than it is known to be."""
    if need is not None and need.is_there:
        instants = [
            at_s for at_s in (need.there_s, None if life is None else life.ready_s) if at_s is not None
        ]
        return min(instants, default=None)
    return None if life is None else life.ready_s
