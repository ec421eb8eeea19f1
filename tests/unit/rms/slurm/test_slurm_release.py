"""What is written of a job that is let go, or whose saved machine has come to another node."""

from __future__ import annotations

from dataclasses import replace
from threading import RLock
from types import SimpleNamespace

import pytest

from cachemgr.base.clock import SystemClock
from outrider.rms.base import Unavailable
from outrider.rms.saved import SavedMachine
from outrider.rms.slurm.asking import Standing
from outrider.rms.slurm.jobs import SlurmJob, job_in
from outrider.rms.slurm.placing import Places
from outrider.rms.slurm.records import JobRecord
from outrider.rms.slurm.system import SlurmSystem

SAVED = SavedMachine(node="n3", limit_s=3600, run_s=100, asked_s=150)


def waiting() -> Standing:
    """As Slurm has it now: it is not held by anybody."""
    return Standing(
        key="7", address="7", slurm_state="PENDING", priority=5, uid=5, nodes=(), reason="",
        reservation="",
    )  # fmt: skip


def job_with(record: JobRecord, *, is_held_by_us: bool = True) -> SlurmJob:
    read = job_in(
        {"job_id": 7, "job_state": "PENDING", "user_id": 5, "user_name": "a", "submit_time": 1}, 100
    )
    assert read is not None
    return replace(read, record=record, is_held_by_us=is_held_by_us)


@pytest.fixture
def written() -> list[JobRecord]:
    return []


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, written: list[JobRecord]) -> SlurmSystem:
    """One that writes nothing but here."""
    made = object.__new__(SlurmSystem)
    monkeypatch.setattr(made, "_clock", SystemClock(), raising=False)
    monkeypatch.setattr(made, "_guard", RLock(), raising=False)
    monkeypatch.setattr(made, "_standing", lambda job: waiting())
    monkeypatch.setattr(made, "_write", lambda found, known, record, *parts: written.append(record))
    return made


def sees(system: SlurmSystem, job: SlurmJob, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = SimpleNamespace(job=lambda key: job, keep=lambda job: None, places=Places(()))
    monkeypatch.setattr(system, "_seen", seen, raising=False)


def test_job_whose_node_died_while_it_was_saved_is_not_to_be_resumed_once_it_is_let_go(
    system: SlurmSystem, written: list[JobRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = JobRecord(is_suspended=True, is_held=True, is_stopped=True, metadata="image: a", saved=SAVED)
    known = job_with(record)
    sees(system, known, monkeypatch)

    # Slurm has taken it back by itself, and does not hold it.
    system._release(waiting(), known, None, "")

    assert [(each.is_suspended, each.is_held, each.saved) for each in written] == [(False, False, SAVED)]


def test_machine_whose_job_was_let_go_on_while_it_came_to_another_node_is_there(
    system: SlurmSystem, written: list[JobRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits, held, until the service leads it to where its machine is."""
    sees(system, job_with(JobRecord(is_held=True, is_stopped=True, saved=SAVED)), monkeypatch)

    system.move("7", ("n1",))

    assert [each.saved.node for each in written if each.saved is not None] == ["n1"]


def test_machine_of_a_job_that_is_about_to_start_is_not_moved(
    system: SlurmSystem, written: list[JobRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    sees(system, job_with(JobRecord(saved=SAVED), is_held_by_us=False), monkeypatch)

    with pytest.raises(Unavailable, match="not suspended yet"):
        system.move("7", ("n1",))
    assert written == []
