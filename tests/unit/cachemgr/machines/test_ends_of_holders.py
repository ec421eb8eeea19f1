"""What a holder job leaves for its job when the machine that it had is over."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from cachemgr.machines.batch.image import JobImages
from cachemgr.machines.batch.steps import holding
from cachemgr.machines.batch.steps.marks import SavedMark
from cachemgr.machines.batch.system import BatchJob
from cachemgr.machines.keeper import real_site
from cachemgr.machines.machine import Machine


@pytest.mark.parametrize(
    ("known", "left"), [({"17", "18"}, ["17.ended"]), ({"18"}, []), (None, ["17.ended"])]
)
def test_only_a_job_that_starts_once_more_is_told_how_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: set[str] | None, left: list[str]
) -> None:
    """One that was cancelled does not; what cannot be found out is taken for one that does."""
    monkeypatch.setattr(holding, "run", lambda *given, **options: 3)
    mark = SavedMark(str(tmp_path), "17")
    mark.write_holder("n1:/m", "18")
    machine = Machine(str(tmp_path / "job-17"), real_site("n1", "/usr/bin/qemu"))
    own = SimpleNamespace(key="18", is_gone=lambda key: known is not None and key not in known)
    given = SimpleNamespace(caught=None, is_over=lambda status: None)

    assert holding._keep(machine, None, own, mark, None, given) == 3  # type: ignore[arg-type]
    assert os.listdir(tmp_path / ".outrider" / "machines") == left


@pytest.mark.parametrize(("until_s", "is_stopped"), [(None, False), (99.0, True), (101.0, False)])
def test_machine_ends_before_the_batch_system_kills_its_holder_job(
    until_s: float | None, is_stopped: bool
) -> None:
    stopped = object()
    clock = SimpleNamespace(monotonic_s=lambda: 100.0)
    machine = SimpleNamespace(site=SimpleNamespace(clock=clock), stop=lambda grace_s: stopped)
    job = SimpleNamespace(is_gone=lambda: False)
    held = holding.HeldMachine(SavedMark("", "17"), job, until_s)  # type: ignore[arg-type]

    assert held.look(machine) is (stopped if is_stopped else None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "status", "is_gone"),
    [
        ("Following jobs do not exist:\n17", 1, True),
        ("job_number: 17", 0, False),
        ("error: commlib error: got select error", 1, False),
    ],
)
def test_grid_engine_has_to_say_itself_that_a_job_is_gone(said: str, status: int, is_gone: bool) -> None:
    own = BatchJob("18", 1, 0, asking=("sh", "-c", f"echo '{said}'; exit {status}"))

    assert own.is_gone("17") is is_gone


def test_holder_job_that_is_started_once_more_holds_nothing(tmp_path: Path) -> None:
    """Grid Engine sends one back to the queue that has saved its machine, and one whose node was lost."""
    machine = Machine(str(tmp_path / "job-17"), real_site("n1", "/usr/bin/qemu"))
    own = BatchJob("18", 1, attempt=1, naming=("false",))

    assert holding.hold(machine, own, SavedMark(str(tmp_path), "17"), JobImages(None, ()), "1000") == 0  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []
