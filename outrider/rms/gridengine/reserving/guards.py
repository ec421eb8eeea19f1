"""Guards: advance reservations of the service's own on the work queue, which keep others off reserved slots.

Grid Engine starts nothing in the work queue that would reach into them. They follow the reservations: what
guards nothing goes, and what is not guarded though it could be is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from outrider.rms.base import Refused, RmsReservation, Sight
from outrider.rms.gridengine import parsing, seeing
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.parsing import Advance
from outrider.rms.gridengine.reserving.booking import instances, on_each, remove, since
from outrider.rms.gridengine.reserving.closing import ClosedHosts
from outrider.rms.gridengine.settings import GridEngineSettings
from outrider.rms.gridengine.snapshot import Snapshot

MOST_GUARDS_A_LOOK = 64
MOST_EARLY_S = 5
"""A guard and its reservation are made one after the other, and each begins at once if that is asked for."""
CLOSED_AHEAD_S = 120
"""A host with slots that cannot be guarded, since jobs have them, takes no more jobs from so long before its
reservation begins: what starts when they end might stay for long."""


class Guards:
    """Looks after them within one call of the service's."""

    def __init__(
        self,
        commands: GridEngineCommands,
        settings: GridEngineSettings,
        snapshot: Snapshot,
        now_s: int,
        waiting: Collection[str] = (),
    ) -> None:
        """`waiting` are the names of reservations that may begin at any moment, however late they say."""
        self._commands = commands
        self._settings = settings
        self._now_s = now_s
        self._waiting = waiting
        self._closed = ClosedHosts(commands, settings, snapshot, now_s)
        self._tries = MOST_GUARDS_A_LOOK
        self._slots = {
            each.host: each.slots for each in snapshot.instances if each.queue == settings.work_queue
        }

    def mend(self, snapshot: Snapshot) -> None:
        """Guards what is not guarded though it could be, and removes what guards nothing.

        A node's slots that a job without an end occupies cannot be guarded before they are free.
        """
        kept = [each for each in snapshot.sight.reservations if each.is_ours]
        ours = {each.name: each for each in kept if each.end_s > self._now_s}
        left, gone = list[Advance](), list[Advance]()
        for guard in snapshot.guards:
            (left if self._fits(guard, ours) else gone).append(guard)
        for guard in gone:
            self._close(ours.get(_guarded(guard)))
        remove(self._commands, gone)
        bare, busy = set[str](), _busy(snapshot.sight)
        for reservation in ours.values():
            open_slots = self._unguarded(reservation, left)
            if open_slots and self._is_soon(reservation):
                self._close(reservation)
            unguarded = self._fill(reservation, open_slots, busy) if open_slots else {}
            if self._is_soon(reservation):
                bare |= unguarded.keys()
        self._closed.reopen_but(bare)

    def first(self, snapshot: Snapshot, wanted: RmsReservation) -> None:
        """Guards a reservation of parts that is not there yet, or raises Refused: jobs in it would not wait
        for those that have its slots."""
        self._close(wanted)
        remove(self._commands, [each for each in snapshot.guards if _guarded(each) == wanted.name])
        if not self._guard_all(wanted):
            raise Refused(
                f"Grid Engine cannot keep {wanted.size['cpus']} slots of each of {' '.join(wanted.nodes)} "
                f"for {wanted.name}: jobs have them then, or have no limit"
            )

    def _fits(self, guard: Advance, ours: Mapping[str, RmsReservation]) -> bool:
        kept = ours.get(_guarded(guard))
        if kept is None or guard.end_s != kept.end_s:
            return False
        # One that begins long before its reservation keeps off what would be gone in time.
        is_early = self._now_s < kept.start_s - MOST_EARLY_S > guard.start_s
        if is_early or guard.start_s > max(kept.start_s, self._now_s):
            return False
        needs = self._needs(kept)
        return all(number <= needs.get(node, 0) for node, number in _by_node(guard))

    def _needs(self, reservation: RmsReservation) -> dict[str, int]:
        """The slots of the work queue that nobody else may have."""
        size = reservation.size["cpus"]
        return {
            node: self._slots[node] if reservation.is_whole else min(size, self._slots[node])
            for node in reservation.nodes
            if node in self._slots
        }

    def _unguarded(self, reservation: RmsReservation, guards: Iterable[Advance]) -> dict[str, int]:
        """How many slots of which nodes of a reservation have no guard."""
        open_slots = self._needs(reservation)
        for guard in guards:
            if _guarded(guard) == reservation.name:
                for node, number in _by_node(guard):
                    open_slots[node] = open_slots.get(node, 0) - number
        return {node: number for node, number in open_slots.items() if number > 0}

    def _is_soon(self, reservation: RmsReservation) -> bool:
        return reservation.start_s <= self._now_s + CLOSED_AHEAD_S or reservation.name in self._waiting

    def _close(self, reservation: RmsReservation | None) -> None:
        """So that its guards can be made anew."""
        if reservation is not None:
            self._closed.close(set(reservation.nodes) & self._slots.keys())

    def _fill(
        self, reservation: RmsReservation, open_slots: Mapping[str, int], busy: Mapping[str, int]
    ) -> dict[str, int]:
        """Guards what can be guarded of these slots; which are left."""
        if open_slots == self._needs(reservation) and self._guard_all(reservation):
            return {}
        left = {}
        for node, number in sorted(open_slots.items()):
            done = 0
            while done < min(number, self._slots[node] - busy.get(node, 0)) and self._tries:
                self._tries -= 1
                if not self._guard(reservation, ["-q", instances(self._settings.work_queue, (node,))]):
                    break
                done += 1
            if done < number:
                left[node] = number - done
        return left

    def _guard_all(self, reservation: RmsReservation) -> bool:
        needs = self._needs(reservation)
        if len(set(needs.values())) != 1 or len(needs) != len(reservation.nodes):
            return False
        where = ["-q", instances(self._settings.work_queue, reservation.nodes)]
        try:
            slots = on_each(self._settings, next(iter(needs.values())), len(needs))
        except Refused:
            return False
        return self._guard(reservation, [*where, *slots])

    def _guard(self, reservation: RmsReservation, what: list[str]) -> bool:
        span = [*since(reservation.start_s, self._now_s), "-e", parsing.utc_text(reservation.end_s)]
        name = seeing.GUARD + reservation.name
        return self._commands.attempt("qrsub", "-N", name, *span, *what).code == 0


def _guarded(guard: Advance) -> str:
    return guard.name.removeprefix(seeing.GUARD)


def _by_node(guard: Advance) -> Iterable[tuple[str, int]]:
    return ((name.partition("@")[2], number) for name, number in guard.slots)


def _busy(sight: Sight) -> dict[str, int]:
    """Slots in use by node, outside of reservations."""
    busy: dict[str, int] = {}
    for job in sight.jobs:
        if job.reservation is None:
            for node in job.nodes:
                busy[node] = busy.get(node, 0) + job.resources["cpus"]
    return busy
