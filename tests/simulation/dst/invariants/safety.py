"""What has to hold after every event, whatever has gone wrong so far."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from outrider.rms.twin import Twin
from outrider.service.desk.desk import Desk
from outrider.service.desk.reservations.alarms import FIRST_WORD_S
from outrider.service.desk.state.documents import read_document, read_record
from outrider.store.records import ReservationRecord
from outrider.store.states import State
from tests.simulation.dst.clockwork import BASE_S, Clockwork, Trace, Violation
from tests.simulation.dst.knobs import Knobs
from tests.simulation.dst.mishaps import Mishaps, look_in
from tests.simulation.dst.office import Office
from tests.simulation.dst.people import MARGIN_S, People
from tests.simulation.dst.pools import Network
from tests.simulation.dst.privacy import may_use

MOST_ALARMS = 12
READ = "SELECT name, version, number FROM reservations"
REPORT_S = 400
"""After so long the service must have noticed that something was taken out of a pool."""
GROWN = "changed by its user"
"""What is written down with more nodes for a reservation that has begun."""


class Safety:
    """Looks at the store from outside, and compares it with what people know and what is so."""

    def __init__(
        self,
        clock: Clockwork,
        trace: Trace,
        knobs: Knobs,
        path: Path,
        network: Network,
        office: Office,
        people: People,
        mishaps: Mishaps,
        twin: Twin,
    ) -> None:
        self._clock = clock
        self._trace = trace
        self._knobs = knobs
        self._path = path
        self._network = network
        self._office = office
        self._people = people
        self._mishaps = mishaps
        self._twin = twin
        self._calm_s = BASE_S + knobs.troubled_s
        self._connection: sqlite3.Connection | None = None
        self._versions: dict[str, int] = {}
        self.records: dict[str, ReservationRecord] = {}
        self.met_at_start: dict[str, bool] = {}
        self.checks = 0
        self._seen_transactions = -1

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def check(self) -> None:
        store, desk = self._office.store, self._office.desk
        if store is None or desk is None:
            return
        transactions = store.transactions + (self._office.generation << 32)
        if transactions != self._seen_transactions:
            self._seen_transactions = transactions
            if self._read():
                self._check_capacity()
            self._check_told()
            self._check_link(desk)
        self._check_ready()
        self.checks += 1

    def _read(self) -> bool:
        """What has changed in the store; False if nothing has."""
        store = self._office.store
        assert store is not None
        if self._connection is None:
            self._connection = sqlite3.connect(self._path)
        has_changed = False
        for name, version, _ in self._connection.execute(READ).fetchall():
            if self._versions.get(name) == version:
                continue
            record = store.reservation(name)
            assert record is not None
            before = self.records.get(name)
            if before is not None and record.version < before.version:
                raise Violation(f"reservation {name} has gone back to version {record.version}")
            self._versions[name] = record.version
            self.records[name] = record
            has_changed = True
            self._trace.note(
                f"  store: {name} is {record.state.value} {record.reservation.start_s}"
                f"-{record.reservation.end_s} on {','.join(record.reservation.nodes)} {record.why}"
            )
            self._check_memory(record)
            if record.state.is_final and (before is None or not before.state.is_final):
                self._check_end(record)
            if before is None or record.reservation.start_s != before.reservation.start_s:
                self._watch_start(record)
            self._check_event(record)
        return has_changed

    def _check_memory(self, record: ReservationRecord) -> None:
        """What the service has in mind is what is on the disk."""
        desk = self._office.desk
        components = None if desk is None else desk._parts
        if components is None:
            return
        live = components.site.live.get(record.name)
        if live is None:
            if not record.state.is_final:
                raise Violation(f"{record.name} is {record.state.value}, and the service does not know it")
            return
        if not components.site.has_promises and live.record != replace(record, receipt=live.record.receipt):
            raise Violation(f"the service has {live.record} in mind, and {record} on the disk")

    def _check_capacity(self) -> None:
        """On no node, at no instant, is more promised than it has."""
        live = [record for record in self.records.values() if not record.state.is_final]
        for name in self._network.pools:
            on_node = [
                record.reservation
                for record in live
                if name in record.reservation.nodes and record.state is not State.ENDANGERED
            ]
            for one, other in combinations(on_node, 2):
                if not (one.start_s < other.end_s and other.start_s < one.end_s):
                    continue
                at_s = max(one.start_s, other.start_s)
                taken = sum(
                    each.workspace.resources["cpus"] * placement.instances
                    for each in on_node
                    if each.start_s <= at_s < each.end_s
                    for placement in each.placements
                    if placement.node == name
                )
                if taken > self._knobs.cpus:
                    raise Violation(
                        f"{name} is promised {taken} times at {at_s}: {[r.workspace.name for r in on_node]}"
                    )

    def _check_told(self) -> None:
        """Whatever somebody was told is in the store, and is over only for a reason."""
        for told in self._people.told.values():
            record = self.records.get(told.name)
            if record is None:
                raise Violation(f"{told.name} was accepted and is not in the store")
            reservation = record.reservation
            if (
                not told.is_unsure
                and not told.is_open
                and not told.changes
                and (reservation.start_s, reservation.end_s) != (told.start_s, told.end_s)
            ):
                if record.state.is_final or _was_moved(record, told.end_s - told.start_s):
                    continue
                if told.may_yield and _ends_sooner(record, told.start_s):
                    continue
                raise Violation(
                    f"{told.name} was promised for {told.start_s}-{told.end_s}, "
                    f"and is {reservation.start_s}-{reservation.end_s}"
                )

    def _check_event(self, record: ReservationRecord) -> None:
        """What waited for an event begins in time after it."""
        terms, triggered_s = read_document(record.document).open, read_record(record.receipt).triggered_s
        if terms is None or triggered_s is None:
            return
        if record.reservation.start_s > triggered_s + terms.within_s:
            raise Violation(
                f"{record.name} begins at {record.reservation.start_s}, its event came at {triggered_s}"
            )

    def _check_link(self, desk: Desk) -> None:
        """What waits for the link can still be in time, or those who wait for it have been told."""
        components = desk._parts
        if components is None:
            return
        site = components.site
        for name, entry in site.book.entries.items():
            strays = {node for node, _ in entry.lives} - {chosen.node for chosen in entry.fits}
            if strays:
                raise Violation(f"{name} counts on a copy on a node that it does not have: {sorted(strays)}")
        for transfer, latest_s in site.book.link.latest_starts():
            if latest_s >= site.now_s:
                return
            for _, life in site.book.lives_of(transfer.number):
                for user in life.users:
                    live = site.live.get(user)
                    # What was found at its birth is written with the first event.
                    if live is not None and live.record.state is not State.ENDANGERED:
                        state, number = live.record.state.value, transfer.number
                        raise Violation(f"{user} is {state}: transfer {number} had to begin at {latest_s}")

    def _check_end(self, record: ReservationRecord) -> None:
        """A reservation is over: rightly so, and with a receipt that is true."""
        told = self._people.told.get(record.name)
        name, store = record.name, self._office.store
        assert store is not None
        if record.state is State.CANCELLED:
            if told is not None and told.may_yield and read_record(record.receipt).yielded_to:
                return
            if not (told is None or told.is_asked_to_end or name in self._mishaps.deleted):
                raise Violation(f"{name} was cancelled, and nobody wanted that: {record.why}")
            return
        receipt = read_record(record.receipt)
        lines = store.decisions(name)
        alarms = sum(line.kind == "alarm" and line.outcome == "endangered" for line in lines)
        if alarms > MOST_ALARMS:
            raise Violation(f"{name} was called endangered {alarms} times")
        if not receipt.is_met and not any(
            line.outcome in ("endangered", "failed") and line.kind == "alarm" for line in lines
        ):
            raise Violation(f"{name} was not met, and nobody was warned: {record.why}")
        if receipt.is_met and self.met_at_start.get(name) is False and not self._excused(record):
            raise Violation(f"{name} is said to have been met, and was not: {receipt}")
        digest = read_document(record.document).digest
        for node in receipt.brought:
            if not self._network.pools[node].brought_bytes.get(digest):
                raise Violation(f"{name} is said to have brought its image to {node}, where it never arrived")

    def _excused(self, record: ReservationRecord) -> bool:
        """Whether the service's clock went wrong, or somebody has just meddled with a pool."""
        return self._knobs.clock_steps > 0 or any(
            self._network.pools[node].tampered_ms >= 0
            and self._clock.now_ms - self._network.pools[node].tampered_ms < REPORT_S * 1000
            for node in record.reservation.nodes
        )

    def _has_lapsed(self, record: ReservationRecord) -> bool:
        """Whether its pins have ended while the service was dead, which has only just begun to find out."""
        office, digest = self._office, read_document(record.document).digest
        pins = [self._network.pools[node].pins.get(digest, {}) for node in record.reservation.nodes]
        ended = [each for each in pins if each.get(record.name, 0) <= self._clock.now_s()]
        return office.now_s() - office.born_s < REPORT_S and all(
            office.died_s < each.get(record.name, 0) <= office.born_s for each in ended
        )

    def _has_just_grown(self, record: ReservationRecord) -> bool:
        """Whether its user got nodes for it that have its image, and that are only being told whose it is."""
        is_new = self._office.now_s() - record.changed_s < REPORT_S
        return record.state is State.ACTIVE and record.why == GROWN and is_new

    def _watch_start(self, record: ReservationRecord) -> None:
        name, start_s = record.name, record.reservation.start_s

        def look() -> None:
            now = self.records.get(name)
            if now is None or now.state.is_final:
                return
            if now.reservation.start_s > self._clock.now_s():
                self._watch_start(now)
            elif now.reservation.start_s == start_s:
                self._network.move()
                # By a clock that is off the start is at another time.
                self.met_at_start[name] = self._office.jump_s != 0 or self.is_there(now)
                self._check_confirmed(now)

        # Whole seconds are compared: what is so before the next one begins was so in time.
        seen_s = max(start_s, record.accepted_s + FIRST_WORD_S)
        wait_ms = (seen_s - self._clock.now_s()) * 1000 - self._clock.now_ms % 1000
        self._clock.after(wait_ms + 999, look, order=9)

    def _check_confirmed(self, record: ReservationRecord) -> None:
        """What begins long after all trouble is in the batch system, too, or its owner has been told."""
        if record.reservation.start_s < self._calm_s + MARGIN_S or record.state is State.ENDANGERED:
            return
        there = {each.name: each for each in look_in(self._twin).reservations}.get(record.name)
        if there is None or set(there.nodes) != set(record.reservation.nodes):
            raise Violation(f"{record.name} begins, and the batch system has {there}")

    def is_there(self, record: ReservationRecord) -> bool:
        """Whether the image is on all nodes of a reservation, pinned for it, and its users may use it."""
        document, now_s = read_document(record.document), self._clock.now_s()
        pools = [self._network.pools[node] for node in record.reservation.nodes]
        return all(
            pool.is_pinned_for(document.digest, record.name, now_s)
            and may_use(pool.images[document.digest], document.readers)
            for pool in pools
        )

    def _check_ready(self) -> None:
        """What is called ready is so, unless somebody has just meddled with a pool."""
        for record in self.records.values():
            if record.state not in (State.READY, State.ACTIVE):
                continue
            if record.reservation.end_s <= self._office.now_s():
                continue
            if self.is_there(record) or self._excused(record) or self._has_lapsed(record):
                continue
            if not self._has_just_grown(record):
                raise Violation(f"{record.name} is {record.state.value}, and its image is not there")


def _was_moved(record: ReservationRecord, duration_s: int) -> bool:
    """Whether it was given another place for others, within the time that its deadline leaves to it."""
    reservation = record.reservation
    first_s, last_s = reservation.workspace.start_s, reservation.workspace.finish_by_s
    if first_s is None or not read_record(record.receipt).moves:
        return False
    if last_s is None:
        # One that was mended afterwards keeps the start that it had then, and floats no more. What never had
        # a deadline is moved by nobody.
        last_s = _asked_to_finish_by_s(record)
        if last_s is None or reservation.start_s != first_s:
            return False
    is_within = first_s <= reservation.start_s and reservation.end_s <= last_s
    return is_within and reservation.end_s - reservation.start_s == duration_s


def _ends_sooner(record: ReservationRecord, start_s: int) -> bool:
    """Whether it has begun, and makes way for another before its time is over."""
    return record.reservation.start_s == start_s and bool(read_record(record.receipt).yielded_to)


def _asked_to_finish_by_s(record: ReservationRecord) -> int | None:
    """By when a reservation was to be over, as its user asked for it."""
    deployment = json.loads(read_document(record.document).file)["deployment"]
    last_s: int | None = deployment["finish_by_s"]
    return last_s
