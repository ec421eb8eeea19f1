"""Which transfers run: the choice alone, without threads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemgr.daemon.schedule import (
    CHANGES,
    ENDED,
    PAUSED,
    RUNNING,
    STATES,
    WAITING,
    Standing,
    checked_change,
    choose,
)


def standing(
    number: int, state: str = WAITING, deadline_s: int | None = None, is_held: bool = False
) -> Standing:
    return Standing(number, state, deadline_s, is_held)


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
    users = [Standing(number, RUNNING, 0, False, is_ordinary=True) for number in (1, 2, 3)]

    alone = choose(users, slots=3)
    joined = choose([*users, standing(4)], slots=3)

    assert (alone.to_run, alone.to_pause) == ((), (3,))
    assert (joined.to_run, joined.to_pause) == ((4,), (3,))


def test_only_slot_is_for_users_too() -> None:
    assert choose([Standing(1, WAITING, None, False, is_ordinary=True)], slots=1).to_run == (1,)


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
    standings = [Standing(number, *row) for number, row in enumerate(rows)]
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
    standings = [Standing(number, *row) for number, row in enumerate(rows)]
    first = choose(standings, slots)
    states = {**dict.fromkeys(first.to_run, RUNNING), **dict.fromkeys(first.to_pause, PAUSED)}
    changed = [
        Standing(each.number, states.get(each.number, each.state), each.deadline_s, each.is_held)
        for each in standings
    ]

    assert choose(changed, slots) == choose([], slots)
