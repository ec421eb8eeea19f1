"""Follows a page to the letter: types the commands of its console blocks on hosts, and compares the screens.

A line `HOST$ command` is typed as root on that host, `USER$ command` as that user on the head; what
stands below it, up to the next prompt, has to be printed, where `…` stands for anything, and a line of
`…` alone for any number of lines. A command without a screen may print what it likes on stderr and has to
succeed. Blocks of shell without prompts (```sh) are typed line by line at the prompt that whoever follows
the page names for them. A site that differs from the page's says in which words and screens: `Table`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import CompletedProcess
from typing import Protocol

PROMPT = re.compile(r"([a-z][a-z0-9]*)\$ (.*)")
FENCE = re.compile(r"^```(console|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
HERE = re.compile(r"<<'?(\w+)'?")
ANYTHING = "…"
COMMAND_S = 240


class Typist(Protocol):
    """Types a line of shell at a prompt."""

    def __call__(self, prompt: str, line: str) -> CompletedProcess[str]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """In what a site differs from the page's."""

    words: Mapping[str, str] = field(default_factory=dict)
    """What stands here for words of the page's, in commands and screens: names of hosts, paths."""
    screens: Mapping[str, str] = field(default_factory=dict)
    """What commands of the page's print here; an empty text lets one print what it likes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One command of the page and what it has to print."""

    section: str
    block: int
    """Which of the page's blocks it is in, from 1 on."""
    prompt: str
    line: str
    screen: str

    def __str__(self) -> str:
        return f'block {self.block}, "{self.section}": {self.prompt}$ {self.line}'

    def at(self, table: Table) -> Step:
        """The same on a site that differs."""
        screen = table.screens.get(self.line, self.screen)
        line = self.line
        for word, other in table.words.items():
            line, screen = line.replace(word, other), screen.replace(word, other)
        return Step(section=self.section, block=self.block, prompt=self.prompt, line=line, screen=screen)


def steps(page: str, shell_at: str | None = None) -> Iterator[Step]:
    """The page's commands in their order; those without a prompt only where one is given for them."""
    parts = HEADING.split(page)
    block = 0
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        for kind, lines in FENCE.findall(text):
            block += 1
            if kind == "console":
                yield from _steps_of(title, block, lines.splitlines())
            elif shell_at is not None:
                for line in lines.splitlines():
                    yield Step(section=title, block=block, prompt=shell_at, line=line, screen="")


def _steps_of(section: str, block: int, lines: Sequence[str]) -> Iterator[Step]:
    at = 0
    while at < len(lines):
        prompt = PROMPT.fullmatch(lines[at])
        if prompt is None:
            raise ValueError(f"block {block}, {section}: no prompt before {lines[at]!r}")
        at += 1
        command = [prompt[2]]
        here = HERE.search(prompt[2])
        while here and command[-1] != here[1]:
            command.append(lines[at])
            at += 1
        screen = []
        while at < len(lines) and not PROMPT.fullmatch(lines[at]):
            screen.append(lines[at])
            at += 1
        yield Step(
            section=section,
            block=block,
            prompt=prompt[1],
            line="\n".join(command),
            screen="\n".join(screen),
        )


def follow(page: str, type_: Typist) -> int:
    """Type everything; how much that was. Raises AssertionError at the first difference."""
    return len([take(step, type_) for step in steps(page)])


def take(step: Step, type_: Typist) -> Step:
    """Type one command. Raises AssertionError if it fails or prints something else."""
    done = type_(step.prompt, step.line)
    said = f"{done.stdout}{done.stderr}"
    assert done.returncode == 0, f"{step} ended with {done.returncode}:\n{said}"
    if step.screen:
        # On a terminal both are one screen; which line is first between them nobody knows.
        screens = (done.stdout, f"{done.stderr}{done.stdout}")
        assert any(matches(each, step.screen) for each in screens), (
            f"{step} should print\n{step.screen}\nbut printed\n{said}"
        )
    return step


class Walk:
    """A page that is followed section by section, with other things done between them."""

    def __init__(self, page: str, type_: Typist, table: Table, shell_at: str) -> None:
        self._steps = list(steps(page, shell_at))
        self._type = type_
        self._table = table
        self._done: list[str] = []

    def go(self, *titles: str) -> None:
        """Follow these sections. Raises AssertionError at the first difference or if one is missing."""
        for title in titles:
            found = [each for each in self._steps if each.section == title]
            assert found, f"the page has no section {title!r} with commands"
            for step in found:
                take(step.at(self._table), self._type)
            self._done.append(title)

    def lines(self) -> list[str]:
        """All of the page's commands."""
        return [each.line for each in self._steps]

    def rest(self) -> list[str]:
        """The sections that have not been followed yet, or not in the page's order."""
        wanted = list(dict.fromkeys(each.section for each in self._steps))
        order = [title for title in wanted if title in self._done]
        return [title for title in wanted if title not in self._done] + (
            [] if order == list(dict.fromkeys(self._done)) else ["(another order)"]
        )


def matches(printed: str, screen: str) -> bool:
    """Whether a command has printed what the page shows."""
    pattern = ""
    for line in screen.splitlines():
        if line == ANYTHING:
            pattern += r"(?:.*\n)*"
        else:
            pattern += ".*".join(re.escape(part) for part in line.split(ANYTHING)) + r"\n"
    return re.fullmatch(pattern, printed if printed.endswith("\n") else f"{printed}\n") is not None
