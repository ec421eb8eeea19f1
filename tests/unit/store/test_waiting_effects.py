"""What is still to be done, as it is asked for at a start."""

from __future__ import annotations

from tests.unit.store.conftest import StorePlace
from tests.unit.store.samples import effect


def test_everything_to_which_something_is_to_be_done_is_named(place: StorePlace) -> None:
    with place.create() as store:
        with store.promise() as promise:
            promise.todo(*(effect(f"reserve w{number}", subject=f"w{number}") for number in range(1500)))
            promise.todo(effect("again w1", subject="w1"))
        with store.progress() as progress:
            progress.finish_effect("reserve w0", 5)
            progress.finish_effect("reserve w1", 5)

        assert store.waiting_subjects() == {f"w{number}" for number in range(1, 1500)}
