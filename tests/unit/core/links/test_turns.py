"""Whose turn it is: by hand, and what is expected against what happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outrider.core.links.best_effort import TURN_S, BestEffortLink
from outrider.core.links.fair_shares import NOBODY, FairShares
from outrider.core.model import Image

RATE = 10
TURN_BYTES = RATE * TURN_S


def image(name: str, size_bytes: int) -> Image:
    return Image(uri=f"http://site/{name}", size_bytes=size_bytes, digest=f"sha256:{name}")


def filled(jobs: list[tuple[int, int]]) -> BestEffortLink:
    """A lane with an image for each of these users and sizes, in this order."""
    lane = BestEffortLink(rate_bytes_per_s=RATE, beside_rate_bytes_per_s=0, is_relay=True)
    for number, (user, size_bytes) in enumerate(jobs):
        ((_, cargo),) = lane.add(image(str(number), size_bytes), [number])
        lane.join(cargo, user)
    return lane


def carried_out(lane: BestEffortLink) -> list[tuple[int, int]]:
    """The transfers in the order in which they end, and the bytes that were sent by then."""
    found, sent_bytes = [], 0
    while lane.waiting:
        cargo = lane.begin(0)
        while cargo is not None and cargo in lane.running:
            step_bytes = min(cargo.left_bytes, TURN_BYTES)
            sent_bytes += step_bytes
            lane.moved(cargo, cargo.left_bytes - step_bytes)
            lane.charge(cargo, step_bytes)
            if not cargo.left_bytes:
                found.append((cargo.number, sent_bytes))
                lane.arrive(cargo, cargo.nodes[0])
            elif lane.is_turn_over(cargo):
                lane.give_way(cargo)
    return found


def test_who_has_had_least_is_first_and_ties_go_to_the_least_number() -> None:
    turns = FairShares()
    for user in (3, 2, 1):
        turns.come(user)
    turns.charge([1], 10)

    assert turns.first([1, 2, 3]) == 2
    assert turns.first([]) == NOBODY


def test_who_comes_anew_is_level_with_who_has_had_least() -> None:
    turns = FairShares()
    turns.come(1)
    turns.come(2)
    turns.charge([1], 100)
    turns.charge([2], 70)
    turns.come(3)

    assert turns.had(3) == 70


def test_to_stop_asking_wipes_nothing_out_while_others_wait() -> None:
    turns = FairShares()
    turns.come(1)
    turns.come(2)
    turns.charge([1], 100)
    turns.go(1)
    turns.come(1)

    assert turns.had(1) == 100


def test_what_is_had_together_is_shared() -> None:
    turns = FairShares()
    turns.come(1)
    turns.come(2)
    turns.charge([1, 2], 100)

    assert (turns.had(1), turns.had(2)) == (50, 50)


def test_users_alternate_and_one_users_images_keep_their_order() -> None:
    lane = filled([(1, 100), (1, 100), (1, 100), (2, 100), (2, 100)])

    assert [number for number, _ in carried_out(lane)] == [-1, -4, -2, -5, -3]


def test_long_transfer_gives_way_after_its_turn_and_goes_on() -> None:
    lane = filled([(1, 5 * TURN_BYTES), (2, 100)])

    assert carried_out(lane) == [(-2, TURN_BYTES + 100), (-1, 5 * TURN_BYTES + 100)]


def test_transfer_that_is_held_up_does_not_count_for_the_turns_of_others() -> None:
    lane = filled([(1, 100), (2, 100), (2, 100)])
    held_up = lane.begin(0)
    assert held_up is not None
    lane.set_aside(held_up)
    running = lane.begin(0)
    assert running is not None
    lane.charge(running, 500)
    ((_, cargo),) = lane.add(image("new", 100), [9])
    lane.join(cargo, 3)

    assert lane._turns.had(3) == 500


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3 * TURN_BYTES)), min_size=1, max_size=12),
)
def test_expected_ends_are_those_that_come_true(jobs: list[tuple[int, int]]) -> None:
    lane = filled(jobs)
    expected = lane.ends((), 0)
    ended = dict(carried_out(filled(jobs)))

    most_bytes = max(size_bytes for _, size_bytes in jobs)
    for number, sent_bytes in ended.items():
        # Whose turn it is at the end of an image is not known before its beginning.
        assert abs(expected[number] - sent_bytes / RATE) <= 4 * (min(most_bytes, TURN_BYTES) / RATE + 1)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3 * TURN_BYTES)), min_size=2, max_size=12),
)
def test_no_user_is_ahead_of_another_who_waits_by_more_than_two_turns(jobs: list[tuple[int, int]]) -> None:
    lane = filled(jobs)
    had: dict[int, int] = dict.fromkeys({user for user, _ in jobs}, 0)
    user_of = {-number: user for number, (user, _) in enumerate(jobs, start=1)}
    while len({user_of[each.number] for each in lane.waiting}) == len(had):
        cargo = lane.begin(0)
        assert cargo is not None
        step_bytes = min(cargo.left_bytes, TURN_BYTES)
        lane.moved(cargo, cargo.left_bytes - step_bytes)
        lane.charge(cargo, step_bytes)
        had[user_of[cargo.number]] += step_bytes
        if cargo.left_bytes:
            lane.give_way(cargo)
        else:
            lane.arrive(cargo, cargo.nodes[0])

    assert max(had.values()) - min(had.values()) <= 2 * TURN_BYTES


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2 * TURN_BYTES)), min_size=0, max_size=8),
    st.integers(1, 4),
    st.integers(1, 2 * TURN_BYTES),
)
def test_end_of_what_is_added_is_the_one_that_is_expected_then(
    jobs: list[tuple[int, int]], user: int, size_bytes: int
) -> None:
    lane = filled(jobs)
    foreseen = lane.end_if_added(image("new", size_bytes), 1, (), 0, user=user)
    ((_, cargo),) = lane.add(image("new", size_bytes), [99])
    lane.join(cargo, user)

    assert lane.ends((), 0)[cargo.number] == foreseen
