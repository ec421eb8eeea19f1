"""Writes `outrider_client/answers.py`: the service's answers as values for Python 3.9, as they are defined.

The client is installed without the service, so it has its own copy, which nobody edits:
python -m tools.client_answers
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ANSWERS = ROOT / "outrider/service/answers"
SUBJECTS = ("events", "images", "transfers", "records", "reservations", "leases", "site", "decision", "jobs")
SOURCES = (
    *(ANSWERS / f"{name}.py" for name in SUBJECTS),
    ROOT / "outrider/service/web/routes/submissions.py",
)
TARGET = ROOT / "outrider_client/answers.py"
WANTED = ("Decision", "ReservationDetails", "ReservationList", "JobDetails", "JobList", "Status", "Submitted")
_OR_NONE = re.compile(r": ([A-Za-z_.\[\], ]{1,60}?) \| None\b")
HEAD = '''"""What the service answers: frozen values, as they travel. Written by `tools.client_answers`.

Times are seconds since 1970 and sizes are bytes; nodes are sets in brackets, n[1-4,7].
What whoever asks may not see is None.
"""

# No annotations as texts: Python 3.9 has to read them as they stand.
from dataclasses import dataclass, field
from typing import Literal, Optional

'''


def written() -> str:
    """The module's text, before it is formatted."""
    sources = [path.read_text() for path in SOURCES]
    trees = [ast.parse(source) for source in sources]
    known = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    texts = {
        node.name: _class(source, node)
        for source, tree in zip(sources, trees, strict=True)
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    aliases = {
        node.targets[0].id: node
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    wanted = _closure(WANTED, known)
    names = {each.id for name in wanted for each in ast.walk(known[name]) if isinstance(each, ast.Name)}
    parts = [ast.unparse(node) for name, node in aliases.items() if name in names]
    parts += [texts[name] for name in known if name in wanted]
    return HEAD + "\n\n\n".join(parts) + "\n"


def formatted(text: str) -> str:
    """As ruff lays it out."""
    ruff = str(Path(sys.executable).parent / "ruff")
    argv = [ruff, "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def _closure(first: tuple[str, ...], known: dict[str, ast.ClassDef]) -> set[str]:
    found: set[str] = set()
    left = list(first)
    while left:
        name = left.pop()
        if name in known and name not in found:
            found.add(name)
            left += [each.id for each in ast.walk(known[name]) if isinstance(each, ast.Name)]
    return found


def _class(source: str, node: ast.ClassDef) -> str:
    """As it was written, but as Python 3.9 takes it."""
    text = ast.get_source_segment(source, node) or ""
    return "@dataclass(frozen=True)\n" + _OR_NONE.sub(r": Optional[\1]", text)


if __name__ == "__main__":
    TARGET.write_text(formatted(written()))
