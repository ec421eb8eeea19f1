"""The recipe for Spack against what setup.cfg says: read with directives that only take notes."""

from __future__ import annotations

import configparser
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.repository import ROOT

RECIPE = ROOT / "packaging/spack/spack_repo/outrider/packages/outrider/package.py"
EXTRAS = ("service", "deploy", "sim")


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]]:
    """What the recipe has said, by directive."""
    found: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {}
    package = ModuleType("spack.package")
    for name in ("depends_on", "license", "variant", "version"):
        found[name] = []
        setattr(package, name, lambda *words, _to=found[name], **more: _to.append((words, more)))
    base = ModuleType("spack_repo.builtin.build_systems.python")
    base.PythonPackage = type("PythonPackage", (), {})  # type: ignore[attr-defined]
    for module in (package, base):
        parts = module.__name__.split(".")
        for depth in range(1, len(parts)):
            name = ".".join(parts[:depth])
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(RECIPE.read_text(), str(RECIPE), "exec"), {"__name__": "package"})
    return found


def test_recipe_needs_what_the_extras_need(noted: dict[str, Any]) -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    wanted = {
        (extra, f"py-{name.strip()}@{least.strip()}:")
        for extra in EXTRAS
        for line in settings["options.extras_require"][extra].split("\n")
        if line
        for name, _, least in [line.partition(">=")]
    }
    least = settings["options"]["python_requires"].removeprefix(">=")

    told = {(more["when"].lstrip("+"), words[0]) for words, more in noted["depends_on"] if "when" in more}
    assert told == wanted
    assert {words[0] for words, _ in noted["variant"]} == set(EXTRAS)
    assert (f"python@{least}:",) in [words for words, _ in noted["depends_on"]]
    assert noted["version"] == [(("main",), {})]
