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
        for free in self._free.values():
            free["cpus"] = free.get("cpus", 0) * rules.jobs_on_a_processor
        self._reserved: dict[str, list[RmsReservation]] = {}
        self._inside: dict[tuple[str, str], dict[str, int]] = {}
        """By reservation and node, what its own jobs have there."""
        for reservation in reservations.values():
            for name in reservation.nodes:
                self._reserved.setdefault(name, []).append(reservation)
        for job in jobs:
            if job.state in OCCUPYING:
                self.take(job)

    def take(self, job: TwinJob) -> None:
        """Counts a job's nodes as taken by it."""
        for name in (*job.nodes, *job.lands_on):
            free = self._free.get(name)
            inside = self._inside.setdefault((job.reservation or "", name), {})
            for resource, amount in job.submission.resources.amounts:
                inside[resource] = inside.get(resource, 0) + amount
                if free is not None:
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
        wanted = job.submission.resources
        if own is not None:
            left = self._left_inside(own, name)
            return name in own.nodes and all(wanted[resource] <= amount for resource, amount in left.items())
        end_s = job.limit_from(self._now_s)
        free = dict(self._free[name])
        for other in self._reserved.get(name, ()):
            if other.end_s <= self._now_s or (end_s is not None and end_s <= other.start_s):
                continue
            if other.is_whole:
                return False
            for resource, amount in self._left_inside(other, name).items():
                free[resource] = free.get(resource, 0) - max(0, amount)
        return fits(wanted, free)

    def _left_inside(self, reservation: RmsReservation, node: str) -> dict[str, int]:
        """What a reservation of a part of a node has that none of its jobs uses."""
        used = self._inside.get((reservation.name, node), {})
        return {name: amount - used.get(name, 0) for name, amount in reservation.size.amounts}


def fits(wanted: Resources, free: Mapping[str, int]) -> bool:
    return all(amount <= free.get(resource, 0) for resource, amount in wanted.amounts)
