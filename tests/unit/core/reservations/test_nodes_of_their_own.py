"""Instances that have a node each, whatever else is on it, and nodes that are given back."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from outrider.core.images.pools import Pools
from outrider.core.links.links import ExclusiveLinks
from outrider.core.model import Image, Node, Resources, Workspace
from outrider.core.reservations.admission import Rejected, admit, assess
from outrider.core.reservations.book import Book, ReservationPlan, Terms
from outrider.core.reservations.renegotiation import give_back
from tests.amount import examples

CPUS = 4
LAST_S = 60


def book_of(nodes: int) -> Book:
    made = [Node(name=f"n{number}", capacity=Resources.of(cpus=CPUS)) for number in range(nodes)]
    return Book(made, Terms(), links=ExclusiveLinks(rate_bytes_per_s=1), pools=Pools(made))


def wanted(name: str, start_s: int, duration_s: int, *, instances: int, cpus: int) -> Workspace:
    return Workspace(
        name=name,
        instances=instances,
        resources=Resources.of(cpus=cpus),
        duration_s=duration_s,
        start_s=start_s,
        is_spread=True,
    )


def free_at(book: Book, node: str, at_s: int) -> int:
    """Added up from the reservations, second by second."""
    return CPUS - sum(
        entry.reservation.workspace.resources["cpus"]
        for entry in book.entries.values()
        for name in entry.reservation.nodes
        if name == node and entry.reservation.start_s <= at_s < entry.end_s
    )


def room(book: Book, request: Workspace, start_s: int) -> int:
    need, span = request.resources["cpus"], range(start_s, start_s + request.duration_s)
    names = [node.name for node in book.timeline.nodes]
    return sum(all(free_at(book, name, at_s) >= need for at_s in span) for name in names)


@pytest.mark.parametrize("seed", range(examples(120)))
def test_each_instance_has_a_node_and_the_first_start_is_the_first(seed: int) -> None:
    chance, book = random.Random(seed), book_of(3)
    for number in range(20):
        request = wanted(
            f"w{number}", chance.randrange(LAST_S), chance.randint(1, 12),
            instances=chance.randint(1, 3), cpus=chance.randint(1, CPUS),
        )  # fmt: skip
        assert request.start_s is not None
        could = room(book, request, request.start_s) >= request.instances
        starts = itertools.count(request.start_s)
        first_s = next(at_s for at_s in starts if room(book, request, at_s) >= request.instances)

        answer = admit(book, request, 0)

        assert isinstance(answer, ReservationPlan) is could
        if isinstance(answer, Rejected):
            assert answer.earliest_start_s == first_s
            later = assess(book, replace(request, start_s=first_s), 0)
            assert isinstance(later, ReservationPlan)
        else:
            assert len(set(book.entries[request.name].reservation.nodes)) == request.instances


def test_what_is_given_back_is_free_and_the_rest_stays() -> None:
    book, image = book_of(2), Image(uri="a", size_bytes=5)
    request = replace(wanted("mine", 10, 20, instances=2, cpus=CPUS), image=image)
    assert isinstance(admit(book, request, 0), ReservationPlan)
    other = wanted("other", 15, 15, instances=1, cpus=1)

    before = assess(book, other, 12)
    give_back(book, "mine", frozenset({"n1"}), 12)
    after = admit(book, other, 12)

    assert isinstance(before, Rejected)
    assert isinstance(after, ReservationPlan)
    assert book.entries["other"].reservation.nodes == ("n1",)
    assert book.entries["mine"].reservation.nodes == ("n0",)
    assert [node for node, _ in book.entries["mine"].lives] == [0]
    assert [book.timeline.nodes[each.node].name for each in book.entries["mine"].fits] == ["n0"]
    with pytest.raises(ValueError, match="would have no node"):
        give_back(book, "mine", frozenset({"n0"}), 12)
