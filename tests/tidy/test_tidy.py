"""The style as a test: sizes, sentences, assertions, and what must not be mentioned."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repository import ROOT

MOST_LINES_OF_A_FILE = 500
MOST_LINES_OF_A_FUNCTION = 70
FOLDERS = ("outrider", "outrider_client", "cachemgr", "plugins", "testbed", "tools", "tests", "bench")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
TESTS = [path for path in SOURCES if path.name.startswith("test_")]
TEXTS = sorted(
    [
        *SOURCES,
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("*.cfg"),
        *ROOT.glob("*.toml"),
        ROOT / "Makefile",
    ]
)
# Each with the reason why it must not stand anywhere.
FORBIDDEN = {
    r"(?<![\w.~/])/(?:home|root|work|Users)(?:/|\b)": "a path of somebody's own machine",
    r"(?<![\w&#;])#\d{1,4}\b": "the number of an issue: say what it is about",
    r"pip install[^#\n]*['\" ]outrider\b": "a name on a package index that the project does not own",
    r"\b(?:TODO|FIXME|XXX|HACK)\b": "a leftover: do it, or describe the limit",
}
# Calls that assert: of pytest, and of Hypothesis, whose state machines hold the assertions.
ASSERTING = {"raises", "fail", "run_state_machine_as_test"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def called(node: ast.Call) -> str:
    """The last part of what is called: `raises` of `pytest.raises`."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def asserts(function: Function, helpers: set[str]) -> bool:
    """Whether it can fail by what it finds: an assertion, an expected error, or a call of either."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Raise) and "AssertionError" in ast.dump(node):
            return True
        if isinstance(node, ast.Call) and (called(node) in ASSERTING or called(node) in helpers):
            return True
    return False


def asserting_helpers(tree: ast.AST) -> set[str]:
    """Functions of a file that assert themselves or through one another."""
    plain = {each.name: each for each in functions(tree) if not each.name.startswith("test_")}
    found: set[str] = set()
    while True:
        more = {name for name, each in plain.items() if name not in found and asserts(each, found)}
        if not more:
            return found
        found |= more


def length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_file_is_of_a_size_to_be_read(path: Path) -> None:
    text = path.read_text()
    long = [f"{each.name}: {length(each)}" for each in functions(ast.parse(text))
            if length(each) > MOST_LINES_OF_A_FUNCTION]  # fmt: skip

    assert len(text.splitlines()) <= MOST_LINES_OF_A_FILE
    assert long == []


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_module_says_in_a_sentence_what_belongs_there(path: Path) -> None:
    head = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].strip()

    assert len(head.split()) >= 3
    assert head[-1] in ".:?)"


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_every_test_asserts_something(path: Path) -> None:
    tree = ast.parse(path.read_text())
    helpers = asserting_helpers(tree)
    tests = [each for each in functions(tree) if each.name.startswith("test_")]

    assert tests or "TestCase" in path.read_text()
    assert [each.name for each in tests if not asserts(each, helpers)] == []


def test_core_prints_and_reads_nothing() -> None:
    wanted = {"print", "input", "open", "exec", "eval", "breakpoint"}
    found = [
        f"{name_of(path)}:{node.lineno} {node.func.id}"
        for path in SOURCES
        if path.is_relative_to(ROOT / "outrider" / "core")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in wanted
    ]

    assert found == []


@pytest.mark.parametrize("path", [path for path in TEXTS if path != Path(__file__).resolve()], ids=name_of)
def test_nothing_is_mentioned_that_readers_cannot_have(path: Path) -> None:
    found = [
        f"line {number}: {hit[0]!r} is {reason}"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for pattern, reason in FORBIDDEN.items()
        if (hit := re.search(pattern, line))
    ]

    assert found == []


def test_eviction_policies_import_with_the_standard_library_alone() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import cachemgr.pool.policies; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    finished = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=60
    )

    assert finished.stderr == ""
    assert set(finished.stdout.split()) == {"__main__", "cachemgr"} - set(sys.stdlib_module_names)
