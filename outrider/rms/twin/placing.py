"""Where a job may start now: room on nodes, and other people's reservations kept clear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from outrider.core.model import Resources
from outrider.rms.base import NodeState, RmsNode, RmsReservation
from outrider.rms.twin.jobs import OCCUPYING, TwinJob
from outrider.rms.twin.rules import TwinRules


class NodesAtInstant:
    """The nodes at one instant: what is free on each, and when each is reserved."""

    def __init__(
        self,
        now_s: int,
        *,
        nodes: Iterable[RmsNode],
        jobs: Iterable[TwinJob],
        reservations: Mapping[str, RmsReservation],
        rules: TwinRules,
    ) -> None:
        self._now_s = now_s
        self._rules = rules
        self._reservations = reservations
        self._free = {node.name: dict(node.capacity.amounts) for node in nodes if node.state is NodeState.UP}
        self._reserved: dict[str, list[RmsReservation]] = {}
        for reservation in reservations.values():
            for name in reservation.nodes:
                self._reserved.setdefault(name, []).append(reservation)
        for job in jobs:
            if job.state in OCCUPYING:
                self.take(job)

    def take(self, job: TwinJob) -> None:
        """Counts a job's nodes as taken by it."""
        for name in job.nodes:
            free = self._free.get(name)
            if free is not None:
                for resource, amount in job.submission.resources.amounts:
                    free[resource] = free.get(resource, 0) - amount

    def nodes_for(self, job: TwinJob) -> tuple[str, ...] | None:
        """The first nodes, by name, on which the job can start now; None if they do not suffice."""
        reservation = None
        if job.reservation is not None:
            reservation = self._reservations.get(job.reservation)
            if reservation is None or not self._admits(reservation, job):
                return None
        fitting: list[str] = []
        for name in sorted(self._free):
            if any(allowed and name not in allowed for allowed in (job.wanted_nodes, job.eligible)):
                continue
            if self._is_clear(name, job, reservation) and fits(job.submission.resources, self._free[name]):
                fitting.append(name)
                if len(fitting) == job.submission.nodes_wanted:
                    return tuple(fitting)
        return None

    def _admits(self, reservation: RmsReservation, job: TwinJob) -> bool:
        if not reservation.start_s <= self._now_s < reservation.end_s:
            return False
        if job.submission.user not in reservation.users:
            return False
        end_s = job.limit_from(self._now_s)
        return self._rules.starts_beyond_end or end_s is None or end_s <= reservation.end_s

    def _is_clear(self, name: str, job: TwinJob, own: RmsReservation | None) -> bool:
        """Whether the job would meet nobody's reservation there; inside its own nobody else's can be."""
        if own is not None:
            return name in own.nodes
        end_s = job.limit_from(self._now_s)
        return all(
            other.end_s <= self._now_s or (end_s is not None and end_s <= other.start_s)
            for other in self._reserved.get(name, ())
        )


def fits(wanted: Resources, free: Mapping[str, int]) -> bool:
    return all(amount <= free.get(resource, 0) for resource, amount in wanted.amounts)
