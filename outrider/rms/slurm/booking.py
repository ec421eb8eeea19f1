"""Reservations made, changed and taken back in Slurm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from outrider.metadata.notation.hostlists import fold
from outrider.rms.base import Refused, RmsReservation, Unknown
from outrider.rms.slurm.asking import Standing, bound_to
from outrider.rms.slurm.commands import SlurmCommands
from outrider.rms.slurm.reservations import change, checked, creation, reservations_in


class Booking:
    """What `reserve` and `unreserve` do."""

    def __init__(self, commands: SlurmCommands, now_s: Callable[[], int]) -> None:
        self._commands = commands
        self._now_s = now_s

    def all(self) -> tuple[tuple[RmsReservation, ...], tuple[str, ...]]:
        return reservations_in(self._commands.ask("scontrol", "--oneliner", "show", "reservation"))

    def reserve(self, wanted: RmsReservation) -> None:
        """Let it be there. Raises RmsError."""
        now_s, old = self._now_s(), self._found(wanted.name)
        if not wanted.is_ours:
            raise Refused(
                f"reservation {wanted.name} is not marked as ours: only reservations of ours can be made"
            )
        if not wanted.users:
            raise Refused(f"reservation {wanted.name} is for nobody: name its users")
        if old is not None and not old.is_ours:
            raise Refused(f"the name {wanted.name} belongs to somebody else's reservation")
        if wanted.end_s <= now_s:
            raise Refused(f"reservation {wanted.name} would have ended at {wanted.end_s}: it is {now_s}")
        if old is None:
            self._commands.ask(
                "scontrol", "create", "reservation", *creation(wanted, max(wanted.start_s, now_s))
            )
            return
        has_begun = old.start_s <= now_s and wanted.start_s <= now_s
        wanted = replace(wanted, start_s=old.start_s if has_begun else max(wanted.start_s, now_s))
        parts = change(old, wanted)
        if parts:
            self._check_jobs_inside(wanted, now_s)
            self._commands.ask("scontrol", "update", *parts)

    def take_back(self, name: str, free: Callable[[Standing], None]) -> None:
        """Let it not be there; `free` unbinds a job that waits for it. Raises RmsError."""
        old = self._found(checked(name))
        if old is None:
            return
        if not old.is_ours:
            raise Refused(f"reservation {name} is not ours: an administrator has to delete it")
        jobs = bound_to(self._commands, name)
        running = [each.key for each in jobs if not each.is_waiting]
        if running:
            raise Refused(f"reservation {name} is in use by job {', '.join(running)}: end it first")
        for each in jobs:
            free(each)
        try:
            self._commands.ask("scontrol", "delete", f"ReservationName={name}")
        except Unknown:
            return

    def _found(self, name: str) -> RmsReservation | None:
        return next((each for each in self.all()[0] if each.name == name), None)

    def _check_jobs_inside(self, wanted: RmsReservation, now_s: int) -> None:
        """Slurm would let a job of the reservation go on outside of it."""
        for each in bound_to(self._commands, wanted.name):
            outside = sorted(set(each.nodes) - set(wanted.nodes))
            if not each.is_waiting and (outside or wanted.start_s > now_s):
                where = f" on {fold(outside)}" if outside else ""
                raise Refused(f"job {each.key} runs in reservation {wanted.name}{where}: end it first")
