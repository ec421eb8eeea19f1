"""What can be looked at of best-effort transfers: what brings images to jobs, and how far it is."""

from __future__ import annotations

from outrider.core.links.best_effort import BestEffortTransfer
from outrider.metadata.notation.hostlists import fold
from outrider.service.answers.images import ImageView
from outrider.service.answers.transfers import NodeStaging, TransferView
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.jobs.manager import JobManager
from outrider.service.desk.jobs.transfers import BestEffortTransfers
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.state import Need
from outrider.service.desk.state.site import Site
from outrider.service.requests import Caller

MOST_JOBS = 20


class TransferViews:
    """Views of what has the link, waits for it, or goes on beside."""

    def __init__(
        self, site: Site, node_orders: NodeOrders, best_effort: BestEffortTransfers, jobs: JobManager
    ) -> None:
        self._site = site
        self._node_orders = node_orders
        self._best_effort = best_effort
        self._jobs = jobs

    def transfers(self, caller: Caller, most: int) -> tuple[TransferView, ...]:
        lane = self._best_effort.lane
        ends = lane.ends(self._best_effort.slots(), self._site.now_s)
        return tuple(self._view(each, ends[each.number], caller) for each in list(lane.all())[:most])

    def count(self) -> int:
        return sum(1 for _ in self._best_effort.lane.all())

    def _view(self, cargo: BestEffortTransfer, end_s: int, caller: Caller) -> TransferView:
        keys = self._best_effort.users(cargo)
        jobs = [self._jobs.entries[key] for key in keys if key in self._jobs.entries]
        is_private = any(entry.image is not None and entry.readers is not None for entry in jobs)
        is_shown = not is_private or caller.is_admin or any(entry.job.uid == caller.uid for entry in jobs)
        staging = tuple(self._staging(cargo, node, jobs, is_shown=is_shown) for node in cargo.nodes)
        takes_s = -(-cargo.left_bytes // self._best_effort.lane.rate(cargo))
        return TransferView(
            number=cargo.number,
            state="waiting" if cargo.begun_s is None else "running",
            nodes=fold(each.node for each in staging),
            image=ImageView(
                uri=cargo.image.uri if is_shown else None,
                digest=cargo.image.digest if is_shown else None,
                size_bytes=cargo.image.size_bytes,
                is_private=is_private,
            ),
            begin_s=max(self._site.now_s, end_s - takes_s) if cargo.begun_s is None else cargo.begun_s,
            latest_begin_s=None,
            deadline_s=None,
            ready_s=end_s,
            arrived_bytes=sum(each.arrived_bytes for each in staging),
            total_bytes=cargo.image.size_bytes * len(cargo.nodes),
            rate_bytes_per_s=min(
                (each.rate_bytes_per_s for each in staging if each.state == "arriving"), default=0
            ),
            for_reservations=(),
            for_jobs=tuple(keys[:MOST_JOBS]),
            is_late=False,
            staging=staging,
        )

    def _staging(
        self, cargo: BestEffortTransfer, node: int, jobs: list[JobEntry], *, is_shown: bool
    ) -> NodeStaging:
        name = self._site.book.timeline.nodes[node].name
        status = self._node_orders.statuses.get(name)
        needs = {} if status is None else status.needs
        found: Need | None = next((needs[entry.owner] for entry in jobs if entry.owner in needs), None)
        state = "waiting" if cargo.begun_s is None else "arriving"
        if node in cargo.arrived:
            state = "ready"
        elif found is not None and found.failures:
            state = "failed"
        arrived_bytes = 0 if found is None else found.arrived_bytes
        return NodeStaging(
            node=name,
            state=state,
            arrived_bytes=cargo.image.size_bytes if node in cargo.arrived else arrived_bytes,
            size_bytes=cargo.image.size_bytes,
            rate_bytes_per_s=0 if found is None else found.rate,
            source=found.source if found is not None and is_shown else "",
            words=found.words if found is not None and is_shown else "",
        )
