"""Texts that a database may not take."""

from __future__ import annotations

from outrider.store.errors import TooMuch
from tests.unit.store.conftest import StorePlace
from tests.unit.store.samples import ALICE, promise_all, reservation


def test_a_name_with_a_zero_byte_is_kept_or_refused_but_never_cut(place: StorePlace) -> None:
    with place.create() as store:
        try:
            with store.promise() as promise:
                promise.add_reservation(reservation("a\x00b"), ALICE, 0)
        except TooMuch:
            pass

        assert [each.name for each in store.live_reservations()] in ([], ["a\x00b"])
        promise_all(store, "w1", 1)
        assert store.reservation("a") is None
