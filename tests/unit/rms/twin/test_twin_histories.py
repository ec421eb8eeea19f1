"""What never happens in a twin, over random histories with random rules and faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest

from outrider.rms.base import STEPS, JobState, NodeState, Sight
from outrider.rms.twin import Happening
from tests.contract.sights import inconsistencies, on_nodes
from tests.repository import ROOT
from tests.unit.rms.twin.histories import NODES, History

SEEDS = range(30)


@pytest.fixture(scope="module")
def histories() -> list[History]:
    return [History(seed).run() for seed in SEEDS]


def test_every_look_is_consistent(histories: list[History]) -> None:
    """No node over its capacity, no two reservations on a node, no job off its reservation's nodes."""
    found = [
        (history.seed, sight.at_s, fault)
        for history in histories
        for sight in history.sights
        for fault in inconsistencies(sight)
    ]

    assert found == []


def test_job_in_a_reservation_is_on_its_nodes_only_between_start_and_end(histories: list[History]) -> None:
    def misplaced(history: History, sight: Sight) -> Iterator[str]:
        reservations = {each.name: each for each in sight.reservations}
        for job, _ in on_nodes(sight):
            own = reservations.get(job.reservation or "")
            if own is not None and not own.start_s <= sight.at_s < own.end_s + history.end_lag_s():
                yield f"seed {history.seed}: job {job.key} at {sight.at_s} in {own}"

    found = [text for history in histories for sight in history.sights for text in misplaced(history, sight)]

    assert found == []


def test_strangers_on_reserved_nodes_were_there_before(histories: list[History]) -> None:
    """Before the reservation was made, or in time to be off again, but for the lag of the rules."""

    def strangers(history: History, sight: Sight) -> Iterator[str]:
        for reservation in sight.reservations:
            made_s = last_change_s(history, reservation.name, sight.at_s)
            begun_s = reservation.start_s + history.end_lag_s()
            for job, node in on_nodes(sight):
                if node not in reservation.nodes or job.reservation == reservation.name:
                    continue
                if not begun_s <= sight.at_s < reservation.end_s:
                    continue
                if job.start_s is None or job.start_s > made_s:
                    yield f"seed {history.seed}: job {job.key} at {sight.at_s} on {node} in {reservation}"

    found = [text for history in histories for sight in history.sights for text in strangers(history, sight)]

    assert found == []


def last_change_s(history: History, name: str, until_s: int) -> int:
    """When a reservation was last made or changed, as the log tells."""
    return max(
        each.at_s
        for each in history.twin.log
        if (each.what, each.subject) == ("reserved", name) and each.at_s <= until_s
    )


def test_states_follow_the_steps(histories: list[History]) -> None:
    states = {state.value: state for state in JobState}
    found = []
    for history in histories:
        for key in {each.subject for each in history.twin.log if each.what == "submitted"}:
            path = [states[each.what] for each in of_job(history, key) if each.what in states]
            for before, after in pairwise([JobState.PENDING, *path]):
                if after not in STEPS[before] and not before is after is JobState.HELD:
                    found.append((history.seed, key, before, after))

    assert found == []


def of_job(history: History, key: str) -> Iterator[Happening]:
    return (each for each in history.twin.log if each.subject == key and not each.what.startswith("node"))


def test_states_seen_are_those_of_the_log(histories: list[History]) -> None:
    """The log is no second truth: the last state that it tells is the one that the last look shows."""
    states = {state.value for state in JobState}
    for history in histories:
        last = {each.subject: each.what for each in history.twin.log if each.what in (*states, "submitted")}
        shown = {job.key: job.state.value for job in history.sights[-1].jobs}
        told = {key: what for key, what in last.items() if what != "ended"}

        assert shown == {key: what.replace("submitted", "pending") for key, what in told.items()}


@pytest.mark.parametrize("seed", range(10))
def test_everything_ends_when_nothing_stands_in_the_way(seed: int) -> None:
    history = History(seed).run()
    for name in NODES:
        history.twin.outside.repair(name)
    for _ in range(40):
        clear_the_way(history)
        history.clock.sleep(400)

    assert history.look().jobs == ()


def clear_the_way(history: History) -> None:
    """Reservations that no job runs in are deleted, jobs released; those that would not end are cancelled."""
    outside, sight = history.twin.outside, history.look()
    in_use = {job.reservation for job, _ in on_nodes(sight)}
    for reservation in sight.reservations:
        if reservation.name not in in_use:
            outside.delete_reservation(reservation.name)
    for job in history.look().jobs:
        if job.limit_s is None or job.state is JobState.SUSPENDED:
            outside.cancel(job.key)
        elif job.state is JobState.HELD:
            outside.release(job.key)


def test_histories_meet_what_they_are_to_meet(histories: list[History]) -> None:
    """Else the other tests of this file would hold of nothing."""
    whats = [each.what for history in histories for each in history.twin.log]
    whys = [each.why for history in histories for each in history.twin.log if each.what == "ended"]
    in_reservations = sum(
        job.reservation is not None
        for history in histories
        for sight in history.sights
        for job, _ in on_nodes(sight)
    )

    assert {state.value for state in JobState} < {*whats}
    assert {f"node {state.value}" for state in NodeState} < {*whats}
    assert whats.count("running") > 10 * len(SEEDS)
    assert sum(why.endswith("has ended") for why in whys) > len(SEEDS) / 3
    assert in_reservations > 10 * len(SEEDS)


def test_same_history_is_told_alike_under_two_hash_seeds() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-m", "tests.unit.rms.twin.histories"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]

    assert len(told[0]) > 100_000
    assert told[0] == told[1]
