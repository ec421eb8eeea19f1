"""Every regular expression of the product: where it stands, what it is called, and how it is used."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from tests.repository import ROOT

FOLDERS = (
    "outrider",
    "outrider_client",
    "cachemgr",
    "plugins",
    "prolog",
    "epilog",
    "testbed",
    "tools",
    "packaging",
)
METHODS = ("fullmatch", "match", "search", "split", "sub", "subn", "findall", "finditer")
_LUA_CALL = re.compile(
    r""":(?:find|match|gmatch|gsub)\(\s*"""
    r"""((?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^"',)])+)(, *[^,)]+, *true\))?"""
)


_MAY_CALL = re.compile(rf"\bre\.(?:{'|'.join((*METHODS, 'compile'))})\(")


@dataclass(frozen=True, slots=True)
class Written:
    """A pattern: `label` is its name, or what stands in the call if it has none."""

    file: str
    line: int
    label: str
    call: ast.Call
    name: str = ""


def python_files() -> Iterator[Path]:
    """Those with Python in them, whatever they are called."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if not path.is_file() or "__pycache__" in path.parts:
                continue
            if path.suffix == ".py" or (not path.suffix and b"ython" in path.read_bytes()[:400]):
                yield path


@cache
def tree_of(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_text())
    except SyntaxError:
        return None


@cache
def written() -> tuple[Written, ...]:
    """All calls of `re` in the product."""
    return tuple(each for path in python_files() for each in _of_file(path))


def _of_file(path: Path) -> Iterator[Written]:
    # Most files have none, and each worker of the tests asks for this before it begins.
    tree = tree_of(path) if _MAY_CALL.search(path.read_text()) else None
    if tree is None:
        return
    named: dict[ast.Call, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            for node in ast.walk(statement.value):
                if _is_pattern(node):
                    named[node] = statement.targets[0].id
    for node in ast.walk(tree):
        if _is_pattern(node):
            first = node.args[0]
            text = first.value if isinstance(first, ast.Constant) else ast.unparse(first)
            text = text.decode() if isinstance(text, bytes) else str(text)
            name = named.get(node, "")
            yield Written(str(path.relative_to(ROOT)), node.lineno, name or text, node, name)


def _is_pattern(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in (*METHODS, "compile")
    )


def lua_patterns() -> Iterator[tuple[str, str]]:
    """File and pattern of each search in Lua that is not for a plain text."""
    for path in sorted((ROOT / "plugins").rglob("*.lua")):
        for found in _LUA_CALL.finditer(path.read_text()):
            if not found[2]:
                yield str(path.relative_to(ROOT)), found[1].strip()


@cache
def module_of(file: str) -> ModuleType:
    path = ROOT / file
    if file.startswith("plugins/pyxis/"):
        sys.path.append(str(ROOT / "plugins" / "pyxis"))
        return importlib.import_module("outrider_pyxis." + path.stem)
    if file.startswith("plugins/"):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made
    return importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def compiled(each: Written) -> re.Pattern[str] | re.Pattern[bytes]:
    """The pattern itself; NameError if it is made of what a function was given."""
    call = each.call
    flags = {keyword.arg: keyword.value for keyword in call.keywords}.get("flags")
    if (
        flags is None
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "compile"
        and len(call.args) > 1
    ):
        flags = call.args[1]
    space = {**vars(builtins), **vars(module_of(each.file)), "re": re}
    pattern = eval(ast.unparse(call.args[0]), space)
    return re.compile(pattern, eval(ast.unparse(flags), space) if flags else 0)


@cache
def _uses() -> dict[str, set[str]]:
    """The methods that are called of anything with a name, wherever it was imported, by name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in python_files():
        for node in ast.walk(tree_of(path) or ast.Module([], [])):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                of = node.value.value if isinstance(node.value, ast.Subscript) else node.value
                if isinstance(of, (ast.Name, ast.Attribute)):
                    found[of.id if isinstance(of, ast.Name) else of.attr].add(node.attr)
    return found


def methods(each: Written) -> frozenset[str]:
    assert isinstance(each.call.func, ast.Attribute)
    if each.call.func.attr == "compile" and each.name:
        return frozenset(_uses().get(each.name, ()))
    return frozenset({each.call.func.attr})
