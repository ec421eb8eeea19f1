"""Image pools against a model that asks about every second."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from outrider.core.images.pools import Life, Lingering, Pools
from outrider.core.model import Image, Node, Resources
from tests.amount import examples
from tests.unit.core.sites import oldest_first

IMAGES = {key: Image(uri=key, size_bytes=size) for key, size in (("a", 3), ("b", 4), ("c", 6))}
LIMIT = 10
KEEP = 9
HORIZON_S = 60
PEAKS: set[int] = set()
"""What histories have had in the pool at most."""

keys = st.sampled_from(sorted(IMAGES))


def pools(*, keep_bytes: int = KEEP, limit_bytes: int | None = LIMIT, count: int = 1) -> Pools:
    nodes = [
        Node(name=f"n{number}", capacity=Resources.of(cpus=1), pool_bytes=limit_bytes)
        for number in range(count)
    ]
    return Pools(nodes, keep_bytes=keep_bytes, rank=oldest_first)


def life(key: str, start_s: int, ready_s: int, end_s: int, user: str, *, transfer: int | None = None) -> Life:
    return Life(IMAGES[key], start_s, ready_s, end_s, {user: end_s}, transfer=transfer)


@dataclass(eq=False)
class Stay:
    """A life as the model sees it."""

    life: Life
    key: str
    start_s: int
    ready_s: int
    users: dict[str, int] = field(default_factory=dict)
    gone_s: int = 0

    @property
    def end_s(self) -> int:
        return max(self.users.values(), default=self.gone_s)


class PoolHistory(RuleBasedStateMachine):
    """One node's pool: images come, are shared, are left, linger, come back and are given up."""

    def __init__(self) -> None:
        super().__init__()
        self.pools = pools()
        self.pool = self.pools.pools[0]
        self.now_s = 0
        self.users = 0
        self.stays: list[Stay] = []
        self.lingering: dict[str, int] = {}

    def _bytes(self, at_s: int, extra: list[tuple[int, int, int]]) -> int:
        sizes = [
            IMAGES[stay.key].size_bytes
            for stay in self.stays
            if max(stay.start_s, self.now_s) <= at_s < stay.end_s
        ]
        return sum(sizes) + sum(size for start_s, end_s, size in extra if start_s <= at_s < end_s)

    def _fits(self, *extra: tuple[int, int, int]) -> bool:
        return all(self._bytes(at_s, list(extra)) <= LIMIT for at_s in range(self.now_s, HORIZON_S))

    def _held(self) -> int:
        begun = sum(IMAGES[stay.key].size_bytes for stay in self.stays if stay.start_s <= self.now_s)
        return begun + sum(IMAGES[key].size_bytes for key in self.lingering)

    def _give_up(self, bound: int) -> None:
        while self.lingering and self._held() > bound:
            del self.lingering[min(self.lingering, key=lambda key: (self.lingering[key], key))]

    @rule(key=keys, wait_s=st.integers(0, 5), takes_s=st.integers(1, 4), lasts_s=st.integers(1, 9))
    def bring(self, key: str, wait_s: int, takes_s: int, lasts_s: int) -> None:
        start_s = self.now_s + wait_s
        ready_s, end_s = start_s + takes_s, start_s + takes_s + lasts_s
        new = (start_s, end_s, IMAGES[key].size_bytes)
        assert self.pool.has_room([new], self.now_s) == self._fits(new)
        if self._fits(new):
            self.users += 1
            made = life(key, start_s, ready_s, end_s, f"u{self.users}", transfer=self.users)
            self.pools.add(0, made)
            self.stays.append(Stay(made, key, start_s, ready_s, {f"u{self.users}": end_s}))

    @rule(key=keys, later_s=st.integers(0, 9), lasts_s=st.integers(1, 9))
    def join_as_algorithm_4_does(self, key: str, later_s: int, lasts_s: int) -> None:
        at_s = self.now_s + later_s
        found = self.pool.life_at(key, at_s)
        there = [stay for stay in self.stays if stay.key == key and stay.ready_s <= at_s <= stay.end_s]
        assert (found is None) == (not there)
        if found is None:
            return
        stay = next(stay for stay in there if stay.life is found)
        until_s = at_s + lasts_s
        if self._fits((max(stay.end_s, self.now_s), until_s, IMAGES[key].size_bytes)):
            self.users += 1
            self.pools.extend(0, found, f"u{self.users}", until_s)
            stay.users[f"u{self.users}"] = until_s

    @precondition(lambda self: any(stay.users for stay in self.stays))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        stay = data.draw(st.sampled_from([stay for stay in self.stays if stay.users]))
        user = data.draw(st.sampled_from(sorted(stay.users)))
        is_waiting = stay.start_s > self.now_s
        is_dropped = self.pools.leave(0, stay.life, user, self.now_s, is_waiting=is_waiting)
        del stay.users[user]
        stay.gone_s = self.now_s if stay.life.transfer is None else max(self.now_s, stay.ready_s)
        assert is_dropped == (is_waiting and not stay.users)
        if is_dropped:
            self.stays.remove(stay)

    @rule(key=keys, lasts_s=st.integers(1, 9))
    def revive(self, key: str, lasts_s: int) -> None:
        if not self._fits((self.now_s, self.now_s + lasts_s, IMAGES[key].size_bytes)):
            return
        found = self.pools.revive(0, key, IMAGES[key], self.now_s, self.now_s + lasts_s)
        assert (found is None) == (key not in self.lingering)
        if found is not None:
            del self.lingering[key]
            self.users += 1
            self.pools.extend(0, found, f"u{self.users}", self.now_s + lasts_s)
            self.stays.append(
                Stay(found, key, self.now_s, self.now_s, {f"u{self.users}": self.now_s + lasts_s})
            )

    @rule()
    def make_room(self) -> None:
        before = set(self.lingering)
        self._give_up(min(LIMIT, KEEP))
        assert set(self.pools.make_room(0, self.now_s)) == before - set(self.lingering)

    @rule(passed_s=st.integers(1, 6))
    def pass_time(self, passed_s: int) -> None:
        self.now_s = min(self.now_s + passed_s, HORIZON_S - 20)
        for stay in self.stays:
            if stay.ready_s <= self.now_s and stay.life.transfer is not None:
                number, stay.life.transfer = stay.life.transfer, None
                self.pools.arrived(number, 0, stay.life)
        self.pools.settle(self.now_s)
        over = [stay for stay in self.stays if stay.end_s < self.now_s and stay.ready_s <= self.now_s]
        for stay in sorted(over, key=lambda stay: (stay.end_s, stay.key)):
            self.stays.remove(stay)
            is_there = any(other.key == stay.key and other.start_s <= self.now_s for other in self.stays)
            if not is_there and stay.key not in self.lingering:
                self.lingering[stay.key] = stay.end_s
                self._give_up(min(LIMIT, KEEP))

    @invariant()
    def the_limit_holds_in_every_future_second(self) -> None:
        sizes = [self._bytes(at_s, []) for at_s in range(self.now_s, HORIZON_S)]
        assert max(sizes) == self.pool.peak([], self.now_s) <= LIMIT
        PEAKS.add(max(sizes))

    @invariant()
    def the_pool_is_what_the_model_says(self) -> None:
        assert set(self.pool.lingering) == set(self.lingering)
        assert self.pool.held_bytes(self.now_s) == self._held()
        there = {id(made) for lives in self.pool.lives.values() for made in lives}
        assert there == {id(stay.life) for stay in self.stays}
        assert all(stay.life.expires_s == stay.end_s for stay in self.stays)
        for key in IMAGES:
            lives = [stay for stay in self.stays if stay.key == key]
            assert (self.pools.nodes_with(key) == [0]) == bool(lives or key in self.lingering)
            coming = [stay.ready_s for stay in lives if stay.ready_s > self.now_s]
            found = self.pool.coming(key, self.now_s)
            assert (found.ready_s if found else None) == min(coming, default=None)
            uses = [stay.ready_s for stay in lives if stay.start_s > self.now_s]
            assert self.pool.next_use(key, self.now_s) == min(uses, default=None)


def test_one_pool_agrees_with_the_naive_model() -> None:
    PEAKS.clear()
    run_state_machine_as_test(
        PoolHistory,
        settings=settings(
            max_examples=examples(120), stateful_step_count=30, derandomize=True, deadline=None
        ),
    )

    # Each history has agreed at each step; some have filled the pool.
    assert {0, LIMIT} <= PEAKS


def test_an_image_is_usable_from_ready_until_it_expires_both_included() -> None:
    site = pools()
    site.add(0, life("a", 2, 5, 9, "u"))

    found = [at_s for at_s in range(12) if site.pools[0].life_at("a", at_s) is not None]

    assert found == [5, 6, 7, 8, 9]


def test_a_life_that_ends_when_another_begins_does_not_share_the_limit_with_it() -> None:
    site = pools(limit_bytes=6)
    site.add(0, life("c", 0, 1, 5, "u"))

    assert site.pools[0].has_room([(5, 9, 6)], 0)
    assert not site.pools[0].has_room([(4, 9, 6)], 0)


def test_a_pool_without_a_limit_always_has_room() -> None:
    assert pools(limit_bytes=None).pools[0].has_room([(0, 9, 10**15)], 0)


def test_what_is_needed_is_never_given_up() -> None:
    site = pools(keep_bytes=1)
    site.add(0, life("c", 0, 1, 50, "u"))
    site.add(0, life("a", 0, 1, 3, "v"))
    site.settle(4)

    assert site.make_room(0, 4, coming_bytes=100) == []
    assert list(site.pools[0].lives) == ["c"]
    assert site.nodes_with("a") == []


def test_the_policy_says_who_is_given_up_and_the_name_breaks_ties() -> None:
    site = pools(keep_bytes=100, limit_bytes=100)
    for key, end_s in (("b", 3), ("a", 3), ("c", 2)):
        site.add(0, life(key, 0, 1, end_s, key))
    site.settle(9)

    assert site.make_room(0, 9, coming_bytes=100) == ["c", "a", "b"]


def test_a_policy_is_told_the_uses_and_the_next_use() -> None:
    told: list[Lingering] = []

    def rank(entry: Lingering, now_s: int) -> tuple[int, ...]:
        told.append(entry)
        return (0,)

    nodes = [Node(name="n", capacity=Resources.of(cpus=1), pool_bytes=100)]
    site = Pools(nodes, keep_bytes=100, rank=rank)
    site.add(0, life("a", 0, 1, 3, "u"))
    site.settle(9)
    site.add(0, life("a", 20, 22, 30, "v"))
    site.make_room(0, 9, coming_bytes=100)

    assert [(entry.key, entry.last_use_s, entry.next_use_s) for entry in told] == [("a", 3, 22)]


def test_lingering_without_a_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="no policy"):
        Pools([Node(name="n", capacity=Resources.of(cpus=1))], keep_bytes=1)


def test_every_stay_is_told_once_with_its_true_ends() -> None:
    site = pools()
    site.add(0, life("a", 0, 2, 5, "u"))
    site.settle(9)
    revived = site.revive(0, "a", IMAGES["a"], 12, 15)
    assert revived is not None
    site.extend(0, revived, "v", 15)

    stays = [(stay.start_s, stay.end_s) for stay in site.close()]

    assert stays == [(0, 5), (5, 12), (12, 15)]
