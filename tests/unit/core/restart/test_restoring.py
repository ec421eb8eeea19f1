"""A restored book against the one that went on: the same requests, the same answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from outrider.core.besteffort.board import QueueRules
from outrider.core.images.pools import Life, PlannedPool, Pools
from outrider.core.links.links import ExclusiveLinks, LinkEvent, Links
from outrider.core.links.shared import SharedLink
from outrider.core.model import Image, Resources, Workspace
from outrider.core.nodes import timeline as module
from outrider.core.reservations.admission import Rejected, admit, assess
from outrider.core.reservations.book import Book, ReservationPlan, Shipping
from outrider.core.restart.restore import Restored, restore
from outrider.core.restart.snapshot import KeptBook, TransferStage, keep
from outrider.core.scheduler import Scheduler
from tests.amount import examples
from tests.unit.core.books import A, B, C, accept, begin_next, end_running, nodes, pass_time, promises, wanted
from tests.unit.core.driver import Driver
from tests.unit.core.ledger import Ledger
from tests.unit.core.reservations.test_history import IMAGES, random_requests, random_site
from tests.unit.core.sites import RATE_BYTES_PER_S, Site, oldest_first


def new_links(site: Site, *, is_shared: bool) -> Links:
    if is_shared:
        return SharedLink(rate_bytes_per_s=10, best_effort_percent=50, reserve_s=site.reserve_s)
    return ExclusiveLinks(rate_bytes_per_s=RATE_BYTES_PER_S, reserve_s=site.reserve_s)


def again(site: Site, kept: KeptBook, now_s: int, *, is_shared: bool = False) -> Restored:
    """The site starts once more with what was kept."""
    terms = site.book().terms
    pools = Pools(site.nodes, keep_bytes=site.keep_bytes, rank=oldest_first)
    return restore(
        site.nodes, terms, kept, links=new_links(site, is_shared=is_shared), pools=pools, now_s=now_s
    )


def copy_values(life: Life) -> object:
    """What can be noticed of a copy: of one that has arrived nobody asks how it came."""
    came = None if life.transfer is None else (life.transfer, life.start_s, life.is_firm)
    return life.image, came, life.ready_s, life.expires_s, sorted(life.users.items())


def copies(pool: PlannedPool) -> dict[str, list[object]]:
    return {key: [copy_values(life) for life in lives] for key, lives in pool.lives.items()}


def answer_values(answer: ReservationPlan | Rejected) -> object:
    """An answer without the identity of the lives that it names."""
    if isinstance(answer, Rejected):
        return answer
    joined = [(node, copy_values(life)) for node, life in answer.joined]
    return replace(answer, joined=()), joined


def random_request(chance: Random, name: str, now_s: int) -> Workspace:
    start_s, duration_s = now_s + chance.choice([0, 1, 3, 6, 10, 20]), chance.randint(1, 9)
    return Workspace(
        name=name,
        instances=chance.choice([1, 1, 2, 3, 4]),
        resources=Resources.of(cpus=chance.randint(0, 2), memory_mib=chance.randint(0, 3)),
        duration_s=duration_s,
        image=chance.choice([None, *IMAGES, *IMAGES]),
        start_s=start_s,
        finish_by_s=start_s + duration_s + chance.randint(0, 25) if chance.random() < 0.3 else None,
    )


def events(book: Book, now_s: int, until_s: int) -> Iterator[LinkEvent]:
    """What begins and ends on the links, each when it is due."""
    while (at_s := book.links.next_event_s(now_s)) is not None and at_s <= until_s:
        now_s = at_s
        yield from book.links.advance(now_s)
    yield from book.links.advance(until_s)


def move(book: Book, now_s: int, until_s: int) -> list[object]:
    """Let transfers begin and end up to an instant; what happened."""
    happened: list[object] = []
    for event in events(book, now_s, until_s):
        happened.append(event)
        if event.has_begun:
            book.transfer_begun(event.transfer.number, event.at_s)
        else:
            lives = book.transfer_done(event.transfer.number, event.at_s)
            happened.append([(node, copy_values(life)) for node, life in lives])
        book.expect_arrivals(event.at_s)
    return happened


def go_on(book: Book, now_s: int, seed: int, counts: Counter[str] | None = None) -> list[object]:
    """Random requests and events from now on; every answer, and what the book holds at the end."""
    chance = Random(seed)
    counts = Counter() if counts is None else counts
    log: list[object] = []
    for number in range(chance.randint(3, 10)):
        if chance.random() < 0.6:
            passed_s = chance.choice([0, 1, 2, 5])
            log.append(move(book, now_s, now_s + passed_s))
            now_s += passed_s
        if chance.random() < 0.4:
            book.pools.settle(now_s)
        if chance.random() < 0.15:
            book.timeline.forget_before(now_s)
        if chance.random() < 0.1:
            book.available ^= 1
        if book.entries and chance.random() < 0.25:
            log.append(book.cancel(chance.choice(sorted(book.entries)), now_s))
        book.links.pass_until(now_s)
        answer = admit(book, random_request(chance, f"later{number}", now_s), now_s)
        counts[type(answer).__name__] += 1
        if isinstance(answer, ReservationPlan):
            book.expect_arrivals(now_s)
            counts["joins"] += bool(answer.joined)
            counts["revives"] += bool(answer.revived)
            counts["pushes"] += bool(answer.pushed)
        else:
            counts["tells"] += answer.earliest_start_s is not None
        log.append(answer_values(answer))
    log.append(contents(book, now_s))
    return log


def contents(book: Book, now_s: int) -> object:
    """What the book promises, and what lies in its pools."""
    lingering = [
        (sorted(pool.lingering.items()), sorted(pool.uses.items()), pool.promised_bytes)
        for pool in book.pools.pools
    ]
    return promises(book, now_s), lingering


def end_best_effort(scheduler: Scheduler, now_s: int) -> None:
    """Runs do not outlive a restart; what is on the link for them does."""
    for name in {run.workspace.name for run in scheduler.board.runs.values()}:
        scheduler.queue.cancel(name, now_s)


class Crashing(Driver):
    """A history in the middle of which the book is lost, again and again, and made anew."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        chance = Random(seed)
        site = random_site(chance)
        super().__init__(
            site, random_requests(chance, chance.randint(3, 12)), link_first=chance.random() < 0.5
        )
        self._seed = seed
        self._chance = chance
        self._counts = counts

    def _check(self) -> None:
        book = self.scheduler.book
        links = book.links
        assert isinstance(links, ExclusiveLinks)
        # The driver follows best-effort transfers by itself and leaves the link behind.
        while (at_s := links.best_effort.next_event_s()) is not None and at_s <= self.now_s:
            links.best_effort.take_event()
        if self._chance.random() < 0.1:
            book.timeline.forget_before(self.now_s)
        if self._chance.random() < 0.15:
            self._crash()

    def _crash(self) -> None:
        self._counts["crashes"] += 1
        # What gets into tables late would get into those of a copy twice.
        assert all(self.scheduler.board.everything.rows)
        scheduler = deepcopy(self.scheduler)
        end_best_effort(scheduler, self.now_s)
        survivor = scheduler.book
        kept = keep(survivor, self.now_s)
        self._counts["under way"] += any(each.stage is TransferStage.RUNNING for each in kept.transfers)
        self._counts["lingering"] += any(each.lingering for each in kept.pools)
        self._counts["runs"] += bool(self.scheduler.board.runs)
        self._counts["used lately"] += bool(kept.used_lately)
        restored = again(self.site, kept, self.now_s)

        assert not restored.lost
        assert contents(restored.book, self.now_s) == contents(survivor, self.now_s)
        later = self._seed * 1000 + self._counts["crashes"]
        expected = go_on(survivor, self.now_s, later)
        assert go_on(restored.book, self.now_s, later, self._counts) == expected


@pytest.mark.parametrize("block", range(4))
def test_a_restored_book_answers_like_the_one_that_went_on(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUCKET_S", 4 if block % 2 else 3600)
    counts: Counter[str] = Counter()
    for seed in range(block * 150, block * 150 + examples(150)):
        crashing = Crashing(seed, counts)
        try:
            crashing.run()
        except AssertionError as error:
            raise AssertionError(f"history {seed}, {crashing.now_s} s: {error}") from error

    everything = "crashes", "under way", "lingering", "runs", "ReservationPlan", "Rejected", "tells"
    assert all(
        counts[each] >= examples(6) for each in (*everything, "joins", "revives", "pushes", "used lately")
    ), counts


class Service:
    """Reservations and best effort over one book, with a ledger of what has changed."""

    def __init__(self, site: Site, *, is_shared: bool) -> None:
        pools = Pools(site.nodes, keep_bytes=site.keep_bytes, rank=oldest_first)
        links = new_links(site, is_shared=is_shared)
        self.book = Book(site.nodes, site.book().terms, links=links, pools=pools)
        self.scheduler = Scheduler(self.book, QueueRules())
        self.ledger = Ledger()
        self.now_s = 0

    def pass_time(self, passed_s: int) -> None:
        for event in events(self.book, self.now_s, self.now_s + passed_s):
            if event.has_begun:
                self.book.transfer_begun(event.transfer.number, event.at_s)
            else:
                self.book.transfer_done(event.transfer.number, event.at_s)
            self.ledger.happened(self.book, event)
        self.now_s += passed_s
        for name in [name for name, entry in self.book.entries.items() if entry.end_s <= self.now_s]:
            self.cancel(name)
        for run in list(self.scheduler.board.runs.values()):
            if run.end_s <= self.now_s:
                self.scheduler.queue.finish(run, self.now_s)
            elif run.start_s <= self.now_s and not run.has_begun:
                self.scheduler.queue.begin(run, self.now_s)

    def ask(self, workspace: Workspace) -> None:
        if workspace.is_best_effort:
            self.scheduler.submit(workspace)
        else:
            answer = self.scheduler.reserve(workspace, self.now_s, tells_earliest=False)
            if isinstance(answer.admission, ReservationPlan):
                self.ledger.accepted(self.book, answer.admission, self.now_s)
        self.scheduler.schedule(self.now_s)
        self.book.expect_arrivals(self.now_s)
        self.ledger.look_at_best_effort(self.book, self.now_s)

    def cancel(self, name: str) -> None:
        entry = self.book.entries[name]
        start_s = max(entry.reservation.start_s, self.now_s)
        self.scheduler.queue.give_back(entry.fits, entry.need, start_s, entry.end_s)
        self.ledger.cancel(self.book, name, self.now_s)


def random_service(chance: Random, *, is_shared: bool, ledger: Ledger | None = None) -> tuple[Site, Service]:
    """A service in the middle of its life."""
    site = random_site(chance)
    service = Service(site, is_shared=is_shared)
    service.ledger = ledger or service.ledger
    for number in range(chance.randint(2, 12)):
        service.pass_time(chance.choice([0, 0, 1, 3]))
        workspace = random_request(chance, f"w{number}", service.now_s)
        if chance.random() < 0.35:
            workspace = replace(workspace, start_s=None, finish_by_s=None)
        service.ask(workspace)
        if service.book.entries and chance.random() < 0.3:
            service.cancel(chance.choice(sorted(service.book.entries)))
    end_best_effort(service.scheduler, service.now_s)
    service.ledger.look_at_best_effort(service.book, service.now_s)
    return site, service


@pytest.mark.parametrize("is_shared", [False, True])
def test_what_each_decision_changed_is_enough_to_restore_the_book(is_shared: bool) -> None:
    counts: Counter[str] = Counter()
    for seed in range(300, 300 + examples(300)):
        site, service = random_service(Random(seed), is_shared=is_shared)
        book, now_s = service.book, service.now_s
        rest = keep(book, now_s)
        if is_shared:
            # How much has been sent changes with every second.
            service.ledger.look_at(book, {each.transfer.number for each in rest.transfers}, now_s)
        kept = service.ledger.kept(rest)
        counts["done"] += any(each.stage is TransferStage.DONE for each in kept.transfers)
        counts["unwanted"] += any(each.unwanted for each in kept.transfers)
        counts["best effort"] += any(each.transfer.deadline_s is None for each in rest.transfers)
        restored = again(site, kept, now_s, is_shared=is_shared)
        survivor = deepcopy(book)

        assert contents(restored.book, now_s) == contents(survivor, now_s), f"seed {seed}"
        expected = go_on(survivor, now_s, seed)
        assert go_on(restored.book, now_s, seed, counts) == expected, f"seed {seed}"
    assert all(
        counts[each] > examples(5)
        for each in ("done", "unwanted", "best effort", "ReservationPlan", "Rejected", "joins")
    ), counts


def test_without_what_lingers_all_promises_are_kept_and_none_is_too_much() -> None:
    for seed in range(examples(150)):
        site, service = random_service(Random(seed), is_shared=False)
        book, now_s = service.book, service.now_s
        book.pools.settle(now_s, includes_now=True)
        kept = replace(keep(book, now_s), pools=(), used_lately=())
        restored = again(site, kept, now_s).book

        assert restored.link.latest_starts() == book.link.latest_starts()
        assert restored.entries.keys() == book.entries.keys()
        for mine, old in zip(restored.pools.pools, book.pools.pools, strict=True):
            assert copies(mine) == copies(old)
            assert mine.promised_bytes == old.promised_bytes
        go_on(restored, now_s, seed)
        for pool in restored.pools.pools:
            assert pool.limit_bytes is None or pool.peak((), now_s) <= pool.limit_bytes


def test_a_life_without_users_is_kept_while_its_transfer_runs() -> None:
    site = Site(nodes=nodes(1, pool_bytes=20))
    book = site.book()
    accept(book, wanted("first", 9, 5, C), 0)
    begin_next(book, 0)
    book.cancel("first", 1)

    restored = again(site, keep(book, 1), 1).book

    refused = assess(restored, wanted("second", 12, 5, B), 1)
    assert isinstance(refused, Rejected)
    assert refused == assess(book, wanted("second", 12, 5, B), 1)
    end_running(restored, 4)
    assert isinstance(assess(restored, wanted("second", 12, 5, B), 4), ReservationPlan)


def test_a_reservation_on_a_node_that_is_gone_is_named_and_the_rest_restored() -> None:
    site = Site(nodes=nodes(3, cpus=1))
    book = site.book()
    for name in ("x", "y", "z"):
        accept(book, wanted(name, 10, 5, A), 0)

    restored = again(replace(site, nodes=site.nodes[:1] + site.nodes[2:]), keep(book, 0), 0)

    assert [(each.reservation.workspace.name, each.message) for each in restored.lost] == [
        ("y", "the site has no node n1 any more")
    ]
    assert list(restored.book.entries) == ["x", "z"]
    assert [life.image.key for life in restored.book.pools.pools[1].lives["a"]] == ["a"]


def test_what_does_not_fit_on_a_smaller_node_is_named_the_youngest_first() -> None:
    site = Site(nodes=nodes(1, cpus=2))
    book = site.book()
    for name in ("older", "younger"):
        accept(book, wanted(name, 10, 5), 0)

    restored = again(replace(site, nodes=nodes(1, cpus=1)), keep(book, 0), 0)

    assert [each.reservation.workspace.name for each in restored.lost] == ["younger"]
    assert list(restored.book.entries) == ["older"]
    assert restored.book.timeline.rows[0].free_at(12) == 0


def test_what_is_doubtful_makes_room_for_what_was_promised_later_in_its_place() -> None:
    site = Site(nodes=nodes(1, cpus=2))
    book = site.book()
    for name in ("older", "younger"):
        accept(book, wanted(name, 10, 5), 0)

    restored = restore(
        nodes(1, cpus=1),
        book.terms,
        keep(book, 0),
        links=new_links(site, is_shared=False),
        doubtful=frozenset({"older"}),
        now_s=0,
    )

    assert [each.reservation.workspace.name for each in restored.lost] == ["older"]
    assert list(restored.book.entries) == ["younger"]
    assert restored.book.timeline.rows[0].free_at(12) == 0


def test_transfers_of_what_is_lost_are_not_sent_for_nobody() -> None:
    site = Site(nodes=nodes(2, cpus=1))
    book = site.book()
    accept(book, wanted("x", 10, 5, A), 0)
    accept(book, wanted("y", 10, 5, A), 0)

    restored = again(replace(site, nodes=site.nodes[:1]), keep(book, 0), 0).book

    assert [each.nodes for each, _ in restored.link.latest_starts()] == [("n0",)]


def test_transfer_that_still_names_a_node_that_is_gone_may_be_brought_forward() -> None:
    site = Site(nodes=nodes(2, cpus=2), shipping=Shipping.RELAY)
    book = site.book()
    accept(book, wanted("both", 100, 5, A, instances=4), 0)
    accept(book, wanted("one", 120, 5, A), 0)
    # All of the link's time until then.
    large = Image(uri="large", size_bytes=(105 - 2) * RATE_BYTES_PER_S)
    accept(book, wanted("other", 105, 5, large), 0)

    restored = again(replace(site, nodes=site.nodes[:1]), keep(book, 0), 0).book
    named = [each.nodes for each, _ in restored.link.latest_starts() if each.image == A]
    answer = assess(restored, wanted("sooner", 50, 5, A), 0)

    assert named == [("n0", "n1")]
    assert isinstance(answer, ReservationPlan)
    assert (answer.transfers, len(answer.advanced)) == ((), 1)


def test_a_transfer_whose_latest_start_has_passed_makes_its_reservation_late() -> None:
    site = Site(nodes=nodes(2, cpus=1), reserve_s=0)
    book = site.book()
    accept(book, wanted("soon", 10, 5, A), 0)
    accept(book, wanted("later", 30, 5, B, cpus=1), 0)
    kept = keep(book, 0)

    assert again(site, kept, 8).late == ()
    assert again(site, kept, 9).late == ("soon",)
    assert again(site, kept, 29).late == ("later", "soon")


def test_a_pool_that_has_become_too_small_is_named() -> None:
    site = Site(nodes=nodes(1, pool_bytes=40))
    book = site.book()
    accept(book, wanted("x", 10, 20, A), 0)
    accept(book, wanted("y", 15, 20, C), 0)

    assert again(site, keep(book, 0), 0).overfull == ()
    assert again(replace(site, nodes=nodes(1, pool_bytes=27)), keep(book, 0), 0).overfull == ("n0",)
    assert again(replace(site, nodes=nodes(1, pool_bytes=28)), keep(book, 0), 0).overfull == ()


def test_a_scheduler_over_a_restored_book_ends_its_reservations_and_keeps_best_effort_off_them() -> None:
    site = Site(nodes=nodes(1, cpus=1))
    book = site.book()
    accept(book, wanted("promised", 10, 10), 0)
    scheduler = Scheduler(again(site, keep(book, 5), 5).book, QueueRules())
    scheduler.submit(replace(wanted("job", 0, 8), start_s=None, is_preemptible=False))

    assert scheduler.schedule(5) == []
    scheduler.end_reservation("promised", 12)
    (run,) = scheduler.schedule(12)
    assert (run.start_s, run.end_s) == (12, 20)


def test_an_empty_book_is_restored_as_an_empty_book() -> None:
    site = Site(nodes=nodes(2))

    restored = again(site, KeptBook(), 7)

    assert contents(restored.book, 7) == contents(site.book(), 7)
    assert restored.book.next_transfer == 1


def test_copies_of_one_image_end_in_the_order_of_their_ends_however_often_these_were_moved() -> None:
    """The first copy was to expire at 10 and is needed until 30; the second one expires at 25."""
    site = Site(nodes=nodes(1, cpus=3), is_extending=False, keep_bytes=30)
    book = site.book()
    accept(book, wanted("first", 4, 6, A), 0)
    pass_time(book, 0, 3)
    accept(book, wanted("second", 20, 5, A), 3)
    accept(book, wanted("extends the first", 9, 21, A), 3)
    pass_time(book, 3, 5)
    restored = again(site, keep(book, 5), 5).book
    for each in (book, restored):
        each.pools.settle(40)

    assert [pool.lingering["a"].last_use_s for pool in (*book.pools.pools, *restored.pools.pools)] == [30, 30]


def test_copies_of_what_could_not_be_put_back_keep_their_numbers_to_themselves() -> None:
    site = Site(nodes=nodes(2, cpus=1))
    book = site.book()
    for name in ("x", "y"):
        accept(book, wanted(name, 10, 5, A), 0)
    before = keep(book, 0)

    smaller = again(replace(site, nodes=site.nodes[:1]), before, 0).book
    accept(smaller, wanted("z", 20, 5, B), 0)
    after = keep(smaller, 0)
    lost = tuple(each for each in before.reservations if each.workspace.name == "y")
    transfers = {each.transfer.number: each for each in (*before.transfers, *after.transfers)}
    everything = replace(
        after, reservations=(*after.reservations, *lost), transfers=tuple(transfers.values())
    )
    whole = again(site, everything, 0).book

    assert {
        name: [(node, life.image) for node, life in entry.lives] for name, entry in whole.entries.items()
    } == {"x": [(0, A)], "y": [(1, A)], "z": [(0, B)]}
