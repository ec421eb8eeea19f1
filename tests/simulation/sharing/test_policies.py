"""Eviction policies: who leaves first, who never does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from cachemgr.pool import policies
from cachemgr.pool.policies import HALF_LIFE_S, MAX_VICTIMS, POLICIES, PolicyEntry, expired, victims
from tests.amount import examples

SOURCE = Path(policies.__file__)
NOW_S = 1_000_000


def entry(key: str, **facts: int | bool | None) -> PolicyEntry:
    values = {"size_bytes": 10, "added_s": 0, "uses": 1, "last_use_s": NOW_S - 100, **facts}
    return PolicyEntry(key=key, **values)  # type: ignore[arg-type]


def leaving_order(policy: str, *entries: PolicyEntry) -> list[str]:
    everything = sum(each.size_bytes for each in entries)
    gone = victims(entries, everything, POLICIES[policy], NOW_S)
    assert gone is not None
    return [each.key for each in gone]


def test_lfu_evicts_the_least_used_and_among_equals_the_longest_idle() -> None:
    often = entry("often", uses=9)
    idle = entry("idle", uses=2, last_use_s=NOW_S - 500)
    fresh = entry("fresh", uses=2, last_use_s=NOW_S - 400)

    assert leaving_order("lfu", often, fresh, idle) == ["idle", "fresh", "often"]


def test_lfu_forgets_old_fame() -> None:
    faded = entry("faded", uses=100, last_use_s=NOW_S - 6 * HALF_LIFE_S)
    recent = entry("recent", uses=2)

    assert leaving_order("lfu", recent, faded) == ["faded", "recent"]


def test_lfu_does_not_age_within_a_half_life() -> None:
    used_before = entry("before", uses=3, last_use_s=NOW_S - HALF_LIFE_S + 1)
    used_now = entry("now", uses=2, last_use_s=NOW_S)

    assert leaving_order("lfu", used_before, used_now) == ["now", "before"]


def test_lru_evicts_the_longest_idle_however_often_used() -> None:
    old = entry("old", uses=99, last_use_s=1)
    new = entry("new", uses=1, last_use_s=2)

    assert leaving_order("lru", new, old) == ["old", "new"]


def test_timeout_evicts_by_expiry_and_what_never_expires_last() -> None:
    late = entry("late", expires_s=NOW_S + 50)
    soon = entry("soon", expires_s=NOW_S - 50)
    never = entry("never", last_use_s=0)

    assert leaving_order("timeout", never, late, soon) == ["soon", "late", "never"]


def test_largest_first_frees_the_room_with_one_image() -> None:
    large = entry("large", size_bytes=50, uses=99)
    entries = [entry("a"), entry("b"), large]

    assert victims(entries, 20, POLICIES["largest_first"], NOW_S) == [large]


def test_calendar_keeps_longest_what_is_needed_soonest() -> None:
    tomorrow = entry("tomorrow", next_use_s=NOW_S + 86_400)
    today = entry("today", next_use_s=NOW_S + 60)
    rare = entry("rare", uses=1)
    popular = entry("popular", uses=50)

    order = leaving_order("calendar", today, popular, tomorrow, rare)

    assert order == ["rare", "popular", "tomorrow", "today"]


@pytest.mark.parametrize("policy", POLICIES)
def test_equals_leave_in_the_order_of_their_keys(policy: str) -> None:
    assert leaving_order(policy, entry("b"), entry("c"), entry("a")) == ["a", "b", "c"]


@pytest.mark.parametrize("policy", POLICIES)
def test_pinned_images_stay_and_the_rest_is_just_enough(policy: str) -> None:
    for seed in range(examples(200)):
        random = Random(seed)
        entries = [
            entry(
                f"{number}",
                size_bytes=random.randint(1, 100),
                uses=random.randint(0, 5),
                last_use_s=random.randint(0, NOW_S),
                expires_s=random.choice([None, random.randint(0, 2 * NOW_S)]),
                next_use_s=random.choice([None, random.randint(NOW_S, 2 * NOW_S)]),
                is_pinned=random.random() < 0.3,
            )
            for number in range(random.randint(0, 12))
        ]
        need_bytes = random.randint(0, 500)
        evictable = sum(each.size_bytes for each in entries if not each.is_pinned)

        gone = victims(entries, need_bytes, POLICIES[policy], NOW_S)

        if evictable < need_bytes:
            assert gone is None
            continue
        assert gone is not None
        freed = sum(each.size_bytes for each in gone)
        assert not any(each.is_pinned for each in gone)
        assert freed >= need_bytes
        assert all(freed - each.size_bytes < need_bytes for each in gone)
        shuffled = random.sample(entries, len(entries))
        assert victims(shuffled, need_bytes, POLICIES[policy], NOW_S) == gone


def test_no_room_needed_evicts_nothing() -> None:
    assert victims([entry("a")], 0, POLICIES["lru"], NOW_S) == []


def test_one_call_is_bounded_and_the_next_one_goes_on() -> None:
    entries = [entry(f"{number:04}", size_bytes=1) for number in range(MAX_VICTIMS + 3)]

    first = victims(entries, MAX_VICTIMS + 2, POLICIES["lfu"], NOW_S)
    assert first is not None
    rest = [each for each in entries if each not in first]
    second = victims(rest, 2, POLICIES["lfu"], NOW_S)

    assert len(first) == MAX_VICTIMS
    assert second is not None
    assert [each.key for each in second] == ["0256", "0257"]


def test_expired_names_what_is_past_its_time_and_unpinned() -> None:
    due = entry("due", expires_s=NOW_S)
    earlier = entry("earlier", expires_s=NOW_S - 1)
    later = entry("later", expires_s=NOW_S + 1)
    pinned = entry("pinned", expires_s=1, is_pinned=True)

    assert expired([due, later, pinned, entry("never"), earlier], NOW_S) == [earlier, due]


def test_use_counts_once_and_changes_nothing_else() -> None:
    before = entry("a", uses=3, expires_s=7, next_use_s=8, is_pinned=True)

    after = before.used(NOW_S)

    assert (before.uses, after.uses, after.last_use_s) == (3, 4, NOW_S)
    unchanged = ["key", "size_bytes", "added_s", "expires_s", "next_use_s", "is_pinned"]
    assert all(getattr(after, name) == getattr(before, name) for name in unchanged)


def test_entry_of_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="image a has -1 bytes"):
        entry("a", size_bytes=-1)


def test_bare_interpreter_imports_nothing_but_cachemgr() -> None:
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(SOURCE.parents[2])!r})\n"
        "import __future__\n"
        "before = set(sys.modules)\n"
        "import cachemgr.pool.policies\n"
        "print(sorted(set(sys.modules) - before))\n"
    )

    command = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)

    assert ast.literal_eval(done.stdout) == ["cachemgr", "cachemgr.pool", "cachemgr.pool.policies"]


def test_source_is_python_3_9() -> None:
    assert ast.parse(SOURCE.read_text(), feature_version=(3, 9)).body
