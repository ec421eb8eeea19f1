"""The order of turns: whoever has had least is next, and nobody's crowd counts for more than one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from outrider.service.turns import Turns


def drained(turns: Turns[str]) -> list[str]:
    found = []
    while (taken := turns.take()) is not None:
        found.append(taken[1])
    return found


def filled(**items: int) -> Turns[str]:
    turns: Turns[str] = Turns()
    for user, count in items.items():
        for number in range(count):
            turns.put(user, f"{user}{number}")
    return turns


def test_users_take_turns_however_much_each_has_waiting() -> None:
    turns = filled(mallory=4, alice=2, bob=1)

    assert drained(turns) == [
        "mallory0",
        "alice0",
        "bob0",
        "mallory1",
        "alice1",
        "mallory2",
        "mallory3",
    ]
    assert len(turns) == 0


def test_who_has_had_much_waits_until_others_have_had_as_much() -> None:
    turns = filled(mallory=3, alice=6)
    order = []
    for _ in range(9):
        taken = turns.take()
        assert taken is not None
        order.append(taken[0])
        turns.charge(taken[0], 3.0 if taken[0] == "mallory" else 1.0)

    # Mallory's turns cost three times as much, so that alice has three for each of them.
    assert order == ["mallory", *["alice"] * 3, "mallory", *["alice"] * 3, "mallory"]


def test_whoever_asks_for_little_waits_for_one_turn_of_ten_who_ask_for_much() -> None:
    turns = filled(**{f"m{number}": 50 for number in range(10)})
    for _ in range(37):
        taken = turns.take()
        assert taken is not None
        turns.charge(taken[0], 0.128)
    turns.put("alice", "alice")
    before = 0
    while (taken := turns.take()) is not None and taken[1] != "alice":
        turns.charge(taken[0], 0.128)
        before += 1

    assert before <= 10 - 37 % 10, "those who have had less than the others by one turn"


def test_time_without_asking_is_no_credit() -> None:
    turns = filled(mallory=100)
    for _ in range(50):
        turns.take()
        turns.charge("mallory", 1.0)
    for number in range(50):
        turns.put("alice", f"alice{number}")
    taken: Counter[Hashable] = Counter()
    for _ in range(20):
        found = turns.take()
        assert found is not None
        taken[found[0]] += 1
        turns.charge(found[0], 1.0)

    assert taken == {"mallory": 10, "alice": 10}


def test_root_has_every_second_turn() -> None:
    turns = filled(alice=3)
    for number in range(3):
        turns.put(0, f"root{number}", is_first=True)

    assert drained(turns) == ["root0", "alice0", "root1", "alice1", "root2", "alice2"]


def test_what_may_not_begin_holds_up_nothing_behind_it() -> None:
    turns = filled(mallory=3, alice=1)

    assert turns.take(lambda user, item: item == "mallory2") == ("mallory", "mallory2")
    assert turns.take(lambda user, item: user != "mallory") == ("alice", "alice0")
    assert turns.take(lambda user, item: user != "mallory") is None
    assert drained(turns) == ["mallory0", "mallory1"]


def test_whoever_has_most_gives_way_and_nobody_to_one_with_as_much() -> None:
    turns = filled(mallory=3, alice=2)

    assert turns.drop_of_longest(2) == ("mallory", "mallory2")
    assert turns.drop_of_longest(2) is None
    assert turns.drop(lambda item: item == "alice0") == ("alice", "alice0")
    assert drained(turns) == ["mallory0", "alice1", "mallory1"]


def test_what_users_have_had_is_not_remembered_without_end() -> None:
    turns: Turns[str] = Turns()
    for number in range(5_000):
        turns.put(number, "once")
        turns.take()
        turns.charge(number, 1.0)

    assert len(turns._had) <= 1_001
