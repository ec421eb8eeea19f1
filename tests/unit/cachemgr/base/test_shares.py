"""Places and bytes that users share."""

from __future__ import annotations

import pytest

from cachemgr.base.shares import MOST_REFUSED_KNOWN, Share, Shares


def test_one_user_gets_no_more_than_the_limit_for_one() -> None:
    shares = Shares("transfers", most=10, most_of_one=3)

    assert [shares.take(7) for _ in range(4)] == [True, True, True, False]
    assert shares.take(8)


def test_kept_places_are_for_root_and_the_service_alone() -> None:
    shares = Shares("transfers", most=4, most_of_one=4, kept=2)

    assert [shares.take(uid) for uid in (7, 8, 9)] == [True, True, False]
    assert [shares.take(0, is_privileged=True) for _ in range(3)] == [True, True, False]


def test_what_is_given_back_is_for_the_next() -> None:
    shares = Shares("pool", most=100, most_of_one=60, unit="bytes")
    assert shares.take(7, 60)
    assert not shares.take(7, 1)

    shares.give(7, 20)

    assert shares.take(7, 20)
    assert (shares.held_by(7), shares.in_all) == (60, 60)


def test_more_than_is_held_cannot_be_given_back() -> None:
    shares = Shares("pool", most=100, most_of_one=60)
    shares.take(7, 5)

    with pytest.raises(ValueError, match="7 holds 5, and gives back 6"):
        shares.give(7, 6)


def test_refused_users_are_seen_with_what_they_hold() -> None:
    shares = Shares("transfers", most=10, most_of_one=2)
    for uid in (7, 7, 7, 8):
        shares.take(uid)

    assert shares.shares() == [
        Share("transfers", "places", "7", held=2, most=2, refused=1),
        Share("transfers", "places", "8", held=1, most=2, refused=0),
    ]


def test_refusals_of_ever_new_users_take_bounded_memory() -> None:
    shares = Shares("transfers", most=2, most_of_one=1, kept=1)
    shares.take(0)
    for uid in range(1, 2 * MOST_REFUSED_KNOWN):
        shares.take(uid)

    rows = shares.shares()

    assert len(rows) == MOST_REFUSED_KNOWN + 1
    assert rows[-1].user != "1"


def test_limits_that_contradict_one_another_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be kept"):
        Shares("transfers", most=4, most_of_one=2, kept=4)


def test_ten_users_who_take_all_they_get_leave_places_to_others() -> None:
    shares = Shares("connections", most=128, most_of_one=24, portion=4)
    for uid in range(10):
        while shares.take(uid):
            """As many as there are for this one."""

    assert shares.in_all == 128 - 16
    assert [shares.take(11) for _ in range(4)] == [True, True, True, False]


def test_last_place_is_somebodys_first() -> None:
    shares = Shares("connections", most=2, most_of_one=2, portion=4)

    assert [shares.take(7), shares.take(7), shares.take(8), shares.take(9)] == [True, False, True, False]
    assert shares.refused_in_all == 2
