"""Which preemptible jobs make way for a reservation: where least is lost, one chosen at a time."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from outrider.core.besteffort.jobs.requeueing import PreemptibleRun, RequeueTerms, fewest_lost
from outrider.core.images.pools import Pools
from outrider.core.links.links import ExclusiveLinks
from outrider.core.model import Node, Resources, Workspace
from outrider.core.reservations.book import Book, ReservationPlan, Terms
from outrider.core.reservations.planning import plan_at

START_S, DURATION_S, NOW_S = 1_000, 100, 500
TERMS = RequeueTerms(grace_s=30, margin_s=40)


def book_of(count: int) -> Book:
    nodes = [Node(name=f"n{number}", capacity=Resources.of(cpus=1)) for number in range(count)]
    return Book(nodes, Terms(), links=ExclusiveLinks(rate_bytes_per_s=1), pools=Pools(nodes))


def run(name: str, *nodes: int, start_s: int = 0, end_s: int = 5_000, saves: bool = False) -> PreemptibleRun:
    return PreemptibleRun(name=name, nodes=nodes, start_s=start_s, end_s=end_s, terms=TERMS, keeps_work=saves)


def chosen(book: Book, instances: int, runs: list[PreemptibleRun]) -> list[int]:
    """The nodes on which a reservation is planned."""
    workspace = Workspace(
        name="r", instances=instances, resources=Resources.of(cpus=1), duration_s=DURATION_S, start_s=START_S
    )
    plan = plan_at(book, workspace, START_S, NOW_S)
    assert isinstance(plan, ReservationPlan)
    return sorted(fit.node for fit in fewest_lost(book, plan, runs, NOW_S).fits)


def lost_on(nodes: tuple[int, ...], runs: list[PreemptibleRun]) -> int:
    """What is lost if a reservation has these nodes: of each job in the way all that it has done."""
    return sum(
        0 if each.keeps_work else len(each.nodes) * (START_S - each.start_s)
        for each in runs
        if each.end_s > START_S and set(each.nodes) & set(nodes)
    )


def test_free_node_is_taken_first() -> None:
    assert chosen(book_of(3), 1, [run("a", 0), run("b", 1)]) == [2]


def test_plan_without_anybody_in_its_way_stays_as_it_is() -> None:
    assert chosen(book_of(3), 1, [run("a", 2), run("over", 0, end_s=START_S)]) == [0]


@pytest.mark.parametrize(("starts", "node"), [((300, 200, 100), 0), ((100, 300, 200), 1), ((1, 2, 3), 2)])
def test_youngest_loses_least(starts: tuple[int, ...], node: int) -> None:
    runs = [run(f"j{number}", number, start_s=start_s) for number, start_s in enumerate(starts)]

    assert chosen(book_of(3), 1, runs) == [node]


def test_job_that_saves_its_work_loses_nothing() -> None:
    assert chosen(book_of(2), 1, [run("young", 0, start_s=400), run("saving", 1, saves=True)]) == [1]


def test_among_those_that_save_the_youngest_goes() -> None:
    runs = [run("old", 0, start_s=1, saves=True), run("young", 1, start_s=2, saves=True)]

    assert chosen(book_of(2), 1, runs) == [1]


def test_gang_that_goes_gives_all_its_nodes() -> None:
    # Either of the gang's nodes costs 800 node-seconds, and then the other nothing; c and d cost 1,000 each.
    runs = [run("gang", 1, 2, start_s=600), run("c", 0), run("d", 3)]

    assert chosen(book_of(4), 2, runs) == [1, 2]


def test_two_jobs_of_one_node_both_count() -> None:
    runs = [run("a", 0, start_s=300), run("b", 0, start_s=300), run("c", 1, start_s=200)]

    assert chosen(book_of(2), 1, runs) == [1]


def test_jobs_on_nodes_of_their_own_are_chosen_as_trying_all_would() -> None:
    chance = Random(7)
    for _ in range(300):
        count = chance.randint(2, 7)
        runs = [
            run(f"j{node}", node, start_s=chance.randrange(START_S), saves=chance.random() < 0.2)
            for node in range(count)
            if chance.random() < 0.8
        ]
        instances = chance.randint(1, count)
        found = tuple(chosen(book_of(count), instances, runs))

        least = min(lost_on(nodes, runs) for nodes in combinations(range(count), instances))
        assert lost_on(found, runs) == least


def test_gangs_never_cost_more_than_the_plan_without_a_choice() -> None:
    chance = Random(11)
    better = 0
    for _ in range(300):
        count = chance.randint(3, 8)
        runs = [
            run(
                f"j{number}",
                *sorted(chance.sample(range(count), chance.randint(1, 3))),
                start_s=chance.randrange(900),
            )
            for number in range(chance.randint(1, 4))
        ]
        instances = chance.randint(1, count)
        before = tuple(range(instances))
        found = tuple(chosen(book_of(count), instances, runs))

        assert lost_on(found, runs) <= lost_on(before, runs)
        better += lost_on(found, runs) < lost_on(before, runs)
    assert better > 50


def test_notice_is_grace_and_margin() -> None:
    assert TERMS.notice_s == 70
    assert TERMS.latest_requeue_s(START_S) == 960
    assert TERMS.requeue_s(920, START_S) == 950
    assert TERMS.requeue_s(945, START_S) == 960
    assert run("a", 0).held_until_s(NOW_S) == 570
    assert run("a", 0, end_s=520).held_until_s(NOW_S) == 520
