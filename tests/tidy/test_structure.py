"""How the packages are built: `tools/structure.py` finds nothing that is not allowed."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT
from tools.structure import circles, crowded, imports, modules, names_of_several

MOST_SHARED_NAMES = 20


def test_no_folder_has_more_entries_than_somebody_takes_in_at_a_glance() -> None:
    assert crowded(ROOT) == {}


def test_crowded_folder_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "outrider" / "full"
    folder.mkdir(parents=True)
    for number in range(16):
        (folder / f"m{number}.py").touch()

    assert crowded(tmp_path, packages=("outrider",)) == {"outrider/full": 16}


def test_no_modules_import_one_another() -> None:
    assert circles(imports(modules(ROOT))) == []


def test_modules_that_import_one_another_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set[str]()}

    assert [sorted(each) for each in circles(graph)] == [["a", "b", "c"]]


def test_few_classes_have_the_name_of_another() -> None:
    assert len(names_of_several(modules(ROOT))) <= MOST_SHARED_NAMES


CORE = ("outrider/core", "importlinter:contract:core")
DESK = ("outrider/service/desk", "importlinter:contract:desk-rooms")


@pytest.mark.parametrize(
    ("package", "module", "line"),
    [
        (CORE, "images/pools.py", "from outrider.core.reservations.book import Book"),
        (CORE, "nodes/capacity.py", "from outrider.core.nodes.timeline import FOREVER"),
        (CORE, "reservations/book.py", "from outrider.core.reservations.admission import assess"),
        (CORE, "besteffort/board.py", "import outrider.core.besteffort.queue"),
        (CORE, "untold.py", '"""A module that the contract does not name."""'),
        (DESK, "nodes/orders.py", "from outrider.service.desk.jobs.manager import JobManager"),
        (DESK, "state/site.py", "from outrider.service.desk.nodes.orders import NodeOrders"),
        (DESK, "reservations/repair.py", "import outrider.service.desk.jobs.ordering.queues"),
        (DESK, "jobs/release.py", "from outrider.service.desk.components import DeskComponents"),
        (DESK, "untold.py", '"""A module that the contract does not name."""'),
    ],
)
def test_import_against_the_order_of_rooms_is_found(
    tmp_path: Path, package: tuple[str, str], module: str, line: str
) -> None:
    folder, contracts = package
    _copy(folder, contracts, tmp_path)
    told = _lint_imports(tmp_path)
    path = tmp_path / folder / module
    path.write_text((path.read_text() if path.exists() else "") + f"\n{line}\n")

    broken = _lint_imports(tmp_path)

    assert told.returncode == 0, told.stdout
    assert broken.returncode == 1, broken.stdout
    assert "BROKEN" in broken.stdout or "untold" in broken.stdout


def _copy(package: str, contract: str, folder: Path) -> None:
    """A package alone, and the contracts about its inside."""
    shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for above in Path(package).parents[:-1]:
        (folder / above / "__init__.py").touch()
    contracts = configparser.ConfigParser(interpolation=None)
    contracts.read(ROOT / "setup.cfg")
    for section in contracts.sections():
        if not section.startswith(contract):
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
