"""A long chain in which nodes die is nearly as fast as a link: the others go round each of them at once."""

from __future__ import annotations

import pytest

from tests.simulation.chain.chain import run_chain

BOUND = 1.1


@pytest.mark.parametrize("is_cut_off", [False, True], ids=["killed", "cut off"])
def test_chain_of_which_one_in_a_hundred_dies_keeps_near_the_bound(*, is_cut_off: bool) -> None:
    run = run_chain(100, seconds=30, dying=1, is_cut_off=is_cut_off, seed=1)

    assert (run.failed, run.dead) == ((), 1)
    assert 1 < run.ratio <= BOUND


@pytest.mark.long
@pytest.mark.parametrize("is_cut_off", [False, True], ids=["killed", "cut off"])
def test_chain_of_a_thousand_of_which_ten_die_keeps_near_the_bound(*, is_cut_off: bool) -> None:
    run = run_chain(1000, seconds=160, dying=10, is_cut_off=is_cut_off, seed=1)

    assert (run.failed, run.dead) == ((), 10)
    assert 1 < run.ratio <= BOUND


def test_chain_that_lives_is_as_fast_as_a_link_and_its_hops() -> None:
    """Whoever passed an image on only when it is whole would take 50 times as long."""
    run = run_chain(50, seconds=20, dying=0, is_cut_off=False, seed=1)

    assert run.failed == ()
    assert 1 < run.ratio < 1.02


def test_run_is_the_same_each_time() -> None:
    one, other = (run_chain(30, seconds=10, dying=2, is_cut_off=True, seed=7) for _ in range(2))

    assert one == other
