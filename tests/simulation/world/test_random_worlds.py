"""Worlds with random sites and traces: what must hold of every outcome, recomputed from it alone.

Each claim is checked on hundreds of small cases: both kinds of links and of shipping, with
and without suspension, reuse, limits of pools and ticks of the queue.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from outrider.core.besteffort.suspension import BYTES_PER_MIB, Segment
from outrider.core.images.pools import Stay
from outrider.core.model import Workspace
from outrider.sim.faults import NodeFault
from outrider.sim.world import SimulationResult
from tests.amount import examples

SEEDS = range(examples(300))
# A case of conftest.py, which test modules cannot import.
Case = Any
CaseOf = Callable[..., Case]

_outcomes: dict[tuple[int, bool], tuple[Case, SimulationResult]] = {}


@pytest.fixture(params=[False, True], ids=["without-faults", "with-faults"])
def worlds(
    request: pytest.FixtureRequest, case_of: CaseOf
) -> Callable[[], Iterator[tuple[int, Case, SimulationResult]]]:
    return lambda: run_all(case_of, has_faults=request.param)


@pytest.fixture
def sound_worlds(case_of: CaseOf) -> Callable[[], Iterator[tuple[int, Case, SimulationResult]]]:
    return lambda: run_all(case_of, has_faults=False)


def run_all(case_of: CaseOf, *, has_faults: bool) -> Iterator[tuple[int, Case, SimulationResult]]:
    """Every case and its outcome; each is run once, however many tests look at it."""
    for seed in SEEDS:
        if (seed, has_faults) not in _outcomes:
            case = case_of(seed, has_faults=has_faults)
            _outcomes[seed, has_faults] = case, case.run()
        yield seed, *_outcomes[seed, has_faults]


Worlds = Callable[[], Iterator[tuple[int, Case, SimulationResult]]]


def expected_runs(workspace: Workspace) -> int:
    return 1 if workspace.is_parallel else workspace.instances


def test_everything_handed_in_is_answered_once_and_best_effort_is_done_once(worlds: Worlds) -> None:
    for seed, case, outcome in worlds():
        runs = Counter(done.workspace for done in outcome.done)
        impossible = {submission.workspace.name for submission in outcome.impossible}
        for submission in case.trace.submissions:
            name = submission.workspace.name
            if submission.workspace.is_best_effort:
                wanted = 0 if name in impossible else expected_runs(submission.workspace)
                assert runs[name] == wanted, f"seed {seed}: {name}"
        answers = Counter(
            [reservation.workspace.name for reservation in (*outcome.kept, *outcome.broken)]
            + [submission.workspace.name for submission, _ in outcome.refused]
        )
        reservations = [each for each in case.trace.submissions if not each.workspace.is_best_effort]
        assert answers == Counter(each.workspace.name for each in reservations), f"seed {seed}"


def test_what_is_late_was_kept_and_is_late_once(worlds: Worlds) -> None:
    for seed, _, outcome in worlds():
        late = Counter(reservation.workspace.name for reservation in outcome.late)
        kept = {reservation.workspace.name for reservation in outcome.kept}
        assert set(late) <= kept, f"seed {seed}"
        assert max(late.values(), default=1) == 1, f"seed {seed}"


def test_without_faults_no_reservation_is_late_or_broken_and_no_run_is_lost(sound_worlds: Worlds) -> None:
    for seed, _, outcome in sound_worlds():
        assert (outcome.late, outcome.broken, outcome.lost_runs) == ([], [], 0), f"seed {seed}"


def test_useful_seconds_equal_the_work(worlds: Worlds) -> None:
    for seed, case, outcome in worlds():
        run_s = {each.workspace.name: case.setup.stretched_s(each.run_s) for each in case.trace.submissions}
        for done in outcome.done:
            useful_s = sum(segment.useful_s for segment in done.segments)
            assert useful_s == run_s[done.workspace], f"seed {seed}: {done}"


def test_no_capacity_is_exceeded_at_any_instant(worlds: Worlds) -> None:
    for seed, case, outcome in worlds():
        for resource in ("cpus", "memory_mib"):
            changes: dict[int, Counter[int]] = {}
            for node, start_s, end_s, amount in taken(outcome, resource):
                row = changes.setdefault(node, Counter())
                row[start_s] += amount
                row[end_s] -= amount
            for node, row in changes.items():
                held = 0
                for at_s in sorted(row):
                    held += row[at_s]
                    assert held <= case.nodes[node].capacity[resource], f"seed {seed}, n{node} at {at_s}"


def taken(outcome: SimulationResult, resource: str) -> Iterator[tuple[int, int, int, int]]:
    """Who has how much of which node, from when to when."""
    numbers = {node.name: number for number, node in enumerate(outcome.nodes)}
    for reservation in outcome.kept:
        each = reservation.workspace.resources[resource]
        for placement in reservation.placements:
            amount = each * placement.instances
            yield numbers[placement.node], reservation.start_s, reservation.end_s, amount
    for done in outcome.done:
        each = outcome.workspaces[done.workspace].resources[resource]
        for segment in done.segments:
            for share in segment.shares:
                yield share.node, segment.start_s, segment.end_s, each * share.instances


def test_nothing_that_was_done_was_on_a_node_that_was_away(worlds: Worlds) -> None:
    for seed, case, outcome in worlds():
        away = [fault for fault in case.faults if isinstance(fault, NodeFault)]
        for node, start_s, end_s, _ in taken(outcome, "cpus"):
            for fault in away:
                if fault.node == f"n{node}":
                    assert end_s <= fault.at_s or start_s >= fault.until_s, f"seed {seed}: {fault}"


def test_reservations_begin_when_they_were_asked_to(worlds: Worlds) -> None:
    for seed, case, outcome in worlds():
        submissions = {each.workspace.name: each for each in case.trace.submissions}
        for reservation in outcome.kept:
            asked = submissions[reservation.workspace.name]
            assert reservation.start_s == asked.workspace.start_s, f"seed {seed}"
            assert reservation.end_s - reservation.start_s == case.setup.stretched_s(asked.run_s)


def overhead_s(case: Case, workspace: Workspace) -> int:
    rate = case.setup.suspension.disk_bytes_per_s
    if rate is None:
        return 0
    return int(-(-workspace.resources["memory_mib"] * BYTES_PER_MIB // rate))


def test_what_is_suspended_is_written_whole_and_what_is_resumed_is_read_whole(worlds: Worlds) -> None:
    for seed, case, outcome in worlds():
        for done in outcome.done:
            length_s = overhead_s(case, outcome.workspaces[done.workspace])
            for before, after in pairwise(done.segments):
                where = f"seed {seed}: {before} {after}"
                assert before.end_s <= after.start_s, where
                assert before.suspend_s >= longest_s(case, before, length_s), where
                assert after.resume_s >= longest_s(case, after, length_s), where


def longest_s(case: Case, segment: Segment, length_s: int) -> int:
    """On the node that takes longest, each at its own speed."""
    rules = case.setup.suspension
    return max(
        -(-100 * length_s // (rules.node_percents[share.node] if rules.node_percents else 100))
        * (share.instances if rules.is_serialised else 1)
        for share in segment.shares
    )


def test_a_nodes_disk_writes_or_reads_one_thing_at_a_time(worlds: Worlds) -> None:
    for seed, _, outcome in worlds():
        lanes: dict[int, list[tuple[int, int]]] = {}
        for done in outcome.done:
            for segment in done.segments:
                for node, start_s, length_s in segment.disk:
                    assert segment.start_s <= start_s, f"seed {seed}: {segment}"
                    assert start_s + length_s <= segment.end_s, f"seed {seed}: {segment}"
                    lanes.setdefault(node, []).append((start_s, start_s + length_s))
        for node, lane in lanes.items():
            for (_, end_s), (start_s, _) in pairwise(sorted(lane)):
                assert end_s <= start_s, f"seed {seed}: n{node} at {start_s}"


def test_no_run_starts_before_its_image_has_arrived(worlds: Worlds) -> None:
    for seed, case, outcome in worlds():
        arrivals: dict[tuple[str, str], list[int]] = {}
        for event in case.setup.events:
            if not event.has_begun:
                for node in event.transfer.nodes:
                    arrivals.setdefault((node, event.transfer.image.key), []).append(event.at_s)
        for done in outcome.done:
            image = outcome.workspaces[done.workspace].image
            if image is None:
                continue
            for share in done.segments[0].shares:
                came = [
                    at_s for at_s in arrivals.get((f"n{share.node}", image.key), []) if at_s <= done.start_s
                ]
                where = f"seed {seed}: {done}"
                assert came, where
                if case.setup.is_reusing:
                    held = held_intervals(outcome.stays, share.node, image.key)
                    assert any(
                        start_s <= at_s and done.start_s <= end_s for start_s, end_s in held for at_s in came
                    ), where


def held_intervals(stays: Sequence[Stay], node: int, key: str) -> list[tuple[int, int]]:
    """When the image was on the node's disk without a break."""
    held: list[tuple[int, int]] = []
    for stay in sorted(
        (stay for stay in stays if stay.node == node and stay.key == key), key=lambda stay: stay.start_s
    ):
        if held and stay.start_s <= held[-1][1]:
            held[-1] = (held[-1][0], max(held[-1][1], stay.end_s))
        else:
            held.append((stay.start_s, stay.end_s))
    return held


def test_transfers_are_counted_as_they_begin(worlds: Worlds) -> None:
    for seed, case, outcome in worlds():
        begun = [event for event in case.setup.events if event.has_begun]
        ended = [event for event in case.setup.events if not event.has_begun]
        assert outcome.transfers == len(begun) == len(ended), f"seed {seed}"
        assert outcome.moved_bytes == sum(event.transfer.image.size_bytes for event in begun)
        assert len({event.transfer.number for event in begun}) == len(begun)


@pytest.mark.parametrize("is_lingering", [False, True])
def test_pools_stay_within_their_limits(sound_worlds: Worlds, is_lingering: bool) -> None:
    for seed, case, outcome in sound_worlds():
        limit = case.setup.pool_bytes
        if limit is None or is_lingering != bool(case.setup.keep_bytes):
            continue
        for node in range(len(case.nodes)):
            changes: Counter[int] = Counter()
            keys = {stay.key for stay in outcome.stays if stay.node == node and not stay.is_private}
            sizes = {stay.key: stay.size_bytes for stay in outcome.stays}
            for key in keys:
                shared = [stay for stay in outcome.stays if not stay.is_private]
                for start_s, end_s in held_intervals(shared, node, key):
                    changes[start_s] += sizes[key]
                    changes[end_s] -= sizes[key]
            held = 0
            for at_s in sorted(changes):
                held += changes[at_s]
                assert held <= limit, f"seed {seed}, n{node} at {at_s}"


HASH_PROGRAM = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("cases", sys.argv[1])
cases = module_from_spec(spec)
sys.modules["cases"] = cases
spec.loader.exec_module(cases)
from hashlib import sha256
digest = sha256()
for seed in range(25):
    outcome = cases.random_case(seed, has_faults=True).run()
    digest.update(repr(outcome).encode())
print(digest.hexdigest())
"""


@cache
def digest_with(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", HASH_PROGRAM, os.path.join(os.path.dirname(__file__), "conftest.py")],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip()


def test_an_outcome_depends_on_nothing_but_its_inputs() -> None:
    digest = digest_with("1")

    assert len(digest) == 64
    assert digest_with("2") == digest
