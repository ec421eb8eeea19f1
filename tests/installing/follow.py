"""Follows a page to the letter: types the commands of its console blocks on hosts, and compares the screens.

A line `HOST$ command` is typed as root on that host, `USER$ command` as that user on the head; what
stands below it, up to the next prompt, has to be printed, where `…` stands for anything, and a line of
`…` alone for any number of lines. A command without a screen may print what it likes on stderr and has to
succeed. Run it on a cluster of your own: python -m tests.installing.follow docs/install-slurm.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from subprocess import CompletedProcess
from typing import Protocol

PROMPT = re.compile(r"([a-z][a-z0-9]*)\$ (.*)")
FENCE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
HERE = re.compile(r"<<'?(\w+)'?")
ANYTHING = "…"
COMMAND_S = 240


class Typist(Protocol):
    """Types a line of shell at a prompt."""

    def __call__(self, prompt: str, line: str) -> CompletedProcess[str]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One command of the page and what it has to print."""

    section: str
    prompt: str
    line: str
    screen: str


def steps(page: str) -> Iterator[Step]:
    """The page's commands in their order."""
    parts = HEADING.split(page)
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        for block in FENCE.findall(text):
            yield from _steps_of(title, block.splitlines())


def _steps_of(section: str, lines: Sequence[str]) -> Iterator[Step]:
    at = 0
    while at < len(lines):
        prompt = PROMPT.fullmatch(lines[at])
        if prompt is None:
            raise ValueError(f"{section}: no prompt before {lines[at]!r}")
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
        yield Step(section=section, prompt=prompt[1], line="\n".join(command), screen="\n".join(screen))


def follow(page: str, type_: Typist) -> int:
    """Type everything; how much that was. Raises AssertionError at the first difference."""
    count = 0
    for step in steps(page):
        done = type_(step.prompt, step.line)
        said = f"{done.stdout}{done.stderr}"
        where = f'"{step.section}": {step.prompt}$ {step.line}'
        assert done.returncode == 0, f"{where} ended with {done.returncode}:\n{said}"
        if step.screen:
            # On a terminal both are one screen; which line is first between them nobody knows.
            screens = (done.stdout, f"{done.stderr}{done.stdout}")
            assert any(matches(each, step.screen) for each in screens), (
                f"{where} should print\n{step.screen}\nbut printed\n{said}"
            )
        count += 1
    return count


def matches(printed: str, screen: str) -> bool:
    """Whether a command has printed what the page shows."""
    pattern = ""
    for line in screen.splitlines():
        if line == ANYTHING:
            pattern += r"(?:.*\n)*"
        else:
            pattern += ".*".join(re.escape(part) for part in line.split(ANYTHING)) + r"\n"
    return re.fullmatch(pattern, printed if printed.endswith("\n") else f"{printed}\n") is not None
