"""What is remembered of nodes between several questions: the answers are those without it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.model import Node, Resources
from outrider.core.nodes.earliest_slots import SlotSweep
from outrider.core.nodes.selection import fit
from outrider.core.nodes.timeline import SiteTimeline
from tests.amount import examples

HORIZON_S = 12
SETTINGS = settings(max_examples=examples(600), derandomize=True, deadline=None)
Change = tuple[int, int, int, int]
Question = tuple[int, int, int, int, int]

CHANGES = st.tuples(st.integers(0, 3), st.integers(1, 2), st.integers(0, 10), st.integers(1, 6))
QUESTIONS = st.tuples(
    st.integers(1, 2), st.integers(1, 6), st.integers(1, 5), st.integers(0, 4), st.integers(0, 15)
)


def site() -> SiteTimeline:
    sizes = (1, 2, 2, 2)
    return SiteTimeline(
        [Node(name=f"n{n}", capacity=Resources.of(cpus=cpus)) for n, cpus in enumerate(sizes)]
    )


def changed(timeline: SiteTimeline, change: Change) -> None:
    node, cpus, start_s, lasts_s = change
    if timeline.rows[node].fits(cpus, start_s, start_s + lasts_s):
        timeline.reserve(node, cpus, start_s, start_s + lasts_s)


def answers(timeline: SiteTimeline, question: Question) -> tuple[object, ...]:
    """The first start with room, the nodes with room there, and those that are taken at the first instant."""
    need, instances, duration_s, from_s, broken = question
    available = timeline.everyone & ~broken
    sweep = SlotSweep(
        timeline, instances=instances, need=need, duration_s=duration_s, start_s=from_s, available=available
    )
    start_s = sweep.advance()
    roomy = 0 if start_s is None else sweep.roomy()
    taken = fit(
        timeline,
        instances=instances,
        need=need,
        start_s=from_s,
        end_s=from_s + duration_s,
        available=available,
        holders=0b0110,
    )
    return start_s, roomy, taken


@SETTINGS
@given(
    st.lists(CHANGES, max_size=8),
    st.lists(st.one_of(QUESTIONS, CHANGES), min_size=2, max_size=8),
)
def test_answers_are_those_of_a_table_that_remembers_nothing(
    before: list[Change], steps: list[Question | Change]
) -> None:
    timeline, made = site(), list[Change]()
    for change in before:
        changed(timeline, change)
        made.append(change)
    with timeline.remembering():
        for step in steps:
            if len(step) == 4:
                changed(timeline, step)
                made.append(step)
                continue
            afresh = site()
            for change in made:
                changed(afresh, change)

            assert answers(timeline, step) == answers(afresh, step)


def test_nodes_are_looked_at_once_for_all_options() -> None:
    timeline = site()
    for node in range(4):
        timeline.reserve(node, 1, 0, 5)
    with timeline.remembering():
        first = timeline.rooms_from(1, 0, 6)
        longer = timeline.free_runs(1, 0, 10, 20)

        assert timeline.rooms_from(1, 0, 4) is first
        assert timeline.free_runs(1, 0, 10, 15) is longer
        assert timeline.rooms_from(1, 0, 9) is not first
        timeline.reserve(1, 1, 8, 9)
        assert timeline.free_runs(1, 0, 10, 15) is not longer
    assert timeline.rooms_from(1, 0, 4) is None
