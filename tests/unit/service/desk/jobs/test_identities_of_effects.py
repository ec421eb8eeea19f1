"""What is wanted of a job twice in one second: the same is wanted once, and what differs is no conflict."""

from __future__ import annotations

from dataclasses import replace

from outrider.service.desk.batch.job_effects import (
    YieldFields,
    migrate_effect,
    requeue_effect,
    resume_effect,
    save_effect,
    suspend_effect,
)
from outrider.store.sqlite.store import SqliteStore
from tests.unit.service.desk.sandbox import Sandbox

NOW_S = 1_000_000
FIELDS = YieldFields(job="4", run_s=900, reservation="head", start_s=1_100, reason="it yields to head")


def test_what_differs_is_an_effect_of_its_own() -> None:
    other = replace(FIELDS, reason="it yields to worker")
    pairs = [
        (requeue_effect(FIELDS, NOW_S), requeue_effect(other, NOW_S)),
        (save_effect(FIELDS, NOW_S), save_effect(other, NOW_S)),
        (suspend_effect("4", 900, "by alice", NOW_S), suspend_effect("4", 900, "by root", NOW_S)),
        (migrate_effect("4", {"to": "n1"}, NOW_S), migrate_effect("4", {"to": "n2"}, NOW_S)),
    ]

    assert [one.identity == two.identity for one, two in pairs] == [False] * 4
    assert requeue_effect(FIELDS, NOW_S) == requeue_effect(replace(other, reason=FIELDS.reason), NOW_S)
    assert resume_effect("4", NOW_S) == resume_effect("4", NOW_S)


def test_store_takes_what_is_wanted_otherwise_in_the_same_second(sandbox: Sandbox) -> None:
    store: SqliteStore = sandbox.store
    effects = [requeue_effect(each, NOW_S) for each in (FIELDS, replace(FIELDS, reason="another"), FIELDS)]
    for effect in effects:
        with store.promise() as promise:
            promise.todo(effect)

    assert [each.payload for each in store.waiting_effects("yield 4")] == [
        effects[0].payload,
        effects[1].payload,
    ]
