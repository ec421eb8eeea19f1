"""Who gives a connection up where all are taken, and which ones are kept."""

from __future__ import annotations

import pytest

from outrider.service.web.connections.doors import Doors, Welcome


class Guest:
    """A connection that is played. It leaves when it is told to."""

    def __init__(self, doors: Doors, who: str, *, is_idle: bool = True) -> None:
        self.who = who
        self.is_idle = is_idle
        self.has_given_way = False
        self._doors = doors
        self.welcome = doors.enter(self, who, is_privileged=who == "root")

    def give_way(self) -> None:
        self.has_given_way = True
        self._doors.leave(self)


@pytest.fixture
def doors() -> Doors:
    return Doors("connections", most=20, most_of_one=8, kept=4, probes=3)


def guests(doors: Doors, who: str, count: int, *, is_idle: bool = True) -> list[Guest]:
    return [Guest(doors, who, is_idle=is_idle) for _ in range(count)]


def test_whoever_has_fewest_gets_a_place_of_who_has_most(doors: Doors) -> None:
    many, some = guests(doors, "mallory", 8), guests(doors, "bob", 8)
    late = guests(doors, "alice", 6)

    assert [each.welcome for each in late] == [Welcome.ASKS] * 5 + [Welcome.PROBES]
    assert sum(each.has_given_way for each in many) == 3
    assert sum(each.has_given_way for each in some) == 2
    assert many[0].has_given_way, "the one that has been idle longest"


def test_connection_that_is_dealt_with_gives_way_only_if_none_is_idle(doors: Doors) -> None:
    busy = guests(doors, "mallory", 7, is_idle=False)
    idle = Guest(doors, "mallory")
    guests(doors, "bob", 8)
    guests(doors, "alice", 1)
    before = [each.has_given_way for each in busy]
    guests(doors, "carol", 2)

    assert idle.has_given_way
    assert not any(before)
    assert busy[-1].has_given_way


def test_no_number_of_users_takes_the_last_places(doors: Doors) -> None:
    for number in range(50):
        guests(doors, f"user{number}", 8)
    root = guests(doors, "root", 9)

    assert [each.welcome for each in root] == [Welcome.ASKS] * 4 + [Welcome.PROBES] * 5
    assert not any(each.has_given_way for each in root[:4])


def test_probes_have_places_whoever_fills_them(doors: Doors) -> None:
    guests(doors, "mallory", 8)
    own = guests(doors, "mallory", 10)
    other = [Guest(doors, "mallory") for _ in range(2)][-1]

    assert other.welcome is Welcome.PROBES
    assert not other.has_given_way
    assert [each.has_given_way for each in own] == [True] * 9 + [False]


def test_who_has_left_has_no_place(doors: Doors) -> None:
    held = guests(doors, "mallory", 8)
    for each in held:
        doors.leave(each)
        doors.leave(each)

    assert doors.shares() == []
    assert Guest(doors, "mallory").welcome is Welcome.ASKS
    assert [(row.user, row.held) for row in doors.shares()] == [("mallory", 1)]
