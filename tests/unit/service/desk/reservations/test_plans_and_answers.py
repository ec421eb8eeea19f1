"""What would be answered is what is answered, whatever has happened before; and asking changes nothing."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.restart.snapshot import KeptBook, keep
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.requests import Cancel, Modify
from outrider.service.settings import Settings
from tests.amount import examples
from tests.unit.service.desk.sandbox import ALICE, BOB, GIB, RATE, Sandbox, wanted

POLICIES = b"""
version: 1
machine_share: 90%
rules:
  - {name: alice, users: [alice], reservations: 4}
  - {name: all, ahead: 3h, node_hours: 12}
"""


def book_of(sandbox: Sandbox) -> KeptBook:
    parts = sandbox.desk._parts
    assert parts is not None
    return keep(parts.site.book, sandbox.now_s)


def nameless(answer: object) -> object:
    """Without what only a reservation has, and an offer that is held."""
    if not isinstance(answer, Decision):
        return answer
    told = tuple(replace(each, name="") for each in answer.offers)
    return replace(answer, name="", offers=told, offers_until_s=None, are_offers_protected=False)


def reserve_twice(sandbox: Sandbox, random: Random) -> None:
    """Plan, and then reserve: alike in all but the name, which a plan does not have."""
    request = wanted(
        sandbox,
        name=random.choice(("render", "train")),
        image=random.choice(("ubuntu", "debian", "rocky")),
        size_bytes=random.choice((1, 60, 400)) * RATE,
        nodes=random.randint(1, 5),
        cpus=random.choice((1, 8, 9)),
        start=f"now+{random.choice((5, 60, 600, 3000, 9000))}",
        duration=random.choice(("10m", "1h")),
    )
    caller = random.choice((ALICE, BOB))
    before = book_of(sandbox)
    plan = sandbox.ask(replace(request, is_plan=True), caller)
    assert book_of(sandbox) == before
    real = sandbox.ask(request, caller)
    assert nameless(real) == plan


def modify_twice(sandbox: Sandbox, random: Random) -> None:
    parts = sandbox.desk._parts
    assert parts is not None
    names = sorted(parts.site.live)
    if not names:
        return
    name = random.choice(names)
    owner = ALICE if parts.site.live[name].record.owner.uid == ALICE.uid else BOB
    request = Modify(
        name=name,
        start_s=random.choice((None, sandbox.now_s + random.randint(5, 5000))),
        duration_s=random.choice((None, 600, 7200)),
        nodes=random.choice((None, 1, 3)),
    )
    before = book_of(sandbox)
    plan = sandbox.ask(replace(request, is_plan=True), owner)
    assert book_of(sandbox) == before
    real = sandbox.ask(request, owner)
    assert real == plan
    if isinstance(real, Trouble):
        assert book_of(sandbox) == before


def happen(sandbox: Sandbox, random: Random) -> None:
    """Something that changes what can be promised."""
    parts = sandbox.desk._parts
    assert parts is not None
    what = random.randrange(6)
    if what == 0 and parts.site.live:
        sandbox.ask(Cancel(name=random.choice(sorted(parts.site.live))), random.choice((ALICE, BOB)))
    elif what == 1:
        sandbox.rms.outside.fail(f"n{random.randint(1, 4)}")
    elif what == 2:
        sandbox.rms.outside.repair(f"n{random.randint(1, 4)}")
    elif what == 3:
        sandbox.pools[f"n{random.randint(1, 4)}"].images.clear()
    elif what == 4:
        sandbox.restart()
    sandbox.sleep(random.choice((1, 40, 400, 2000)))


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 32))
def test_a_plan_is_what_is_answered_then(seed: int) -> None:
    random = Random(seed)
    asked = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        rules = Settings(link_rate_bytes_per_s=RATE, reserve_s=random.choice((None, 0, 60)))
        sandbox = Sandbox(Path(folder), settings=rules, policies=POLICIES)
        for pool in sandbox.pools.values():
            pool.limit_bytes = random.choice((GIB // 2, 20 * GIB, 60 * GIB))
        sandbox.sleep(10)
        for _ in range(12):
            step = random.choice((reserve_twice, reserve_twice, modify_twice, happen))
            step(sandbox, random)
            asked += step is not happen
        sandbox.close()
    # Each of these has compared what was planned with what was answered.
    assert asked


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(seed=st.integers(0, 1 << 32))
def test_a_start_that_is_named_is_accepted_at_once(seed: int) -> None:
    random = Random(seed)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        sandbox = Sandbox(Path(folder), settings=Settings(link_rate_bytes_per_s=RATE, reserve_s=60))
        named = 0
        for number in range(10):
            nodes, size_bytes = random.randint(1, 4), random.choice((10, 300, 900)) * RATE
            request = {"nodes": nodes, "size_bytes": size_bytes, "image": f"image{number % 3}"}
            first = sandbox.ask(wanted(sandbox, start="now+100", **request))  # type: ignore[arg-type]
            assert isinstance(first, Decision)
            if first.earliest_start_s is not None:
                named += 1
                start = f"now+{first.earliest_start_s - sandbox.now_s}"
                again = sandbox.ask(wanted(sandbox, start=start, **request))  # type: ignore[arg-type]
                assert isinstance(again, Decision)
                assert (again.result, again.start_s) == ("accepted", first.earliest_start_s)
            sandbox.sleep(random.choice((0, 50, 500)))
        sandbox.close()
        assert named
