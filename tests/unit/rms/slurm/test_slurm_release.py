"""What is written of a job that is let go."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from cachemgr.base.clock import SystemClock
from outrider.rms.saved import SavedMachine
from outrider.rms.slurm.asking import Standing
from outrider.rms.slurm.jobs import job_in
from outrider.rms.slurm.records import JobRecord
from outrider.rms.slurm.system import SlurmSystem


def test_job_whose_node_died_while_it_was_saved_is_not_to_be_resumed_once_it_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = SavedMachine(node="n3", limit_s=3600, run_s=100, asked_s=150)
    record = JobRecord(is_suspended=True, is_held=True, is_stopped=True, metadata="image: a", saved=saved)
    read = job_in(
        {"job_id": 7, "job_state": "PENDING", "user_id": 5, "user_name": "a", "submit_time": 1}, 100
    )
    assert read is not None
    known = replace(read, record=record, is_held_by_us=True)
    written: list[JobRecord] = []
    system = object.__new__(SlurmSystem)
    monkeypatch.setattr(system, "_clock", SystemClock(), raising=False)
    seen = SimpleNamespace(job=lambda key: read, keep=lambda job: None)
    monkeypatch.setattr(system, "_seen", seen, raising=False)
    monkeypatch.setattr(system, "_write", lambda found, known, record, *parts: written.append(record))
    # Slurm has taken it back by itself, and does not hold it.
    found = Standing(
        key="7",
        address="7",
        slurm_state="PENDING",
        is_stopped=False,
        uid=5,
        nodes=(),
        reason="",
        reservation="",
    )

    system._release(found, known, None, "")

    assert [(each.is_suspended, each.is_held, each.saved) for each in written] == [(False, False, saved)]
