"""What is still to be done, as it is asked for at a start."""

from __future__ import annotations

from dataclasses import replace

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


def test_what_has_failed_is_tried_again_when_more_is_to_be_done_to_its_subject(place: StorePlace) -> None:
    """What only waits for its time goes on to wait."""
    with place.create() as store:
        with store.promise() as promise:
            promise.todo(effect("reserve w", subject="w"), effect("reserve x", subject="x"))
            promise.todo(effect("requeue y", subject="y"), effect("reserve z", subject="z"))
        with store.progress() as progress:
            for subject in "wx":
                progress.postpone_effect(f"reserve {subject}", "it does not answer", 500)
            progress.postpone_effect("requeue y", "", 500)
            progress.postpone_effect("reserve z", "it does not answer", 5)
        with store.promise() as promise:
            promise.todo(*(replace(effect(f"again {each}", subject=each), due_s=100) for each in "wyz"))

        due = {each: store.waiting_effects(each)[0].due_s for each in "wxyz"}
        assert due == {"w": 100, "x": 500, "y": 500, "z": 5}
