"""What must hold of link sharing, from arithmetic that fits in the head."""

from __future__ import annotations

from fractions import Fraction

import pytest

from outrider.sim.sharing import (
    FinishedTransfer,
    FluidLink,
    SharedTransfer,
    fill_level,
)
from tests.simulation.sharing.finish_times import shared_finish_times


def transfer(
    key: str, start_s: int, size: int, cap: int | None = None, receiver: str | None = None
) -> SharedTransfer:
    return SharedTransfer(key=key, start_s=start_s, size_bytes=size, cap_bytes_per_s=cap, receiver=receiver)


def test_equal_transfers_take_as_long_together_as_one_after_the_other() -> None:
    transfers = [transfer(key, 5, 600) for key in "abc"]

    assert shared_finish_times(transfers, 10) == {"a": 185, "b": 185, "c": 185}


def test_later_transfer_halves_the_rate_of_an_earlier_one() -> None:
    # a sends 500 alone by 50; then both at 5: a's other 500 end at 150, b has 250 left.
    transfers = [transfer("a", 0, 1000), transfer("b", 50, 750)]

    assert shared_finish_times(transfers, 10) == {"a": 150, "b": 175}


def test_finish_is_rounded_up_to_the_whole_second_only_when_reported() -> None:
    # a and b end at 3/2 s. c has 4 left then, the link to itself, and ends at 7/2 s.
    transfers = [transfer("a", 0, 1), transfer("b", 0, 1), transfer("c", 0, 5)]

    assert shared_finish_times(transfers, 2) == {"a": 2, "b": 2, "c": 4}


def test_what_a_capped_transfer_leaves_goes_to_the_others() -> None:
    transfers = [transfer("capped", 0, 100, cap=2), transfer("free", 0, 400)]

    assert shared_finish_times(transfers, 10) == {"capped": 50, "free": 50}


def test_transfers_to_one_receiver_share_its_link() -> None:
    # a and b get 2 each, so that c gets 6 until they end at 50 s; its other 300 take 30 s.
    transfers = [
        transfer("a", 0, 100, receiver="slow"),
        transfer("b", 0, 100, receiver="slow"),
        transfer("c", 0, 600),
    ]

    finishes = shared_finish_times(transfers, 10, {"slow": 4})

    assert finishes == {"a": 50, "b": 50, "c": 80}


def test_three_thousand_staggered_transfers_leave_no_byte_and_no_time_behind() -> None:
    # A link that is never idle ends when all bytes are through, whatever the sharing.
    transfers = [transfer(f"{n:04}", n // 7, 997 + 31 * (n % 13)) for n in range(3000)]
    total_bytes = sum(each.size_bytes for each in transfers)

    finishes = shared_finish_times(transfers, 1009)

    assert max(finishes.values()) == -(-total_bytes // 1009)


def test_advance_reports_each_end_once_and_in_order() -> None:
    link = FluidLink(10)
    link.add(transfer("long", 0, 100))
    link.add(transfer("b", 0, 20))
    link.add(transfer("a", 0, 20))

    assert link.next_finish_s() == 6
    assert link.advance(5) == []
    assert link.advance(6) == [FinishedTransfer(key="a", finish_s=6), FinishedTransfer(key="b", finish_s=6)]
    assert link.advance(6) == []
    assert link.next_finish_s() == 14
    assert link.advance(100) == [FinishedTransfer(key="long", finish_s=14)]
    assert link.next_finish_s() is None


def test_end_before_a_later_add_is_still_reported() -> None:
    link = FluidLink(10)
    link.add(transfer("early", 0, 10))
    link.add(transfer("late", 7, 10))

    assert link.next_finish_s() == 7
    assert link.advance(7) == [FinishedTransfer(key="early", finish_s=1)]
    assert link.next_finish_s() == 8


def test_key_may_be_used_again_once_its_transfer_has_ended() -> None:
    link = FluidLink(10)
    link.add(transfer("a", 0, 10))
    link.add(transfer("a", 1, 10))

    assert link.advance(2) == [FinishedTransfer(key="a", finish_s=1), FinishedTransfer(key="a", finish_s=2)]


def test_level_of_an_ample_link_is_the_largest_limit() -> None:
    assert fill_level(Fraction(10), [(Fraction(1), 2), (Fraction(3), 1)]) == 3


def test_level_of_a_scarce_link_splits_what_the_small_ones_leave() -> None:
    assert fill_level(Fraction(10), [(Fraction(9), 2), (Fraction(1), 3)]) == Fraction(7, 2)


@pytest.mark.parametrize(
    ("key", "start_s", "receiver", "message"),
    [
        ("busy", 5, None, "under way"),
        ("new", 4, None, "second 4 is past"),
        ("new", 5, "n9", "n9 has no link"),
    ],
)
def test_add_refuses_what_cannot_be(key: str, start_s: int, receiver: str | None, message: str) -> None:
    link = FluidLink(1)
    link.add(transfer("busy", 5, 10))

    with pytest.raises(ValueError, match=message):
        link.add(transfer(key, start_s, 10, receiver=receiver))


def test_link_that_carries_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="n1 carries 0"):
        FluidLink(10, {"n1": 0})


def test_transfer_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="capped at 0"):
        transfer("a", 0, 10, cap=0)
    with pytest.raises(ValueError, match="0 bytes"):
        transfer("a", 0, 0)
