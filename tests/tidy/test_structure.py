"""How the packages are built: `tools/structure.py` finds nothing that is not allowed."""

from __future__ import annotations

from pathlib import Path

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
