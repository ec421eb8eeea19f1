"""The style as a test: sizes, sentences, assertions, and what must not be mentioned."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What the rules ask of a file."""

    lines: int
    long_functions: tuple[str, ...]
    says_what_belongs_there: bool
    has_tests: bool
    tests_without_assertion: tuple[str, ...]


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


@cache
def found_in(path: Path) -> Found:
    """Read once for all rules: taking a file to pieces costs more than looking at the pieces."""
    text = path.read_text()
    tree = ast.parse(text)
    head = (ast.get_docstring(tree) or "").split("\n\n")[0].strip()
    found = tuple(functions(tree))
    tests = [each for each in found if each.name.startswith("test_")]
    helpers = asserting_helpers(tree) if tests else set()
    return Found(
        lines=len(text.splitlines()),
        long_functions=tuple(
            f"{each.name}: {length(each)}" for each in found if length(each) > MOST_LINES_OF_A_FUNCTION
        ),
        says_what_belongs_there=len(head.split()) >= 3 and head[-1] in ".:?)",
        has_tests=bool(tests) or "TestCase" in text,
        tests_without_assertion=tuple(each.name for each in tests if not asserts(each, helpers)),
    )


def test_files_are_of_a_size_to_be_read() -> None:
    assert {name_of(path): n for path in SOURCES if (n := found_in(path).lines) > MOST_LINES_OF_A_FILE} == {}
    assert {name_of(path): long for path in SOURCES if (long := found_in(path).long_functions)} == {}


def test_modules_say_in_a_sentence_what_belongs_there() -> None:
    assert [name_of(path) for path in SOURCES if not found_in(path).says_what_belongs_there] == []


def test_every_test_asserts_something() -> None:
    assert [name_of(path) for path in TESTS if not found_in(path).has_tests] == []
    assert {name_of(path): names for path in TESTS if (names := found_in(path).tests_without_assertion)} == {}


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


def test_nothing_is_mentioned_that_readers_cannot_have() -> None:
    found = [
        f"{name_of(path)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]!r} is {reason}"
        for path in TEXTS
        if path != Path(__file__).resolve()
        for text in [path.read_text()]
        for pattern, reason in FORBIDDEN.items()
        for hit in re.finditer(pattern, text)
    ]

    assert found == []


def test_eviction_policies_import_with_the_standard_library_alone() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import cachemgr.pool.policies; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    finished = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=240
    )

    assert finished.stderr == ""
    assert set(finished.stdout.split()) == {"__main__", "cachemgr"} - set(sys.stdlib_module_names)
