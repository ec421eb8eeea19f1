"""Deadline leases that have not begun make way: the two known cases, and all ways there are on tiny sites."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from outrider.core.besteffort.board import QueueRules
from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.model import LeasePiece, Resources, Workspace
from outrider.core.reservations.admission import assess
from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.reservations.trial import Trial
from outrider.core.scheduler import LeaseRules, Scheduler
from tests.amount import examples
from tests.unit.core.books import A, nodes, random_book, random_workspace, snapshot, wanted
from tests.unit.core.sites import Site


def scheduler(count: int = 1, cpus: int = 1, *, is_moving: bool = True, overhead_s: int = 0) -> Scheduler:
    book = Site(nodes=nodes(count, cpus=cpus), reserve_s=0).book()
    book.terms = replace(book.terms, split_overhead_s=lambda resources: overhead_s)
    rules = QueueRules(suspension=SuspensionRules(is_allowed=False))
    return Scheduler(book, rules, leases=LeaseRules(is_moving=is_moving))


def is_accepted(site: Scheduler, workspace: Workspace, now_s: int = 0) -> bool:
    return isinstance(site.reserve(workspace, now_s, tells_earliest=False).admission, ReservationPlan)


def places(site: Scheduler) -> dict[str, tuple[tuple[int, int], ...]]:
    return {name: entry.spans() for name, entry in site.book.entries.items()}


def floating(name: str, start_s: int, duration_s: int, finish_by_s: int, instances: int = 1) -> Workspace:
    return wanted(name, start_s, duration_s, instances=instances, finish_by_s=finish_by_s)


@pytest.mark.parametrize("first", ["late", "early"])
def test_of_two_leases_that_fit_in_one_order_both_are_had_in_either_order_asked(first: str) -> None:
    """One fits anywhere from 0:30 to 1:30, the other only from 0:30 to 1:00."""
    site = scheduler()
    leases = {
        "late": floating("late", 1800, 1800, 5400),
        "early": floating("early", 1800, 1800, 3600),
    }

    answers = [is_accepted(site, leases[name]) for name in sorted(leases, key=lambda name: name != first)]

    assert answers == [True, True]
    assert places(site) == {"late": ((3600, 5400),), "early": ((1800, 3600),)}


def test_a_lease_moves_for_a_reservation_of_one_start() -> None:
    site = scheduler()
    is_accepted(site, floating("lease", 10, 20, 100))

    decided = site.reserve(wanted("fixed", 10, 20), 0)

    assert isinstance(decided.admission, ReservationPlan)
    [moved] = decided.moved_leases
    assert (moved.before.start_s, moved.reservation.start_s) == (10, 30)
    assert places(site) == {"fixed": ((10, 30),), "lease": ((30, 50),)}


def test_a_lease_that_has_begun_or_has_no_deadline_does_not_move() -> None:
    begun, fixed = scheduler(), scheduler()
    is_accepted(begun, floating("lease", 0, 20, 100))
    is_accepted(fixed, wanted("lease", 10, 20))

    assert not is_accepted(begun, wanted("late", 10, 20), now_s=5)
    assert not is_accepted(fixed, wanted("late", 10, 20))


def test_a_lease_that_may_yield_is_split_round_a_reservation_and_pays_for_it() -> None:
    """20 s of work before and after 10..20 of another, with 2 s to write memory and 2 s to read it."""
    site = scheduler(overhead_s=2)
    is_accepted(site, wanted("fixed", 10, 10))

    whole = is_accepted(site, floating("whole", 0, 20, 39))
    split = is_accepted(site, replace(floating("split", 0, 20, 39), may_yield=True))

    assert (whole, split) == (False, True)
    assert site.book.entries["split"].reservation.pieces == (
        LeasePiece(0, 10, 0, 2),
        LeasePiece(20, 34, 2, 0),
    )
    assert places(site)["split"] == ((0, 10), (20, 34))


def test_a_lease_that_may_yield_is_split_for_a_reservation_that_comes_later() -> None:
    site = scheduler()
    lease = replace(floating("lease", 5, 20, 35), may_yield=True)
    is_accepted(site, lease)

    decided = site.reserve(wanted("fixed", 10, 10), 0)

    assert isinstance(decided.admission, ReservationPlan)
    assert places(site) == {"fixed": ((10, 20),), "lease": ((5, 10), (20, 35))}


def test_what_is_accepted_without_moving_moves_nobody() -> None:
    accepted = 0
    for seed in range(examples(100)):
        chance, site = Random(seed), scheduler(2)
        for number in range(8):
            request = random_lease(chance, f"r{number}")
            without = assess(site.book, request, 0, tells_earliest=False)
            decided = site.reserve(request, 0, tells_earliest=False)
            if isinstance(without, ReservationPlan):
                accepted += 1
                assert not decided.moved_leases, seed
    assert accepted > examples(150)


def random_lease(chance: Random, name: str) -> Workspace:
    start_s, duration_s = chance.randint(0, 8), chance.randint(1, 5)
    finish_by_s = start_s + duration_s + chance.randint(0, 8) if chance.random() < 0.7 else None
    return replace(wanted(name, start_s, duration_s, instances=chance.randint(1, 2)), finish_by_s=finish_by_s)


def test_a_refusal_and_a_question_change_nothing_in_the_book() -> None:
    """Books in the middle of their lives, with images, pools and transfers under way."""
    asked = moved = 0
    for seed in range(examples(800)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=chance.random() < 0.5)
        site = Scheduler(book, QueueRules(), leases=LeaseRules(is_moving=True))
        request = random_workspace(chance, "w", now_s)
        before = snapshot(book)

        answer = site.what_if(request, now_s)

        asked += 1
        assert snapshot(book) == before, seed
        decided = site.reserve(request, now_s)
        assert isinstance(decided.admission, ReservationPlan) == isinstance(answer, ReservationPlan), seed
        if isinstance(decided.admission, ReservationPlan):
            moved += bool(decided.moved_leases)
        else:
            assert snapshot(book) == before, seed
    assert moved > examples(5), f"{moved} of {asked}"


def test_a_trial_that_is_undone_leaves_no_trace() -> None:
    for seed in range(examples(400)):
        chance = Random(seed)
        book, now_s = random_book(chance, has_limits=chance.random() < 0.5)
        before, chances = snapshot(book), chances_of(book, now_s)

        trial = Trial(book, now_s)
        for name in sorted(book.entries):
            if chance.random() < 0.7:
                trial.take_out(name)
        trial.undo()

        assert snapshot(book) == before, seed
        assert chances_of(book, now_s) == chances, seed


def chances_of(book: Book, now_s: int) -> list[tuple[int, int]]:
    """When all nodes together have room for one instance each, for a second."""
    timeline = book.timeline
    need = timeline.layout.pack(Resources.of(cpus=1))
    return list(timeline.chances(need, len(timeline.nodes), 1, timeline.everyone, now_s))


def test_whoever_moved_keeps_its_deadline_and_no_node_gives_twice() -> None:
    moved = 0
    for seed in range(examples(100)):
        chance = Random(seed)
        count = chance.randint(1, 3)
        site = scheduler(count, overhead_s=chance.choice([0, 1]))
        asked: dict[str, Workspace] = {}
        now_s = 0
        for number in range(10):
            now_s += chance.choice([0, 0, 1])
            request = random_lease(chance, f"r{number}")
            assert request.start_s is not None
            request = replace(
                request,
                start_s=request.start_s + now_s,
                finish_by_s=None if request.finish_by_s is None else request.finish_by_s + now_s,
                may_yield=chance.random() < 0.3,
            )
            begun = {name: spans for name, spans in places(site).items() if spans[0][0] <= now_s}
            decided = site.reserve(request, now_s, tells_earliest=False)
            moved += len(decided.moved_leases)
            if isinstance(decided.admission, ReservationPlan):
                asked[request.name] = request
            assert places(site).items() >= begun.items(), f"seed {seed}: what had begun has moved"
            assert places(site).keys() == asked.keys(), f"seed {seed}: a promise is gone"
            check(site.book, asked, count, seed)
    assert moved > examples(30)


def check(book: Book, asked: dict[str, Workspace], count: int, seed: int) -> None:
    taken: dict[int, int] = {}
    for name, workspace in asked.items():
        reservation = book.entries[name].reservation
        assert workspace.start_s is not None
        last_s = workspace.finish_by_s or workspace.start_s + workspace.duration_s
        assert workspace.start_s <= reservation.start_s, seed
        assert reservation.end_s <= last_s, seed
        work_s = (
            sum(piece.useful_s for piece in reservation.pieces) or reservation.end_s - reservation.start_s
        )
        assert work_s == workspace.duration_s, seed
        for start_s, end_s in reservation.spans:
            for at_s in range(start_s, end_s):
                taken[at_s] = taken.get(at_s, 0) + workspace.instances
    assert max(taken.values(), default=0) <= count, seed


def test_hardly_anything_is_refused_for_which_there_is_any_way_at_all() -> None:
    """Every node of one instance: a set of leases is possible if so many at a time can be laid in time."""
    possible = refused = helped = 0
    for seed in range(examples(1500)):
        chance = Random(seed)
        count = chance.randint(1, 3)
        site, fixed = scheduler(count), scheduler(count, is_moving=False)
        accepted: list[Workspace] = []
        for number in range(5):
            request = later(random_lease(chance, f"r{number}"), chance.randint(1, count))
            is_accepted(fixed, request)
            if is_accepted(site, request):
                accepted.append(request)
                continue
            if any_way([*accepted, request], count):
                refused += 1
            break
        possible += len(accepted)
        helped += len(site.book.entries) > len(fixed.book.entries)
    assert possible > examples(3000)
    assert helped > examples(60)
    assert refused * 1000 <= possible * 3, f"{refused} of {possible}"


def later(lease: Workspace, instances: int) -> Workspace:
    """The same a second later: what begins at once cannot move."""
    assert lease.start_s is not None
    finish_by_s = None if lease.finish_by_s is None else lease.finish_by_s + 1
    return replace(lease, start_s=lease.start_s + 1, finish_by_s=finish_by_s, instances=instances)


def any_way(leases: list[Workspace], count: int) -> bool:
    """Whether all of these have a start, whichever nodes they get: each start is tried."""
    return next(_ways(sorted(leases, key=lambda each: len(_starts(each))), (0,) * 40, count), False)


def _starts(lease: Workspace) -> range:
    assert lease.start_s is not None
    last_s = lease.start_s if lease.finish_by_s is None else lease.finish_by_s - lease.duration_s
    return range(lease.start_s, last_s + 1)


def _ways(leases: list[Workspace], taken: tuple[int, ...], count: int) -> Iterator[bool]:
    if not leases:
        yield True
        return
    lease, rest = leases[0], leases[1:]
    for start_s in _starts(lease):
        end_s = start_s + lease.duration_s
        if max(taken[start_s:end_s]) + lease.instances <= count:
            during = tuple(each + lease.instances for each in taken[start_s:end_s])
            yield from _ways(rest, (*taken[:start_s], *during, *taken[end_s:]), count)


def test_the_model_of_all_ways_finds_what_two_lists_of_starts_say() -> None:
    """A check of the model itself: two leases on one node, by comparing every pair of starts."""
    for seed in range(200):
        chance = Random(seed)
        leases = [replace(random_lease(chance, name), instances=1) for name in "ab"]
        apart = any(
            one + leases[0].duration_s <= other or other + leases[1].duration_s <= one
            for one in _starts(leases[0])
            for other in _starts(leases[1])
        )

        assert any_way(leases, 1) == apart, seed


def test_images_of_leases_that_move_are_there_when_they_begin() -> None:
    site = scheduler(2)
    is_accepted(site, wanted("lease", 10, 10, A, finish_by_s=60))

    decided = site.reserve(wanted("fixed", 10, 10, A, instances=2), 0)

    assert isinstance(decided.admission, ReservationPlan)
    [moved] = decided.moved_leases
    assert moved.reservation.start_s == 20
    for name in ("lease", "fixed"):
        entry = site.book.entries[name]
        assert all(life.ready_s <= entry.reservation.start_s for _, life in entry.lives)
        assert all(life.expires_s >= entry.end_s for _, life in entry.lives)
        assert {node for node, _ in entry.lives} == {chosen.node for chosen in entry.fits}
