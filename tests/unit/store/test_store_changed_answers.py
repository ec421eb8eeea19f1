"""Answers of which more is known later."""

from __future__ import annotations

import pytest

from outrider.store.errors import Conflict
from tests.unit.store.conftest import StorePlace
from tests.unit.store.samples import answer, promise_all


def test_an_answer_of_which_more_is_known_is_changed_for_its_own_request(place: StorePlace) -> None:
    changed = answer("key of w1", text='{"version":2}')
    with place.create() as store:
        promise_all(store, "w1", 1)
        promise_all(store, "w2", 2)
        with store.promise() as promise:
            promise.change_answer(changed)
        with pytest.raises(Conflict, match="nothing was answered"), store.promise() as promise:
            promise.change_answer(answer("no such key"))

        assert store.answered(1001, "key of w1", "aa") == changed
        assert store.answered(1001, "key of w2", "aa") == answer("key of w2")
