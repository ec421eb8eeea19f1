"""How the packages are built: circles of imports, crowded folders, classes that share a name.

`python tools/structure.py` prints them for the checkout that it is in.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("outrider", "cachemgr", "testbed", "bench", "tools")
PRODUCT = ("outrider", "cachemgr")
MOST_ENTRIES = 15


def modules(root: Path, packages: tuple[str, ...] = PACKAGES) -> dict[str, Path]:
    """Each module's dotted name, and its file."""
    found = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """What each module imports of these, in functions and for types, too."""
    return {name: _imports_of(name, path, known) for name, path in known.items()}


def _imports_of(name: str, path: Path, known: Mapping[str, Path]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                found.add(inner if inner in known else node.module)
    return {each for each in found if each in known and each != name}


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that import one another, directly or by others (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        path.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in path:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = path.index(name)
            group = sorted(path[at:])
            del path[at:]
            if len(group) > 1:
                found.append(group)

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def crowded(root: Path, packages: tuple[str, ...] = PRODUCT) -> dict[str, int]:
    """Folders with more entries than somebody takes in at a glance."""
    found = {}
    for package in packages:
        for folder in [root / package, *(root / package).rglob("*")]:
            if folder.is_dir() and folder.name != "__pycache__":
                entries = [each for each in folder.iterdir() if each.name != "__pycache__"]
                if len(entries) > MOST_ENTRIES:
                    found[str(folder.relative_to(root))] = len(entries)
    return dict(sorted(found.items()))


def names_of_several(known: Mapping[str, Path]) -> dict[str, list[str]]:
    """Public classes of the same name in different modules."""
    where = defaultdict(list)
    for name, path in known.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(name)
    return {name: places for name, places in sorted(where.items()) if len(places) > 1}


def main() -> int:
    sys.setrecursionlimit(10_000)
    known = modules(ROOT)
    for group in circles(imports(known)):
        print(f"circle of {len(group)}: {', '.join(group)}")
    for folder, count in crowded(ROOT).items():
        print(f"{count} entries: {folder}")
    several = names_of_several(known)
    for name, places in several.items():
        print(f"{len(places)} classes {name}: {', '.join(places)}")
    print(f"{len(several)} names of classes stand for several")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
