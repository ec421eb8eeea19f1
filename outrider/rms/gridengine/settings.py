"""What an administrator says of a Grid Engine: the names of its objects, and its own margins."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.rms.base import RmsReservation


@dataclass(frozen=True, kw_only=True, slots=True)
class GridEngineSettings:
    """The names that this Grid Engine's objects have.

    `work_queue` runs ordinary jobs, `reservation_queue` what belongs to a reservation; each is
    in the other's subordinate list, so that a node never runs both. `environments` maps slots a
    node to the parallel environment whose allocation rule is that number.
    """

    account: str
    """Who owns the reservations: a manager, and the only member of the user set arusers."""
    work_queue: str = "all.q"
    reservation_queue: str = "outrider.q"
    parts_queue: str = ""
    """Has the reservations of parts of nodes, and is in no subordinate list with the work queue; without it
    there are none such."""
    reservation_complex: str = "outrider_reservation"
    """A FORCED BOOL of the reservation queue, which keeps jobs without a reservation out of it."""
    environments: tuple[tuple[int, str], ...] = ()
    checkpoint: str = ""
    """Of jobs that can be suspended; without it no job can."""
    duration_offset_s: int = 60
    """DURATION_OFFSET of the scheduler, which Grid Engine takes off the end of a reservation."""

    def __post_init__(self) -> None:
        if not self.account:
            raise ValueError("account is empty: name the user who owns the reservations")
        if self.work_queue == self.reservation_queue:
            raise ValueError(f"both queues are {self.work_queue}: reservations need a queue of their own")
        if self.parts_queue in (self.work_queue, self.reservation_queue):
            raise ValueError(f"parts of nodes need a queue of their own, not {self.parts_queue}")
        if self.duration_offset_s < 0:
            raise ValueError("duration_offset_s is an amount")

    def environment(self, slots: int) -> str | None:
        """The parallel environment that gives so many slots on each node."""
        return dict(self.environments).get(slots)

    @property
    def reserved_queues(self) -> tuple[str, ...]:
        """The queues of reservations."""
        return (self.reservation_queue, *filter(None, (self.parts_queue,)))

    def queue_of(self, reservation: RmsReservation) -> str:
        return self.reservation_queue if reservation.is_whole else self.parts_queue
