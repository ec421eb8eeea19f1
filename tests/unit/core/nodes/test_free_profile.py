"""The profile of free processors against a list with one number a second."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.nodes.free_profile import FreeProfile
from tests.amount import examples

HORIZON_S = 24

changes = st.lists(
    st.tuples(
        st.integers(0, HORIZON_S - 1),
        st.integers(1, HORIZON_S),
        st.integers(-3, 3),
        st.one_of(st.none(), st.integers(0, 8)),
    ),
    max_size=8,
)


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(changes)
def test_a_profile_answers_as_a_list_of_seconds_does(
    changes: list[tuple[int, int, int, int | None]],
) -> None:
    profile = FreeProfile(4)
    # Beyond the horizon nothing changes, so three more seconds stand for all of them.
    seconds = [4] * (2 * HORIZON_S + 3)
    now_s = 0
    for start_s, duration_s, processors, step_s in changes:
        if step_s is not None:
            now_s += step_s
            profile.forget_before(now_s)
        profile.add(start_s, start_s + duration_s, processors)
        for second in range(max(start_s, now_s), start_s + duration_s):
            if second < len(seconds):
                seconds[second] += processors

    for asked in range(1, 5):
        for duration_s in (1, 2, 5):
            fitting = [
                second
                for second in range(now_s, 2 * HORIZON_S + 3)
                if all(free >= asked for free in seconds[second : second + duration_s])
            ]
            claimed = [
                second
                for second in range(now_s, 2 * HORIZON_S + 3)
                if profile.fits(second, duration_s, asked)
            ]
            assert claimed == fitting
            if fitting:
                assert profile.earliest_s(now_s, duration_s, asked) == fitting[0]
    if now_s < len(seconds):
        assert profile.lowest() == min(seconds[now_s:])
