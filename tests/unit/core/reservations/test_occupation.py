"""What others take of the nodes: what is free is entered, the rest is named, and all is given back."""

from __future__ import annotations

from random import Random

import pytest

from outrider.core.model import Node, NodeSlot, Resources
from outrider.core.nodes import timeline as module
from outrider.core.reservations.admission import Rejected, admit
from outrider.core.reservations.book import Book
from outrider.core.reservations.occupation import LONGEST_S, Occupation, Occupied, Piece, occupy, vacate
from tests.amount import examples
from tests.unit.core.books import accept, nodes, pass_time, random_book, random_workspace, wanted
from tests.unit.core.naive_checks import check_invariants
from tests.unit.core.sites import Site

HORIZON_S = 90


def slot(node: str, cpus: int, start_s: int, end_s: int) -> NodeSlot:
    return NodeSlot(node=node, resources=Resources.of(cpus=cpus), start_s=start_s, end_s=end_s)


def random_occupation(chance: Random, name: str, now_s: int) -> Occupation:
    return Occupation(
        name=name,
        slots=tuple(
            slot(
                f"n{chance.randint(0, 3)}",
                chance.randint(1, 4),
                start_s := now_s + chance.randint(-5, 15),
                start_s + chance.randint(1, 20),
            )
            for _ in range(chance.randint(1, 3))
        ),
    )


def free_cpus(book: Book, now_s: int) -> list[list[int]]:
    """What each node has free in each second."""
    return [
        [book.timeline.layout.unpack(row.free_at(at_s))["cpus"] for at_s in range(now_s, HORIZON_S)]
        for row in book.timeline.rows
    ]


def entered(
    book: Book, free: list[list[int]], occupation: Occupation, now_s: int
) -> tuple[list[list[int]], set[str]]:
    """What should be free afterwards, second by second, and who should be in the way."""
    left = [list(row) for row in free]
    collides: set[str] = set()
    for each in occupation.slots:
        node = book.timeline.number_of.get(each.node)
        for at_s in range(max(each.start_s, now_s), each.end_s) if node is not None else ():
            assert node is not None
            capacity = book.timeline.nodes[node].capacity["cpus"]
            taken = min(each.resources["cpus"], capacity)
            if taken > left[node][at_s - now_s]:
                collides |= {
                    name
                    for name, entry in book.entries.items()
                    if entry.reservation.start_s <= at_s < entry.end_s
                    and any(chosen.node == node for chosen in entry.fits)
                }
            left[node][at_s - now_s] = max(0, left[node][at_s - now_s] - taken)
    return left, collides


@pytest.mark.parametrize("bucket_s", [4, 3600])
def test_occupations_come_and_go_beside_reservations(bucket_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_S", bucket_s)
    collisions = 0
    for seed in range(examples(400)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=False)
        there: list[Occupied] = []
        for number in range(8):
            free = free_cpus(book, now_s)
            if there and chance.random() < 0.3:
                vacate(book, there.pop(chance.randrange(len(there))), now_s)
            elif chance.random() < 0.3:
                admit(book, random_workspace(chance, f"new{number}", now_s), now_s)
            else:
                occupation = random_occupation(chance, f"job{number}", now_s)
                expected, collides = entered(book, free, occupation, now_s)
                there.append(occupy(book, occupation, now_s))
                assert free_cpus(book, now_s) == expected, f"seed {seed}"
                assert set(there[-1].collides) == collides, f"seed {seed}"
                collisions += bool(collides)
            check_invariants(book, now_s, [piece for each in there for piece in each.pieces])
            until_s = now_s + chance.choice([0, 1, 4])
            pass_time(book, now_s, until_s)
            now_s = until_s
            book.timeline.forget_before(now_s)
        for each in there:
            vacate(book, each, now_s)
        check_invariants(book, now_s)
    assert collisions > 20


def test_a_reservation_is_not_promised_where_a_job_runs() -> None:
    book = Site(nodes=nodes(1)).book()
    job = occupy(book, Occupation(name="job", slots=(slot("n0", 2, -50, 30),)), 5)

    assert job == Occupied(
        name="job", pieces=(Piece(0, book.timeline.layout.pack(Resources.of(cpus=2)), 5, 30),)
    )
    answer = admit(book, wanted("w", 10, 5), 5)
    assert isinstance(answer, Rejected)
    assert answer.earliest_start_s == 30
    vacate(book, job, 8)
    accept(book, wanted("w", 10, 5), 8)


def test_who_is_in_the_way_is_named_by_start_and_what_is_free_is_taken() -> None:
    book = Site(nodes=nodes(2)).book()
    accept(book, wanted("later", 20, 5, instances=4), 0)
    accept(book, wanted("sooner", 10, 5, instances=2), 0)

    job = occupy(book, Occupation(name="job", slots=(slot("n0", 1, 0, 30),)), 0)

    assert job.collides == ("sooner", "later")
    assert free_cpus(book, 0)[0][:32] == [1] * 10 + [0] * 5 + [1] * 5 + [0] * 5 + [1] * 5 + [2] * 2


def test_what_the_site_does_not_have_is_passed_over() -> None:
    book = Site(nodes=nodes(1)).book()
    slots = (
        slot("elsewhere", 1, 0, 9),
        NodeSlot(node="n0", resources=Resources.of(cpus=1, gpus=8), start_s=0, end_s=9),
        NodeSlot(node="n0", resources=Resources.of(gpus=8), start_s=0, end_s=9),
        slot("n0", 1, 3, 3),
    )

    job = occupy(book, Occupation(name="job", slots=slots), 0)

    assert [(piece.node, piece.start_s, piece.end_s) for piece in job.pieces] == [(0, 0, 9)]
    assert job.collides == ()
    assert free_cpus(book, 0)[0][:9] == [1] * 9


def test_of_several_resources_each_is_taken_as_far_as_it_is_free() -> None:
    site = Site(nodes=(Node(name="n0", capacity=Resources.of(cpus=4, memory_mib=8)),))
    book = site.book()
    first = NodeSlot(node="n0", resources=Resources.of(cpus=1, memory_mib=6), start_s=0, end_s=9)
    second = NodeSlot(node="n0", resources=Resources.of(cpus=9, memory_mib=6), start_s=0, end_s=5)
    there = [occupy(book, Occupation(name=str(each), slots=(each,)), 0) for each in (first, second)]

    assert [there[1].collides, book.timeline.rows[0].free_at(0)] == [(), 0]
    vacate(book, there[0], 2)
    assert book.timeline.layout.unpack(book.timeline.rows[0].free_at(2)) == Resources.of(cpus=1, memory_mib=6)
    vacate(book, there[1], 3)
    assert book.timeline.rows[0].free_at(3) == book.timeline.rows[0].capacity


def test_what_is_to_last_for_ages_costs_what_ten_years_do() -> None:
    """Slurm lets a user ask for 8,000 years where a partition has no limit: each hour has its entry."""
    book = Site(nodes=nodes(2)).book()
    ages = occupy(book, Occupation(name="job", slots=(slot("n0", 2, 0, 10**12),)), 100)
    free_again_s = book.timeline.rows[0].first_gap(book.timeline.layout.pack(Resources.of(cpus=1)), 100, 10)
    vacate(book, ages, 200)

    assert [(piece.start_s, piece.end_s) for piece in ages.pieces] == [(100, 100 + LONGEST_S)]
    assert free_again_s == 100 + LONGEST_S
    assert book.timeline.rows[0].is_untouched(200, 10**12)
