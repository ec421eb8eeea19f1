"""From random requests through SQLite to a book that answers as if nothing had happened."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from outrider.core.links.links import ExclusiveLinks, LinkEvent
from outrider.core.model import Node, Reservation, Resources
from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.restart.snapshot import KeptTransfer, keep
from outrider.store.loading import load_book
from outrider.store.records import NodeRecord
from outrider.store.sql.reading import SqlStore
from outrider.store.states import State, TransferState
from tests.amount import examples
from tests.unit.core.ledger import Ledger
from tests.unit.core.restart.test_restoring import again, contents, go_on, random_service
from tests.unit.core.sites import Site
from tests.unit.store.conftest import StorePlace
from tests.unit.store.samples import ALICE, promise_all


class StoredLedger(Ledger):
    """A ledger that is a store: each change is one transaction with what is new in it."""

    def __init__(self, store: SqlStore) -> None:
        super().__init__()
        self._store = store
        self._written: dict[str, Reservation] = {}
        self._sent: dict[int, KeptTransfer] = {}

    def accepted(self, book: Book, plan: ReservationPlan, now_s: int) -> None:
        super().accepted(book, plan, now_s)
        self._write(now_s)

    def cancel(self, book: Book, name: str, now_s: int) -> None:
        super().cancel(book, name, now_s)
        self._write(now_s)

    def look_at(self, book: Book, numbers: Collection[int], now_s: int) -> None:
        super().look_at(book, numbers, now_s)
        self._write(now_s)

    def happened(self, book: Book, event: LinkEvent) -> None:
        super().happened(book, event)
        self._write(event.at_s)

    def _write(self, now_s: int) -> None:
        changed = [each for number, each in self.transfers.items() if self._sent.get(number) != each]
        with self._store.promise() as promise:
            promise.put_transfers(changed, now_s)
            for number in self._sent.keys() - self.transfers.keys():
                promise.end_transfer(number, TransferState.WITHDRAWN, now_s)
            for name in self.reservations.keys() - self._written.keys():
                promise.add_reservation(self.reservations[name], ALICE, now_s)
            for name in self._written.keys() - self.reservations.keys():
                record = self._store.reservation(name)
                assert record is not None
                promise.change_reservation(record, now_s, state=State.CANCELLED)
        self._sent, self._written = dict(self.transfers), dict(self.reservations)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_book_restored_from_the_store_answers_like_the_one_that_went_on(
    places: Callable[[], StorePlace], is_shared: bool
) -> None:
    promised = 0
    for seed in range(2000, 2000 + examples(40)):
        place = places()
        with place.create() as store:
            ledger = StoredLedger(store)
            site, service = random_service(Random(seed), is_shared=is_shared, ledger=ledger)
            book, now_s = service.book, service.now_s
            rest = keep(book, now_s)
            if is_shared:
                ledger.look_at(book, {each.transfer.number for each in rest.transfers}, now_s)
            with store.progress() as progress:
                for pool in rest.pools:
                    progress.put_node(NodeRecord(name=pool.node, reported_s=now_s, pool=pool))

        with place.open(now_s) as store:
            kept = store.kept_book(now_s)
        promised += len(kept.reservations)
        assert kept.reservations == tuple(ledger.reservations.values())
        assert set(rest.transfers) <= set(kept.transfers)
        # Of best effort the store does not know where it was.
        assert set(kept.used_lately) <= set(rest.used_lately)
        restored = again(site, replace(kept, used_lately=rest.used_lately), now_s, is_shared=is_shared)
        survivor = deepcopy(book)
        assert contents(restored.book, now_s) == contents(survivor, now_s), f"seed {seed}"
        assert go_on(restored.book, now_s, seed) == go_on(survivor, now_s, seed), f"seed {seed}"

    assert promised > examples(40)


def test_a_service_loads_its_book_from_the_store_and_the_collector_is_as_before(place: StorePlace) -> None:
    site = Site(nodes=(Node(name="n1", capacity=Resources.of(cpus=64, memory_mib=65536)),))
    with place.create() as store:
        promise_all(store, "w1", 1)
        terms = site.book().terms
        links = ExclusiveLinks(rate_bytes_per_s=125_000_000)
        was_enabled = gc.isenabled()

        restored = load_book(store, site.nodes, terms, links=links, now_s=100)

        assert gc.isenabled() == was_enabled
        assert list(restored.book.entries) == ["w1"]
        assert restored.book.timeline.rows[0].free_at(5000) == restored.book.timeline.layout.pack(
            Resources.of(cpus=56, memory_mib=61440)
        )
        assert [(each.number, latest_s) for each, latest_s in links.deadlines.latest_starts()] == [(1, 4984)]
