"""How the packages are built: `tools/structure.py` finds nothing that is not allowed."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("images/pools.py", "from outrider.core.reservations.book import Book"),
        ("nodes/capacity.py", "from outrider.core.nodes.timeline import FOREVER"),
        ("reservations/book.py", "from outrider.core.reservations.admission import assess"),
        ("besteffort/board.py", "import outrider.core.besteffort.queue"),
        ("untold.py", '"""A module that the contract does not name."""'),
    ],
)
def test_import_against_the_order_of_the_core_is_found(tmp_path: Path, module: str, line: str) -> None:
    _copy_core(tmp_path)
    told = _lint_imports(tmp_path)
    path = tmp_path / "outrider" / "core" / module
    path.write_text((path.read_text() if path.exists() else "") + f"\n{line}\n")

    broken = _lint_imports(tmp_path)

    assert told.returncode == 0, told.stdout
    assert broken.returncode == 1, broken.stdout
    assert "BROKEN" in broken.stdout or "untold" in broken.stdout


def _copy_core(folder: Path) -> None:
    """The core alone, and the contracts about its inside."""
    (folder / "outrider").mkdir()
    (folder / "outrider" / "__init__.py").touch()
    shutil.copytree(
        ROOT / "outrider" / "core",
        folder / "outrider" / "core",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    contracts = configparser.ConfigParser(interpolation=None)
    contracts.read(ROOT / "setup.cfg")
    for section in contracts.sections():
        if not section.startswith("importlinter:contract:core"):
            contracts.remove_section(section)
    contracts["importlinter"] = {"root_packages": "\noutrider"}
    with (folder / "setup.cfg").open("w") as file:
        contracts.write(file)


def _lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "lint-imports"
    command = [str(program), "--config", "setup.cfg", "--no-cache"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": "."}
    )
