"""Pins on nodes that an earlier run of the service has set, and of whose owners is not known yet whether
they still need them."""

from __future__ import annotations

from collections.abc import Iterable

from outrider.service.desk.nodes.owners import job_of_owner

FIND_OUT_S = 90
"""So long after the first look at the batch system everything that may still be needed is known to be."""


class EarlierPins:
    """Owners whose pins stay although nothing is known to need them."""

    def __init__(self) -> None:
        self._reservations: frozenset[str] = frozenset()
        self._jobs: dict[str, int] = {}
        self._looked_s: int | None = None

    def begin(self) -> None:
        """The state was loaded: which jobs there are is to be found out."""
        self._jobs, self._looked_s = {}, None

    def looked(self, now_s: int) -> bool:
        """The batch system has shown its jobs; whether for the first time."""
        is_first = self._looked_s is None
        self._looked_s = now_s if self._looked_s is None else self._looked_s
        return is_first

    def keep_for_job(self, job: str, until_s: int) -> None:
        """A job that waits may have been given nodes by an earlier run: it is left as it is until then."""
        self._jobs[job] = until_s

    def forget_job(self, job: str) -> None:
        self._jobs.pop(job, None)

    def keep_for_reservations(self, names: Iterable[str]) -> None:
        """Reservations that the batch system knows and we do not: their pins are somebody's promises."""
        self._reservations = frozenset(names)

    def stay(self, owner: str, now_s: int) -> bool:
        """Whether an owner's pins are left alone."""
        job = job_of_owner(owner)
        if job is None:
            return owner in self._reservations
        return self._looked_s is None or now_s < self._jobs.get(job, 0)

    def is_all_known(self, now_s: int) -> bool:
        """Whether what an earlier run had brought is known to be wanted or not."""
        return self._looked_s is not None and now_s - self._looked_s >= FIND_OUT_S
