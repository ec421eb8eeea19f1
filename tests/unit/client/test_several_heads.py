"""A client that knows several heads, or hears from one that stands by which of them leads."""

from __future__ import annotations

import pytest

from outrider_client.doors import HeadDoors, NotThere, SocketDoor, door_of
from outrider_client.errors import InputError


def test_heads_are_asked_in_turn_and_none_that_listens_is_said_for_all() -> None:
    doors = HeadDoors([SocketDoor("/nowhere/a"), SocketDoor("/nowhere/b")])

    with pytest.raises(NotThere, match=r"No such file.*; No such file"):
        doors.connect(1.0)
    assert doors.name == "/nowhere/a,/nowhere/b"


def test_addresses_with_commas_are_heads_and_too_many_are_refused() -> None:
    assert door_of(None, "h1:1, h2:2", {}).name == "h1:1,h2:2"
    assert door_of(None, "h1:1,h2:2", {}).answer_s is not None
    assert door_of(None, "h1:1", {}).answer_s is None
    with pytest.raises(InputError, match="8 at most"):
        door_of(None, ",".join(f"h{number}:1" for number in range(9)), {})


def test_who_is_said_to_lead_is_asked_next_and_then_those_that_were_named() -> None:
    doors = HeadDoors([SocketDoor("a")])

    doors.pass_on("h2:7707")
    assert [each.name for each in doors._in_turn()] == ["h2:7707", "a"]
    doors.pass_on("")
    assert [each.name for each in doors._in_turn()] == ["a"]
    doors.pass_on("no address")
    assert [each.name for each in doors._in_turn()] == ["a"]
