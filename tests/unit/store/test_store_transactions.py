"""What is written is read back; what contradicts is refused; what fails leaves nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outrider.core.restart.snapshot import KeptPool
from outrider.store.errors import Conflict, TooMuch
from outrider.store.records import MOST_DOCUMENT, Effect, NodeRecord, ReservationOwner
from outrider.store.sql import statements as sql
from outrider.store.states import STEPS, TRANSFER_STEPS, State, TransferState
from tests.unit.store.conftest import StorePlace
from tests.unit.store.samples import (
    ALICE,
    answer,
    decision,
    effect,
    new_store,
    promise_all,
    reservation,
    transfer,
)


def test_one_decision_is_read_back_whole_after_the_store_was_closed(place: StorePlace) -> None:
    with place.create() as store:
        promise_all(store, "w1", 1)

    with place.open(20) as store:
        record = store.reservation("w1")
        assert record is not None
        assert record.reservation == reservation("w1", 1)
        assert (record.owner, record.state) == (ALICE, State.ACCEPTED)
        assert (record.version, record.accepted_s, record.ended_s) == (1, 10, None)
        assert [each.kept for each in store.live_transfers()] == [transfer(1)]
        assert store.answered(1001, "key of w1", "aa") == answer("key of w1")
        assert store.due_effects(0) == [effect("reserve w1", subject="w1")]
        assert store.decisions("w1") == [replace(decision("w1"), number=1)]


def test_a_transaction_that_raises_leaves_nothing(place: StorePlace) -> None:
    with place.create() as store:
        with pytest.raises(Conflict, match="key of w1"):
            promise_all(store, "w1", 1, answers=2)

        assert store.live_reservations() == []
        assert store.live_transfers() == []
        assert store.kept_book(10).next_transfer == 1
        promise_all(store, "w1", 1)
        assert len(store.live_reservations()) == 1


def test_a_promise_is_synced_and_progress_is_not(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        seen = []
        for open_transaction in (store.promise, store.progress, store.promise):
            with open_transaction():
                seen.append(store._database.connection.execute("PRAGMA synchronous").fetchone()[0])

        assert seen == [2, 1, 2]
        assert store._database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_live_name_is_taken_and_a_past_one_is_free(place: StorePlace) -> None:
    with place.create() as store:
        promise_all(store, "w1", 1)
        with pytest.raises(Conflict, match="exists already"), store.promise() as promise:
            promise.add_reservation(reservation("w1"), ALICE, 11)
        record = store.reservation("w1")
        assert record is not None
        with store.promise() as promise:
            promise.change_reservation(record, 20, state=State.CANCELLED, why="by its user")
        with store.promise() as promise:
            promise.add_reservation(reservation("w1"), ReservationOwner(uid=5, user="bob"), 30)

        last = store.reservation("w1")
        assert last is not None
        assert (last.owner.user, last.state) == ("bob", State.ACCEPTED)
        assert [(each.ended_s, each.why) for each in store.past_reservations()] == [(20, "by its user")]


def test_a_reservation_changes_only_from_the_version_that_was_read(place: StorePlace) -> None:
    with place.create() as store:
        promise_all(store, "w1", 1)
        first = store.reservation("w1")
        assert first is not None
        with store.promise() as promise:
            promise.change_reservation(first, 20, state=State.PREPARING)
        with pytest.raises(Conflict, match="since version 1"), store.promise() as promise:
            promise.change_reservation(first, 21, state=State.CANCELLED)

        second = store.reservation("w1")
        assert second is not None
        assert (second.state, second.version, second.changed_s) == (State.PREPARING, 2, 20)


@pytest.mark.parametrize("before", State)
def test_every_step_of_a_reservation_outside_the_table_is_refused(place: StorePlace, before: State) -> None:
    with place.create() as store:
        for after in State:
            with store.promise() as promise:
                promise.add_reservation(reservation(after.value), ALICE, 0)
            if before is not State.ACCEPTED:
                words = f"UPDATE reservations SET state = '{before.value}' WHERE name = '{after.value}'"
                place.change(store, words)
            record = store.reservation(after.value)
            assert record is not None
            if after in STEPS[before]:
                with store.promise() as promise:
                    promise.change_reservation(record, 1, state=after)
                found = store.reservation(after.value)
                assert found is not None
                assert (found.state, found.ended_s) == (after, 1 if after.is_final else None)
            elif after is not before:
                with pytest.raises(Conflict, match="cannot become"), store.promise() as promise:
                    promise.change_reservation(record, 1, state=after)


def test_what_is_over_does_not_begin_again() -> None:
    assert {state for state in State if state.is_final} == {State.ENDED, State.CANCELLED, State.FAILED}
    assert {state for state in TransferState if state.is_final} == {
        TransferState.DONE,
        TransferState.WITHDRAWN,
        TransferState.FAILED,
    }
    assert all(State.FAILED in steps for steps in STEPS.values() if steps)
    assert TransferState.WAITING in TRANSFER_STEPS[TransferState.RUNNING]


def test_a_transfer_is_followed_from_waiting_to_done(place: StorePlace) -> None:
    with place.create() as store:
        promise_all(store, "w1", 1)
        with store.progress() as progress:
            progress.put_transfers([transfer(1, has_begun=True)], 50)
        with store.progress() as progress:
            progress.put_transfers([transfer(1, is_done=True)], 66)
        for _ in range(2):
            with store.progress() as progress:
                # A hook may say so again, later.
                progress.put_transfers([transfer(1, is_done=True)], 70)

        record = store.transfer(1)
        assert record is not None
        assert (record.state, record.planned_s, record.begun_s, record.ended_s) == (
            TransferState.DONE,
            10,
            50,
            66,
        )
        assert store.live_transfers() == []
        with pytest.raises(Conflict, match="done: it cannot become running"), store.progress() as progress:
            progress.put_transfers([transfer(1, has_begun=True)], 80)


def test_the_number_of_a_withdrawn_transfer_is_not_given_again(place: StorePlace) -> None:
    with place.create() as store:
        with store.promise() as promise:
            promise.put_transfers([transfer(7), transfer(8)], 10)
        with store.promise() as promise:
            promise.end_transfer(7, TransferState.WITHDRAWN, 20)
            promise.end_transfer(8, TransferState.WITHDRAWN, 20)
        while not store.prune(1000).is_done:
            pass

        assert store.transfer(8) is None
        assert store.kept_book(30).next_transfer == 9


def test_the_same_key_with_another_request_is_an_error(place: StorePlace) -> None:
    with place.create() as store:
        promise_all(store, "w1", 1)

        assert store.answered(1001, "key of w1", "aa") is not None
        assert store.answered(1002, "key of w1", "bb") is None
        with pytest.raises(Conflict, match="another request"):
            store.answered(1001, "key of w1", "bb")
        with pytest.raises(Conflict, match="answered already"), store.promise() as promise:
            promise.answer(answer("key of w1"))


def test_effects_on_one_subject_are_handed_out_one_after_the_other(place: StorePlace) -> None:
    with place.create() as store:
        with store.promise() as promise:
            promise.todo(effect("make x", "x", due_s=5), effect("drop x", "x", due_s=0, kind="unreserve"))
            promise.todo(effect("make y", "y", due_s=3))

        assert store.due_effects(2) == []
        assert store.next_due_s() == 3
        assert [each.identity for each in store.due_effects(9)] == ["make y", "make x"]
        with store.progress() as progress:
            assert progress.finish_effect("make x", 6)
            assert not progress.finish_effect("make x", 7)
            progress.postpone_effect("make y", "slurmctld does not answer", 60)
        assert [each.identity for each in store.due_effects(9)] == ["drop x"]
        (late,) = (each for each in store.due_effects(60) if each.subject == "y")
        assert (late.attempts, late.trouble, late.due_s) == (1, "slurmctld does not answer", 60)


def test_an_effect_that_is_asked_for_twice_is_one_and_another_one_of_its_name_is_refused(
    place: StorePlace,
) -> None:
    with place.create() as store:
        with store.promise() as promise:
            promise.todo(effect("make x"), effect("make x", due_s=99))
        with pytest.raises(Conflict, match="was another one"), store.promise() as promise:
            promise.todo(effect("make x", kind="unreserve"))

        assert [each.due_s for each in store.due_effects(100)] == [0]


def test_effects_do_not_pile_up_without_end(place: StorePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.store.sql.writes.MOST_EFFECTS", 3)
    with place.create() as store:
        with pytest.raises(TooMuch, match="3 effects wait"), store.promise() as promise:
            promise.todo(*(effect(f"e{number}") for number in range(4)))

        assert store.due_effects(0) == []


def test_nodes_and_pools_are_read_back(place: StorePlace) -> None:
    pool = KeptPool(node="n1", uses=(("sha256:5", 3),))
    with place.create() as store:
        with store.progress() as progress:
            progress.put_node(NodeRecord(name="n1", reported_s=4, pool=pool))
            progress.put_node(NodeRecord(name="n2", reported_s=5, is_available=False))
        kept = store.kept_book(9)

        assert (kept.pools, kept.unavailable) == ((pool,), ("n2",))
        with store.progress() as progress:
            progress.drop_node("n2")
        assert [each.name for each in store.nodes()] == ["n1"]


def test_a_transfer_that_is_done_is_kept_for_as_long_as_it_is_needed(place: StorePlace) -> None:
    with place.create() as store:
        promise_all(store, "w1", 1)
        with store.progress() as progress:
            progress.put_transfers([transfer(1, is_done=True)], 20)

        assert [each.transfer.number for each in store.kept_book(30).transfers] == [1]
        assert store.prune(10**6).rows["transfers"] == 0
        record = store.reservation("w1")
        assert record is not None
        with store.promise() as promise:
            promise.change_reservation(record, 40, state=State.CANCELLED)
        assert store.kept_book(50).transfers == ()


def test_pruning_takes_small_steps_and_only_what_is_over_and_old(place: StorePlace) -> None:
    with place.create() as store:
        for number in range(1, 8):
            promise_all(store, f"w{number}", number)
        for number in range(1, 6):
            record = store.reservation(f"w{number}")
            assert record is not None
            with store.promise() as promise:
                promise.end_transfer(number, TransferState.WITHDRAWN, 100 * number)
                promise.change_reservation(record, 100 * number, state=State.CANCELLED)
        with store.progress() as progress:
            progress.finish_effect("reserve w1", 20)
        steps = []
        while not (step := store.prune(400, most=2)).is_done:
            steps.append(step.rows)

        assert [step["reservations"] for step in steps] == [2, 1, 0, 0]
        assert max(max(step.values()) for step in steps) == 2
        assert [each.name for each in store.past_reservations()] == ["w5", "w4"]
        assert [each.name for each in store.live_reservations()] == ["w6", "w7"]
        assert store.transfer(3) is None
        assert store.transfer(4) is not None
        assert store.transfer(6) is not None
        assert len(store.due_effects(0)) == 6
        assert store.decisions() == []


def test_nodes_of_what_was_over_in_this_hour_are_named(place: StorePlace) -> None:
    with place.create() as store:
        for name, start_s, ended_s in (("a", 100, 3599), ("b", 3000, 3700), ("c", 9000, 3800)):
            with store.promise() as promise:
                promise.add_reservation(reservation(name, start_s=start_s, node=name), ALICE, 0)
            record = store.reservation(name)
            assert record is not None
            with store.promise() as promise:
                promise.change_reservation(record, ended_s, state=State.CANCELLED)

        assert store.kept_book(4000).used_lately == ("b",)
        assert store.kept_book(7300).used_lately == ()


def test_decisions_are_read_page_by_page(place: StorePlace) -> None:
    with place.create() as store:
        for number in range(5):
            with store.promise() as promise:
                promise.decide(decision("w", at_s=number))
        first = store.decisions("w", most=2)
        second = store.decisions("w", most=9, before=first[-1].number)

        assert [each.at_s for each in first + second] == [4, 3, 2, 1, 0]
        assert store.decisions("other") == []


def test_a_transaction_cannot_be_nested_nor_used_when_it_is_over(place: StorePlace) -> None:
    with place.create() as store:
        with pytest.raises(ValueError, match="nested"), store.promise(), store.progress():
            pass
        with store.promise() as promise:
            promise.set("site", "north")
        with pytest.raises(ValueError, match="is over"):
            promise.set("site", "south")

        assert store.setting("site") == "north"
        assert store.setting("none") is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: ReservationOwner(uid=-1, user="x"),
        lambda: ReservationOwner(uid=1, user="x" * 257),
        lambda: effect("e" * 257),
        lambda: effect("e", due_s=1 << 63),
        lambda: answer("k" * 257),
        lambda: answer("k", text=f'{{"version":1,"x":"{"y" * MOST_DOCUMENT}"}}'),
        lambda: NodeRecord(name="n", reported_s=-1),
    ],
)
def test_values_beyond_their_bounds_are_not_made(make: object) -> None:
    assert callable(make)
    with pytest.raises(TooMuch):
        make()


@pytest.mark.parametrize("payload", ["", "[]", "{}", '{"version":"1"}', "{", "null"])
def test_a_payload_is_a_json_object_with_a_version(payload: str) -> None:
    with pytest.raises(ValueError, match="JSON"):
        Effect(identity="e", kind="k", subject="s", payload=payload, created_s=0, due_s=0)


def test_a_name_that_is_not_text_is_refused_and_the_store_goes_on(place: StorePlace) -> None:
    with place.create() as store:
        with pytest.raises(TooMuch, match="cannot be written"), store.promise() as promise:
            promise.add_reservation(reservation("broken \udcff"), ALICE, 0)
        promise_all(store, "whole", 1)

        assert [each.name for each in store.live_reservations()] == ["whole"]


def test_names_of_any_kind_are_values_and_never_statements(place: StorePlace) -> None:
    names = ["'; DROP TABLE reservations; --", "\u00e9\u4e2d", "../../etc", "%", " "]
    with place.create() as store:
        for name in names:
            with store.promise() as promise:
                promise.add_reservation(reservation(name), ALICE, 0)

        assert [each.name for each in store.live_reservations()] == names
        for name in names:
            found = store.reservation(name)
            assert found is not None
            assert found.name == name


def test_every_statement_of_the_store_is_understood_by_sqlite(tmp_path: Path) -> None:
    skipped = ("VERSION_", "BEGIN", "COMMIT", "ROLLBACK")
    statements = {
        name: text for name, text in vars(sql).items() if isinstance(text, str) and name.isupper()
    } | {f"PRUNE {table}": text for table, text in sql.PRUNE.items()}
    with new_store(tmp_path) as store:
        for name, text in statements.items():
            if not name.startswith(skipped):
                store._database.connection.execute(f"EXPLAIN {text}", [None] * text.count("?")).fetchall()

    assert len(statements) > 50


def test_what_the_user_asked_for_is_kept_beside_what_was_promised(place: StorePlace) -> None:
    first, second = '{"version":1,"workspace":"a: 1"}', '{"version":2,"workspace":"a: 2"}'
    with place.create() as store:
        with store.promise() as promise:
            promise.add_reservation(reservation("w1"), ALICE, 10, document=first)
            promise.add_reservation(reservation("w2"), ALICE, 10)
        record = store.reservation("w1")
        assert record is not None
        with store.promise() as promise:
            promise.change_reservation(record, 11, state=State.READY)
        (changed, other) = store.live_reservations()
        assert (record.document, changed.document, other.document) == (first, first, '{"version":1}')
        with store.promise() as promise:
            promise.change_reservation(changed, 12, document=second)

    with place.open(20) as store:
        assert [each.document for each in store.live_reservations()] == [second, '{"version":1}']


@pytest.mark.parametrize("document", ["", "[]", "{}", '{"version":"1"}', "nonsense"])
def test_what_is_no_document_is_refused_and_nothing_changes(place: StorePlace, document: str) -> None:
    with place.create() as store:
        promise_all(store, "w1", 1)
        before = store.live_reservations()
        with pytest.raises(ValueError, match="what was asked for is not"), store.promise() as promise:
            promise.add_reservation(reservation("w2"), ALICE, 11, document=document)
        with pytest.raises(ValueError, match="what was asked for is not"), store.promise() as promise:
            promise.change_reservation(before[0], 11, document=document)

        assert store.live_reservations() == before


def test_a_document_of_more_than_a_mebibyte_is_refused(place: StorePlace) -> None:
    padding = MOST_DOCUMENT - len('{"version":1,"x":""}')
    with place.create() as store:
        with pytest.raises(TooMuch, match="what was asked for has"), store.promise() as promise:
            promise.add_reservation(
                reservation("w1"), ALICE, 1, document=f'{{"version":1,"x":"{"y" * (padding + 1)}"}}'
            )
        with store.promise() as promise:
            promise.add_reservation(
                reservation("w1"), ALICE, 1, document=f'{{"version":1,"x":"{"y" * padding}"}}'
            )

        assert [len(each.document) for each in store.live_reservations()] == [MOST_DOCUMENT]


def test_the_next_number_is_the_one_that_is_given_even_after_pruning(place: StorePlace) -> None:
    with place.create() as store:
        for name in ("w1", "w2", "w3"):
            with store.promise() as promise:
                number = promise.next_reservation_number()
                assert promise.add_reservation(reservation(name), ALICE, 1) == number
        with pytest.raises(Conflict, match="key of w4"):
            promise_all(store, "w4", 1, answers=2)
        for record in store.live_reservations():
            with store.promise() as promise:
                promise.change_reservation(record, 2, state=State.CANCELLED)
        while not store.prune(100).is_done:
            pass

        assert store.past_reservations() == []
        with store.promise() as promise:
            assert promise.next_reservation_number() == 4
            assert promise.add_reservation(reservation("w5"), ALICE, 1) == 4


def test_decisions_are_told_from_where_one_left_off(place: StorePlace) -> None:
    with place.create() as store:
        assert (store.last_decision(), store.decisions_since(0)) == (0, [])
        with store.promise() as promise:
            numbers = [promise.decide(decision(f"w{each}")) for each in range(5)]

        assert store.last_decision() == numbers[-1]
        assert [each.name for each in store.decisions_since(0)] == ["w0", "w1", "w2", "w3", "w4"]
        assert [each.name for each in store.decisions_since(numbers[1], most=2)] == ["w2", "w3"]
        assert store.decisions_since(numbers[-1]) == []
        while not store.prune(100).is_done:
            pass
        assert (store.last_decision(), store.decisions_since(0)) == (numbers[-1], [])


def test_what_waits_for_a_subject_is_told_in_order_until_it_is_done(place: StorePlace) -> None:
    with place.create() as store:
        assert store.count_effects() == 0
        with store.promise() as promise:
            promise.todo(effect("a", "w1", due_s=50), effect("b", "w2"), effect("c", "w1", due_s=5))

        assert [each.identity for each in store.waiting_effects("w1")] == ["a", "c"]
        assert [each.identity for each in store.waiting_effects("w1", most=1)] == ["a"]
        assert store.count_effects() == 3
        with store.progress() as progress:
            progress.finish_effect("a", 60)
        assert [each.identity for each in store.waiting_effects("w1")] == ["c"]
        assert (store.count_effects(), store.waiting_effects("w3")) == (2, [])


def test_numbers_that_are_skipped_are_not_given_and_none_is_given_back(place: StorePlace) -> None:
    with place.create() as store:
        with store.promise() as promise:
            promise.skip_reservation_numbers(7)
        with store.promise() as promise:
            assert promise.next_reservation_number() == 8
            assert promise.add_reservation(reservation("w1"), ALICE, 1) == 8
            promise.skip_reservation_numbers(5)
        with store.promise() as promise:
            assert promise.next_reservation_number() == 9
