"""What was renegotiated, lost and mended outlives a restart like what was promised at first."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.reservations.missing_copies import awaited, copy_arrived, lose_copy, restage
from outrider.core.reservations.refusal import Refusal
from outrider.core.reservations.renegotiation import change_end, renegotiate
from outrider.core.restart.snapshot import keep
from outrider.store.forms import read_reservation, read_transfer, write_reservation, write_transfer
from tests.amount import examples
from tests.unit.core.restart.test_restoring import again, contents, go_on, random_request, random_service


def change_something(book: Book, chance: Random, now_s: int, counts: Counter[str]) -> None:
    """One of the things that can happen to a promise."""
    live = sorted(name for name, entry in book.entries.items() if entry.end_s > now_s)
    if not live:
        return
    name, what = chance.choice(live), chance.choice(["renew", "end", "lose", "arrive"])
    entry = book.entries[name]
    node = chance.choice(book.timeline.nodes).name
    if what == "renew":
        workspace = replace(random_request(chance, name, now_s), name=name)
        counts["renewed"] += isinstance(renegotiate(book, workspace, now_s).admission, ReservationPlan)
    elif what == "end" and entry.reservation.start_s <= now_s:
        end_s = now_s + chance.randint(1, 12)
        counts["ends otherwise"] += change_end(book, name, end_s, now_s) is None
    elif what == "arrive":
        for key in awaited(book, node):
            counts["arrived"] += bool(copy_arrived(book, node, key, now_s))
    elif what == "lose":
        pool = book.pools.pools[book.timeline.number_of[node]]
        for key in sorted(pool.lives):
            for user in lose_copy(book, node, key, now_s).users:
                # Sometimes the service dies before it has mended what was lost.
                if book.entries[user].end_s > now_s and chance.random() < 0.8:
                    done = restage(book, user, now_s)
                    counts["not mended" if isinstance(done, Refusal) else "mended"] += 1


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_book_after_changes_is_restored_and_answers_alike(is_shared: bool) -> None:
    counts: Counter[str] = Counter()
    for seed in range(examples(300)):
        chance = Random(seed)
        site, service = random_service(chance, is_shared=is_shared)
        book, now_s = service.book, service.now_s
        book.links.pass_until(now_s)
        for _ in range(4):
            change_something(book, chance, now_s, counts)
        kept = keep(book, now_s)
        kept = replace(
            kept,
            reservations=tuple(read_reservation(write_reservation(each)) for each in kept.reservations),
            transfers=tuple(read_transfer(write_transfer(each)) for each in kept.transfers),
        )
        restored = again(site, kept, now_s, is_shared=is_shared)
        survivor = deepcopy(book)

        assert not restored.lost, f"seed {seed}"
        assert contents(restored.book, now_s) == contents(survivor, now_s), f"seed {seed}"
        assert go_on(restored.book, now_s, seed) == go_on(survivor, now_s, seed), f"seed {seed}"
    assert all(counts[each] > examples(10) for each in ("renewed", "ends otherwise", "arrived", "mended")), (
        counts
    )
