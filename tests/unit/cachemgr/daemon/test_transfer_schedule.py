"""Which transfers run: the choice alone, without threads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemgr.daemon.transfers.bounds import UserTurns
from cachemgr.daemon.transfers.schedule import (
    CHANGES,
    ENDED,
    PAUSED,
    RUNNING,
    STATES,
    WAITING,
    ScheduledTransfer,
    checked_change,
    choose,
)


def standing(
    number: int, state: str = WAITING, deadline_s: int | None = None, is_held: bool = False
) -> ScheduledTransfer:
    return ScheduledTransfer(number, state, deadline_s, is_held)


def test_earliest_deadline_runs_first_and_none_last() -> None:
    choice = choose([standing(1), standing(2, deadline_s=50), standing(3, deadline_s=40)], slots=2)

    assert choice.to_run == (3, 2)
    assert choice.to_pause == ()


def test_earlier_deadline_takes_the_slot_of_the_latest() -> None:
    running = [standing(1, RUNNING, 100), standing(2, RUNNING, 200)]

    choice = choose([*running, standing(3, deadline_s=150)], slots=2)

    assert choice.to_run == (3,)
    assert choice.to_pause == (2,)


def test_users_leave_one_of_several_slots_to_the_node() -> None:
    users = [ScheduledTransfer(number, RUNNING, 0, False, is_ordinary=True) for number in (1, 2, 3)]

    alone = choose(users, slots=3)
    joined = choose([*users, standing(4)], slots=3)

    assert (alone.to_run, alone.to_pause) == ((), (3,))
    assert (joined.to_run, joined.to_pause) == ((4,), (3,))


def test_only_slot_is_for_users_too() -> None:
    assert choose([ScheduledTransfer(1, WAITING, None, False, is_ordinary=True)], slots=1).to_run == (1,)


def test_equal_deadline_takes_nobodys_slot() -> None:
    choice = choose([standing(1, deadline_s=100), standing(2, RUNNING, 100)], slots=1)

    assert choice == choose([], slots=1)


def test_who_was_paused_for_another_goes_on_when_there_is_a_slot() -> None:
    choice = choose([standing(1, PAUSED, 200), standing(2, "done", 100)], slots=1)

    assert choice.to_run == (1,)


def test_held_transfer_takes_no_slot() -> None:
    choice = choose([standing(1, RUNNING, 10, is_held=True), standing(2)], slots=1)

    assert choice.to_run == (2,)
    assert choice.to_pause == (1,)


def test_ended_states_are_final() -> None:
    for state in ENDED:
        assert CHANGES[state] == ()
        with pytest.raises(ValueError, match="cannot become"):
            checked_change(state, RUNNING)


STANDINGS = st.lists(
    st.tuples(st.sampled_from(STATES), st.none() | st.integers(0, 20), st.booleans()), max_size=12
)


@given(STANDINGS, st.integers(1, 4))
def test_the_most_urgent_run_and_no_more_than_there_are_slots(
    rows: list[tuple[str, int | None, bool]], slots: int
) -> None:
    standings = [ScheduledTransfer(number, *row) for number, row in enumerate(rows)]
    choice = choose(standings, slots)
    before = {each.number for each in standings if each.state == RUNNING}
    after = (before | set(choice.to_run)) - set(choice.to_pause)
    urgency = {each.number: 99 if each.deadline_s is None else each.deadline_s for each in standings}
    eligible = {each.number for each in standings if each.state not in ENDED and not each.is_held}

    assert after <= eligible
    assert len(after) == min(slots, len(eligible))
    assert max((urgency[each] for each in after), default=0) <= min(
        (urgency[each] for each in eligible - after), default=99
    )


@given(STANDINGS, st.integers(1, 4))
def test_a_second_look_changes_nothing(rows: list[tuple[str, int | None, bool]], slots: int) -> None:
    standings = [ScheduledTransfer(number, *row) for number, row in enumerate(rows)]
    first = choose(standings, slots)
    states = {**dict.fromkeys(first.to_run, RUNNING), **dict.fromkeys(first.to_pause, PAUSED)}
    changed = [
        ScheduledTransfer(each.number, states.get(each.number, each.state), each.deadline_s, each.is_held)
        for each in standings
    ]

    assert choose(changed, slots) == choose([], slots)


def user(number: int, uid: int, state: str = WAITING, deadline_s: int | None = None) -> ScheduledTransfer:
    return ScheduledTransfer(number, state, deadline_s, False, is_ordinary=True, users=(uid,))


def test_late_transfer_leaves_its_slot_to_those_that_can_be_in_time() -> None:
    late = ScheduledTransfer(1, RUNNING, 10, False, is_late=True)

    choice = choose([late, standing(2, deadline_s=99), standing(3)], slots=1)

    assert (choice.to_run, choice.to_pause) == ((2,), (1,))
    assert choose([late, standing(3)], slots=1).to_run == ()


def test_users_go_behind_root_and_the_service_whatever_their_deadlines() -> None:
    choice = choose([user(1, 7, RUNNING, 0), user(2, 8, RUNNING, 0), standing(3), standing(4)], slots=2)

    assert (choice.to_run, choice.to_pause) == ((3, 4), (1, 2))


def test_each_user_has_one_slot_before_anybody_has_two() -> None:
    many = [user(number, 7, RUNNING if number < 4 else WAITING, 0) for number in range(1, 20)]

    choice = choose([*many, user(20, 8)], slots=4)

    assert (choice.to_run, choice.to_pause) == ((20,), (3,))


def test_user_has_no_more_slots_than_allowed_even_if_some_are_free() -> None:
    choice = choose([user(number, 7) for number in range(5)], slots=4, most_of_user=2)

    assert choice.to_run == (0, 1)


def test_deadlines_of_a_user_order_that_users_own() -> None:
    choice = choose([user(1, 7, deadline_s=9), user(2, 7, deadline_s=3), user(3, 8)], slots=3)

    assert choice.to_run == (2, 3)


def test_who_has_had_fewer_turns_goes_first() -> None:
    running = [user(1, 7, RUNNING), user(2, 8, RUNNING)]

    equal = choose([*running, user(3, 9)], slots=3, turns={7: 1, 8: 1, 9: 1})
    fewer = choose([*running, user(3, 9)], slots=3, turns={7: 2, 8: 1, 9: 1})

    assert (equal.to_run, equal.to_pause) == ((), ())
    assert (fewer.to_run, fewer.to_pause) == ((3,), (1,))


def test_what_several_users_want_runs_in_the_turn_of_the_first() -> None:
    both = ScheduledTransfer(1, WAITING, None, False, is_ordinary=True, users=(7, 8))

    choice = choose([both, user(2, 8)], slots=3, turns={7: 1, 8: 0})

    assert choice.in_turn_of == {1: 8, 2: 8}


def test_each_of_many_users_has_a_turn_before_anybody_has_another() -> None:
    """A model of time: ten users with five endless transfers each, an eleventh with one, three slots."""
    turns, waiting = UserTurns(30), [user(uid * 10 + number, uid) for uid in range(10) for number in range(5)]
    waiting.append(user(1000, 99))
    had: list[int] = []
    for _ in range(4):
        chosen = choose(waiting, slots=4, most_of_user=2, turns=turns.of(sorted({*range(10), 99})))
        had += chosen.in_turn_of.values()
        waiting = [
            replace(each, state=RUNNING if each.number in chosen.in_turn_of else PAUSED) for each in waiting
        ]
        for uid in chosen.in_turn_of.values():
            turns.charge(uid, 30)

    assert sorted(set(had)) == [*range(10), 99]


def test_leaving_and_coming_back_gains_no_turn() -> None:
    turns = UserTurns(30)
    turns.of([7, 8])
    turns.charge(7, 60)
    turns.of([8])

    assert turns.of([7, 8]) == {7: 2, 8: 0}
    assert turns.of([9, 8]) == {9: 0, 8: 0}


def test_turns_of_who_has_gone_are_forgotten_once_others_have_had_as_many() -> None:
    turns = UserTurns(30)
    turns.of([7, 8])
    turns.charge(7, 60)
    turns.charge(8, 60)
    turns.of([8])
    turns.charge(8, 30)
    turns.of([8])

    assert turns.of([7, 8]) == {7: 3, 8: 3}
