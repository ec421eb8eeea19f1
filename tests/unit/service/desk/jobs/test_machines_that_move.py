"""Machines that are to go on at another node: who may ask, what is refused, and in which order it is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.rms.base import JobState, Landing, Refused, RmsJob, Unavailable
from outrider.rms.twin import Twin
from outrider.rms.twin.jobs import TwinJob
from outrider.service.answers.jobs import JobDetails
from outrider.service.answers.reply import Trouble
from outrider.service.desk.batch.job_effects import SUSPEND, is_move, moved_by
from outrider.service.desk.jobs.interruption.machine_moves import LINK_SHARE
from outrider.service.ports import Call, Carry
from outrider.service.requests import MigrateJob
from tests.unit.service.desk.jobs.yielding_site import (
    MACHINE,
    MEMORY_MIB,
    SETTINGS,
    happened,
    running,
    site_of,
    state,
)
from tests.unit.service.desk.sandbox import BOB, Sandbox, digest_of

NODES = ("n1", "n2")
DIGEST = digest_of("ubuntu")


class Moves:
    """The world beside the site: what was to be moved, and how that ends."""

    def __init__(self, site: Sandbox, results: list[Exception | None]) -> None:
        self.asked: list[dict[str, object]] = []
        self._others, self._results = site._carry_out, results

    def __call__(self, call: Call) -> object:
        if not isinstance(call, Carry) or not is_move(call.effect):
            return self._others(call)
        self.asked.append(moved_by(call.effect))
        return self._results[min(len(self.asked), len(self._results)) - 1]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """Two nodes between which machines can move."""
    seen = TwinJob.seen

    def seen_with_others(job: TwinJob) -> RmsJob:
        found = seen(job)
        return replace(found, elsewhere=tuple(each for each in NODES if each not in found.nodes))

    monkeypatch.setattr(TwinJob, "seen", seen_with_others)
    yield from site_of(tmp_path, SETTINGS)


@pytest.mark.parametrize("last", [None, Refused("another version of QEMU")])
def test_machine_is_suspended_brought_over_and_goes_on(
    site: Sandbox, monkeypatch: pytest.MonkeyPatch, last: Exception | None
) -> None:
    moves = Moves(site, [Unavailable("it is on its way")] * 3 + [last])
    monkeypatch.setattr(site, "_carry_out", moves)
    key = running(site, MACHINE, memory_mib=MEMORY_MIB)
    before = site.job(key)
    assert before is not None

    answer = site.ask(MigrateJob(job=key))
    again = site.ask(MigrateJob(job=key))
    site.sleep(120)

    assert isinstance(answer, JobDetails)
    assert not any(each["goes_first"] for each in moves.asked), "a user's own move gains no place"
    told = answer.moves
    other = next(each for each in NODES if each not in before.nodes)
    assert f"from {before.nodes[0]} to {other}" in told
    assert "pause of at most about" in told
    assert isinstance(again, Trouble)
    assert len(moves.asked) == 4
    assert [each["targets"] for each in moves.asked] == [[other]] * 4
    assert state(site, key) is JobState.RUNNING
    assert len(happened(site, key, "running")) == 2


@pytest.mark.parametrize(("more", "has_restarted"), [("", False), (f"digest: {DIGEST}\n", True)])
def test_machine_goes_alive_with_the_bytes_that_it_began_with_also_by_a_later_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, *, has_restarted: bool
) -> None:
    seen, asked = TwinJob.seen, list[Landing]()
    monkeypatch.setattr(TwinJob, "seen", lambda job: replace(seen(job), elsewhere=NODES))

    def land(twin: Twin, wanted: Landing) -> bool:
        asked.append(wanted)
        return False

    monkeypatch.setattr(Twin, "land", land)
    for site in site_of(tmp_path, replace(SETTINGS, moves_live=True)):
        key = running(site, MACHINE + more, memory_mib=MEMORY_MIB)
        if has_restarted:
            site.restart()
            site.sleep(30)
        monkeypatch.setattr(site, "_carry_out", Moves(site, [None]))
        (here,) = site.job(key).nodes  # type: ignore[union-attr]
        site.ask(MigrateJob(job=key, node=next(each for each in NODES if each != here)))

        assert f"digest: {DIGEST}" in asked[0].metadata.splitlines()


def test_machine_that_has_begun_to_run_before_it_was_suspended_for_its_move_stays_and_may_be_moved_again(
    site: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = Moves(site, [None])
    key = running(site, MACHINE, memory_mib=MEMORY_MIB)

    def refuses_to_suspend(call: Call) -> object:
        is_suspension = isinstance(call, Carry) and call.effect.kind == SUSPEND
        return Refused("it runs since another time") if is_suspension else moves(call)

    monkeypatch.setattr(site, "_carry_out", refuses_to_suspend)
    first = site.ask(MigrateJob(job=key))
    site.sleep(30)
    again = site.ask(MigrateJob(job=key))

    assert isinstance(first, JobDetails)
    assert moves.asked == []
    assert isinstance(again, JobDetails), again
    assert state(site, key) is JobState.RUNNING


def test_machines_of_several_nodes_move_each_to_another_in_the_batch_systems_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, order = TwinJob.seen, ("n5", "n2", "n4", "n1", "n3")

    def seen_with_others(job: TwinJob) -> RmsJob:
        found = seen(job)
        return replace(found, elsewhere=tuple(each for each in order if each not in found.nodes))

    monkeypatch.setattr(TwinJob, "seen", seen_with_others)
    for site in site_of(tmp_path, SETTINGS, nodes=5):
        moves = Moves(site, [None])
        monkeypatch.setattr(site, "_carry_out", moves)
        key = running(site, MACHINE, memory_mib=MEMORY_MIB, nodes=2)
        before = site.job(key)
        assert before is not None
        others = [each for each in order if each not in before.nodes]
        refused = site.ask(MigrateJob(job=key, node=before.nodes[1]))
        answer = site.ask(MigrateJob(job=key, node=others[2]))
        site.sleep(120)

        assert isinstance(refused, Trouble)
        assert isinstance(answer, JobDetails), answer
        (asked,) = moves.asked
        assert asked["sources"] == list(before.nodes)
        targets = asked["targets"]
        assert isinstance(targets, list)
        assert others[2] in targets
        assert targets == [each for each in others if each in targets]
        assert len(targets) == 2
        rate = SETTINGS.link_rate_bytes_per_s // LINK_SHARE // 2
        assert asked["rate_bytes_per_s"] == rate


def test_what_cannot_move_is_refused(site: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    moves = Moves(site, [None])
    monkeypatch.setattr(site, "_carry_out", moves)
    key, plain = running(site, MACHINE, memory_mib=MEMORY_MIB), running(site, "")
    job = site.job(key)
    assert job is not None

    answers = [
        site.ask(MigrateJob(job=key), BOB),
        site.ask(MigrateJob(job=plain)),
        site.ask(MigrateJob(job=key, node=job.nodes[0])),
        site.ask(MigrateJob(job=key, node="n7")),
    ]
    site.sleep(60)

    words = ["somebody else's", "in no virtual machine", "is on", "cannot run on n7"]
    for answer, expected in zip(answers, words, strict=True):
        assert isinstance(answer, Trouble)
        assert expected in answer.message
    assert not moves.asked
    assert state(site, key) is JobState.RUNNING


def test_where_machines_cannot_move_that_is_said(tmp_path: Path) -> None:
    for made in site_of(tmp_path, SETTINGS):
        key = running(made, MACHINE, memory_mib=MEMORY_MIB)
        answer = made.ask(MigrateJob(job=key))

        assert isinstance(answer, Trouble)
        assert "can run on no other node" in answer.message
        assert state(made, key) is JobState.RUNNING


def test_machine_that_ran_before_the_service_can_be_moved(
    site: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = Moves(site, [None])
    monkeypatch.setattr(site, "_carry_out", moves)
    key = running(site, MACHINE, memory_mib=MEMORY_MIB)

    site.restart()
    site.sleep(30)

    assert isinstance(site.ask(MigrateJob(job=key)), JobDetails)
