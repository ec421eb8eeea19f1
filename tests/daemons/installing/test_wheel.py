"""What the wheel contains is what the installers read: nothing comes from a checkout."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from outrider.cli.installing.gridengine.files import GUARD
from outrider.cli.installing.gridengine.files import SHIPPED as GRIDENGINE
from outrider.cli.installing.slurm.files import SHIPPED as SLURM
from tests.repository import ROOT

BESIDE_PACKAGES = sorted({*SLURM.values(), *GRIDENGINE.values(), GUARD})
READ = (
    "import sys; from outrider.cli.installing.common.shipped import *;"
    " sys.stdout.buffer.write({}(*sys.argv[1:]))"
)
HOOKS_AND_FILTERS = ("prolog", "epilog", "plugins/slurm", "plugins/gridengine")


def read(installed: Path, function: str, *words: str) -> bytes:
    """What the installers get in the environment."""
    argv = [str(installed / "bin/python"), "-I", "-c", READ.format(function), *words]
    return subprocess.run(argv, capture_output=True, check=True, timeout=240, cwd="/").stdout


def files_of_packages() -> list[tuple[str, str]]:
    """Package and name of each file inside of a package that the program asks for by its name."""
    found = set()
    texts = [path.read_text() for path in (ROOT / "outrider").rglob("*.py")]
    for text in (text for text in texts if "package_file(" in text):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "package_file":
                package, name = (ast.literal_eval(each) for each in node.args)
                found.add((package, name))
    return sorted(found)


@pytest.mark.parametrize("name", BESIDE_PACKAGES)
def test_file_that_an_installer_reads_is_in_the_wheel(installed: Path, name: str) -> None:
    assert read(installed, "shipped", name) == (ROOT / name).read_bytes()


@pytest.mark.parametrize(("package", "name"), files_of_packages())
def test_file_of_a_package_is_in_the_wheel(installed: Path, package: str, name: str) -> None:
    expected = (ROOT / package.replace(".", "/") / name).read_bytes()

    assert read(installed, "package_file", package, name) == expected


def test_every_hook_and_filter_of_the_sources_is_in_the_wheel(installed: Path) -> None:
    """Those that are named in documents alone, too, such as the plugin for srun."""
    paths = [path for folder in HOOKS_AND_FILTERS for path in (ROOT / folder).iterdir() if path.is_file()]
    wanted = {str(path.relative_to(ROOT)) for path in paths if path.suffix != ".so"}

    there = {name for name in wanted if (installed / "share/outrider" / name).is_file()}

    assert there == wanted


def test_environment_runs_what_was_installed_and_not_the_sources(installed: Path) -> None:
    words = "import outrider, cachemgr, yaml; print(outrider.__file__, cachemgr.__file__)"

    argv = [str(installed / "bin/python"), "-I", "-c", words]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=240, cwd=ROOT).stdout

    assert [path.startswith(f"{installed}/") for path in printed.split()] == [True, True]
