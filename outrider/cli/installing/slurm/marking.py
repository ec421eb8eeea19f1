"""Changes to a text file that can be taken out again to the byte, by marks in the file alone.

A line that has to say something else stays, as a comment; the new one stands below it. What is new
goes between two marks at the end. So an administrator sees both, and who has edited the file since
loses nothing. Pure: texts in, texts out. A text is split at line feeds only, and what is between is
kept as it is, so that no file is changed by being read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cli.errors import InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """What marks lines in one kind of file, whose comments begin with `comment`."""

    comment: str

    @property
    def was(self) -> str:
        return f"{self.comment}outrider-was:"

    @property
    def now(self) -> str:
        return f" {self.comment}outrider-now"

    @property
    def begin(self) -> str:
        return f"{self.comment} outrider: begin"

    @property
    def end(self) -> str:
        return f"{self.comment} outrider: end"

    @property
    def explanation(self) -> str:
        return f"{self.begin} (written by outrider init slurm, taken out by outrider init slurm --remove)"


SLURM = Marks(comment="#")
LUA = Marks(comment="--")


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacement:
    """The physical lines `[first, end)` are to say `text` instead."""

    first: int
    end: int
    text: str


def changed(
    text: str, marks: Marks, replacements: Sequence[Replacement] = (), added: Sequence[str] = (),
    before: int | None = None,
) -> str:  # fmt: skip
    """A text without marks, changed. `added` goes to the end, or before the physical line `before`.

    The number of lines has to be that of the text as it is given, which has no marks in it.
    """
    if not replacements and not added:
        return text
    physical = text.split("\n")
    place = _place(physical, before)
    new = {each.first: each for each in replacements}
    lines: list[str] = []
    done = 0
    for at in range(len(physical) + 1):
        if at == place and added:
            lines += [marks.explanation, *added, marks.end]
        if at < done or at == len(physical):
            continue
        if at in new:
            done = new[at].end
            lines += _replaced(physical[at:done], new[at].text, marks)
        else:
            lines.append(physical[at])
    return "\n".join(lines)


def restored(text: str, marks: Marks, name: str) -> str:
    """The text as it was before `changed`; `name` is the file's, for errors."""
    lines: list[str] = []
    begun: int | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if begun is not None:
            begun = None if line.rstrip("\r") == marks.end else begun
        elif line.startswith(marks.begin):
            begun = number
        elif line.startswith(marks.was):
            lines.append(line.removeprefix(marks.was))
        elif not line.rstrip("\r").endswith(marks.now):
            lines.append(line)
    if begun is not None:
        raise InputError(
            f"{name}:{begun}: Outrider's lines begin here and have no end: "
            f'put back "{marks.end}" below the last of them'
        )
    return "\n".join(lines)


def is_marked(text: str, marks: Marks) -> bool:
    """Whether there is anything of ours in a text."""
    return any(
        line.startswith((marks.begin, marks.was)) or line.rstrip("\r").endswith(marks.now)
        for line in text.split("\n")
    )


def _replaced(group: Sequence[str], text: str, marks: Marks) -> list[str]:
    ending = "\r" if group[-1].endswith("\r") else ""
    return [*(f"{marks.was}{each}" for each in group), f"{text.rstrip()}{marks.now}{ending}"]


def _place(physical: Sequence[str], before: int | None) -> int:
    """Before which physical line something is added: the end, but above what is not a whole line."""
    if before is not None:
        return before
    return len(physical) - 1 if physical[-1] == "" else len(physical)
