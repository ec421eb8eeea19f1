"""What a service would write down: after each decision and event what that has changed, no more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from outrider.core.links.links import LinkEvent
from outrider.core.model import Reservation
from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.restart.snapshot import (
    KeptBook,
    KeptTransfer,
    changes,
    keep_done,
    keep_transfers,
    transfers_under_way,
)


class Ledger:
    """Reservations and transfers as they were last written."""

    def __init__(self) -> None:
        self.reservations: dict[str, Reservation] = {}
        self.transfers: dict[int, KeptTransfer] = {}

    def accepted(self, book: Book, plan: ReservationPlan, now_s: int) -> None:
        reservation, transfers = changes(book, plan, now_s)
        self.reservations[plan.workspace.name] = reservation
        self.transfers.update((each.transfer.number, each) for each in transfers)

    def cancel(self, book: Book, name: str, now_s: int) -> None:
        numbers = transfers_under_way(book, name)
        book.cancel(name, now_s)
        del self.reservations[name]
        self.look_at(book, numbers, now_s)

    def look_at(self, book: Book, numbers: Collection[int], now_s: int) -> None:
        """Transfers that may have changed; whoever is not there any more was withdrawn."""
        found = {each.transfer.number: each for each in keep_transfers(book, now_s, numbers)}
        for number in numbers:
            if number in found:
                self.transfers[number] = found[number]
            else:
                self.transfers.pop(number, None)

    def look_at_best_effort(self, book: Book, now_s: int) -> None:
        standings = book.links.standings(now_s)
        numbers = {each.transfer.number for each in standings if each.transfer.deadline_s is None}
        self.look_at(book, numbers, now_s)

    def happened(self, book: Book, event: LinkEvent) -> None:
        number = event.transfer.number
        if event.has_begun:
            self.look_at(book, {number}, event.at_s)
        else:
            self.transfers[number] = keep_done(self.transfers[number], event.at_s)

    def kept(self, rest: KeptBook) -> KeptBook:
        """All of it, with `rest` for what is not written after each decision."""
        return replace(
            rest, reservations=tuple(self.reservations.values()), transfers=tuple(self.transfers.values())
        )
