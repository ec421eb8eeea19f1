"""What can be wrong with a text or a file that somebody wrote, and where."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""The way from the top of a document to a value: keys and positions in lists."""

MOST_SHOWN = 60
"""How many characters of a foreign text an error repeats."""


class MetadataError(Exception):
    """One sentence: what is wrong, with what, and what to write instead."""


class TextError(MetadataError, ValueError):
    """A time, a size or a set of nodes that cannot be understood."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPosition:
    """Where something was written: a line and a column from 1 on, or an option of the command line."""

    line: int = 0
    column: int = 0
    option: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileProblem:
    """One fault of a file. `path` is the key that it is about, empty for the file as a whole."""

    file: str
    place: TextPosition
    path: Path
    message: str

    def __str__(self) -> str:
        if self.place.option:
            return f"{self.place.option}: {self.message}"
        about = f"{key_path(self.path)}: " if self.path else ""
        return f"{self.file}:{self.place.line}:{self.place.column}: {about}{self.message}"


class FaultyFileError(MetadataError):
    """A file with faults, all of them, in the order of their places."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        assert problems
        self.problems = tuple(sorted(problems, key=_order))
        super().__init__("\n".join(map(str, self.problems)))


def _order(problem: FileProblem) -> tuple[int, int, str, str]:
    return problem.place.line, problem.place.column, problem.place.option, problem.message


def shown(text: str) -> str:
    """A foreign text for a message: quoted, on one line, without control characters, not too long."""
    cut = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
    return json.dumps(cut, ensure_ascii=not cut.isprintable())


def key_path(path: Path) -> str:
    """A path as people write it: metadata.roles[0].hosts."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step}]"
        else:
            plain = step.isascii() and step.isprintable() and 0 < len(step) <= MOST_SHOWN
            written += ("." if written else "") + (step if plain else shown(step))
    return written
