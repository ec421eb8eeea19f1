"""What a holder job leaves for its job when the machine that it had is over."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from cachemgr.machines.batch.steps import holding
from cachemgr.machines.batch.steps.marks import SavedMark
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
    own = SimpleNamespace(key="18", others=lambda: known)
    given = SimpleNamespace(caught=None, is_over=lambda status: None)

    assert holding._keep(machine, None, own, mark, given) == 3  # type: ignore[arg-type]
    assert os.listdir(tmp_path / ".outrider" / "machines") == left
