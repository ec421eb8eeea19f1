"""Reservations made, changed and taken back in Slurm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from outrider.core.model import Resources
from outrider.metadata.notation.hostlists import fold
from outrider.rms.base import NOTHING, Refused, RmsReservation, Unknown
from outrider.rms.slurm.asking import Standing, bound_to
from outrider.rms.slurm.commands import SlurmCommands
from outrider.rms.slurm.reservations import FLAGS, MARK, change, checked, creation, reservations_in

NO_CORE_LIST = "array for CoreCnt is no longer valid"
"""What Slurm 26.05 says of CoreCnt=2,2. With a sum instead, it gives one node more than the other."""


class Booking:
    """What `reserve` and `unreserve` do."""

    def __init__(
        self,
        commands: SlurmCommands,
        now_s: Callable[[], int],
        core_cpus: int = 0,
        cpus_of: Callable[[Iterable[str]], int] = lambda nodes: 0,
    ) -> None:
        """`cpus_of` says how many CPUs nodes have together; 0 if that is not known yet."""
        self._cpus_of = cpus_of
        self._core_cpus = core_cpus
        self._has_tres_per_node = False
        """Whether this Slurm takes cores by node so, and no list of them any more."""
        self._commands = commands
        self._now_s = now_s

    def all(self) -> tuple[tuple[RmsReservation, ...], tuple[str, ...]]:
        """Those of whole nodes have sizes, too: see `told`."""
        printed = self._commands.ask("scontrol", "--oneliner", "show", "reservation")
        return reservations_in(printed, self._core_cpus)

    def told(self, found: RmsReservation) -> RmsReservation:
        """The same, of whole nodes if it has all their cores."""
        is_all = found.size["cpus"] * len(found.nodes) >= self._cpus_of(found.nodes)
        return replace(found, size=NOTHING) if is_all else found

    def _in_cores(self, wanted: RmsReservation) -> RmsReservation:
        """What of it Slurm can keep apart. Raises Refused."""
        known = self._cpus_of(wanted.nodes)
        if wanted.is_whole or (known and wanted.size["cpus"] * len(wanted.nodes) >= known):
            return replace(wanted, size=NOTHING)
        if not self._core_cpus or not wanted.size["cpus"]:
            raise Refused(
                f"reservation {wanted.name} is of parts of nodes: set core_cpus to have cores reserved"
            )
        return replace(wanted, size=Resources.of(cpus=-(-wanted.size["cpus"] // self._core_cpus)))

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
            self._create(self._in_cores(replace(wanted, start_s=max(wanted.start_s, now_s))))
            return
        has_begun = old.start_s <= now_s and wanted.start_s <= now_s
        wanted = replace(wanted, start_s=old.start_s if has_begun else max(wanted.start_s, now_s))
        old, wanted = self._in_cores(self.told(old)), self._in_cores(wanted)
        parts = change(old, wanted)
        if not parts:
            return
        self._check_jobs_inside(wanted, now_s)
        if old.is_whole and wanted.is_whole:
            self._commands.ask("scontrol", "update", *parts)
        elif (old.nodes, old.size) != (wanted.nodes, wanted.size):
            self._make_anew(old, wanted)
        else:
            try:
                self._commands.ask("scontrol", "update", *parts)
            except Refused:
                # Its cores may be others' by then, although as many are free.
                self._make_anew(old, wanted)

    def _create(self, wanted: RmsReservation) -> None:
        """A new one. Cores on which jobs of others run are taken only if there are no others."""
        if wanted.is_whole:
            self._commands.ask("scontrol", "create", "reservation", *creation(wanted))
            return
        try:
            self._create_part(wanted, MARK)
        except Refused:
            self._create_part(wanted, FLAGS)

    def _create_part(self, wanted: RmsReservation, flags: str) -> None:
        if not self._has_tres_per_node:
            try:
                self._commands.ask("scontrol", "create", "reservation", *creation(wanted, flags))
                return
            except Refused as error:
                if NO_CORE_LIST not in str(error):
                    raise
                self._has_tres_per_node = True
        argv = creation(wanted, flags, has_tres_per_node=True)
        self._commands.ask("scontrol", "create", "reservation", *argv)

    def _make_anew(self, old: RmsReservation, wanted: RmsReservation) -> None:
        """Slurm changes neither nodes nor cores of a reservation of cores: another takes its place. Jobs that
        wait for it are held and belong to none meanwhile, since Slurm deletes none that has jobs."""
        jobs = bound_to(self._commands, old.name)
        running = [each.key for each in jobs if not each.is_waiting]
        if running:
            raise Refused(
                f"job {', '.join(running)} runs in reservation {old.name}, whose cores Slurm cannot change: "
                "end it first"
            )
        for each in jobs:
            if not each.is_stopped:
                self._commands.ask("scontrol", "hold", each.address)
            self._commands.ask("scontrol", "update", f"JobId={each.address}", "ReservationName=")
        try:
            self._commands.ask("scontrol", "delete", f"ReservationName={old.name}")
            try:
                self._create(wanted)
            except Refused:
                self._create(old)
                raise
        finally:
            for each in jobs:
                self._commands.ask(
                    "scontrol", "update", f"JobId={each.address}", f"ReservationName={old.name}"
                )
                if not each.is_stopped:
                    self._commands.ask("scontrol", "release", each.address)

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
