"""Every command of the installation pages: it parses, and its program has the options that it is given."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from outrider.cli.errors import InputError
from outrider.cli.main import parser
from tests.daemons.installing.follow import Step, steps
from tests.daemons.walks.pages import GRIDENGINE, SLURM

PAGES = {"slurm": SLURM, "gridengine": GRIDENGINE}
FOUND = [(name, step) for name, page in PAGES.items() for step in steps(page, shell_at="head")]
# Of programs that are not ours, which tells of their options.
HELPS = {
    "sbatch": ["sbatch", "--help"],
    # They tell nothing on a machine that belongs to no Grid Engine; what they would say is in them.
    "qsub": ["strings", "/usr/lib/gridengine/qsub"],
    "qconf": ["strings", "/usr/lib/gridengine/qconf"],
    "systemctl": ["systemctl", "--help"],
    "scontrol": ["scontrol", "--help"],
    "pip": ["pip", "install", "--help"],
    "ln": ["ln", "--help"],
    "rm": ["rm", "--help"],
    "tar": ["tar", "--help"],
    "cat": ["cat", "--help"],
    "truncate": ["truncate", "--help"],
    "sha256sum": ["sha256sum", "--help"],
}
# The shell's own, and those whose help names no options in the form in which they are given.
OTHERS = {"for", "do", "done", "cd", "printf", "scp", "python3"}
ENDS = set(";|&<>()")


def programs(line: str) -> Iterator[list[str]]:
    """The commands of a line of shell, without what is redirected and what a here-document holds."""
    text = re.sub(r"<<'?(\w+)'?\n.*\n\1$", "", line, flags=re.DOTALL)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[str] = []
    is_file = False
    for word in lexer:
        if word and set(word) <= ENDS:
            is_file = word in ("<", ">", ">>")
            if not is_file:
                if found:
                    yield found
                found = []
        elif not is_file:
            found.append(word)
        else:
            is_file = False
    if found:
        yield found


def faults(words: list[str]) -> list[str]:
    """What is wrong with a command."""
    while words and words[0] == "do":
        words = words[1:]
    if not words:
        return []
    program = words[0].rpartition("/")[2]
    if program == "outrider":
        try:
            parser().parse_args(words[1:])
        except InputError as error:
            return [str(error)]
        return []
    if program in OTHERS:
        return []
    if program not in HELPS:
        return [f"{program} is a program of which nothing is known here"]
    if shutil.which(program) is None or shutil.which(HELPS[program][0]) is None:
        return []
    done = subprocess.run(HELPS[program], capture_output=True, text=True, timeout=240, check=False)
    text = done.stdout + done.stderr
    options = [word.partition("=")[0] for word in words[1:] if re.fullmatch(r"--?[a-z][\w=-]*", word)]
    return [f"{program} has no {each}" for each in options if not re.search(rf"(?<![\w-]){each}\b", text)]


@pytest.mark.parametrize(
    ("page", "step"), FOUND, ids=[f"{name}-{number}" for number, (name, _) in enumerate(FOUND)]
)
def test_command_of_a_page_is_one_that_there_is(page: str, step: Step) -> None:
    found = [fault for words in programs(step.line) for fault in faults(words)]

    assert found == [], f"{page}, {step}"


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("sh", "outrider nodes deploy 'n[1-2]' --limits 1GiB"),
        ("sh", "outrider init slurmm --apply"),
        ("sbatch", "cd / && sbatch --waits first.sh"),
        ("qsub", "qsub -syncs y first.sh"),
        ("systemctl", "for node in n1 n2; do systemctl enable --nows outriderd; done"),
        ("sh", "frobnicate"),
    ],
)
def test_command_that_there_is_not_is_found(program: str, line: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    assert [fault for words in programs(line) for fault in faults(words)] != []


def test_blocks_are_numbered_and_named_for_whoever_looks_for_one() -> None:
    found = [
        str(step) for step in steps("## A\n```sh\nls\n```\n## B\n```console\nhead$ id\nroot\n```\n", "n1")
    ]

    assert found == ['block 1, "A": n1$ ls', 'block 2, "B": head$ id']


@pytest.mark.parametrize("page", PAGES.values(), ids=list(PAGES))
def test_every_section_with_commands_says_what_to_type(page: str) -> None:
    titles = list(dict.fromkeys(step.section for step in steps(page, "head")))

    assert titles[-1] == "Remove it"
    assert {"The next version", "The version before"} < set(titles)
