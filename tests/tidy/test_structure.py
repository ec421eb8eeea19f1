"""How the packages are built: `tools/structure.py` finds nothing that is not allowed."""

from __future__ import annotations

from pathlib import Path

from tests.repository import ROOT
from tools.structure import crowded


def test_no_folder_has_more_entries_than_somebody_takes_in_at_a_glance() -> None:
    assert crowded(ROOT) == {}


def test_crowded_folder_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "outrider" / "full"
    folder.mkdir(parents=True)
    for number in range(16):
        (folder / f"m{number}.py").touch()

    assert crowded(tmp_path, packages=("outrider",)) == {"outrider/full": 16}
