"""The docs against the program: commands parse, options and exit codes are there, links lead on."""

from __future__ import annotations

import argparse
import csv
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from outrider.cli.arguments import Parser
from outrider.cli.errors import MEANINGS
from outrider.cli.main import main, parser
from outrider.cli.simulate import figure, table
from tests.repository import ROOT
from tools import site_tables, summary

PAGES = sorted(
    [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
SUFFIXES = ("md", "py", "svg", "csv", "cfg", "toml", "trace", "swf", "lwf")
REPOSITORY_PATH = re.compile(rf"(?:[\w.-]+/)+(?:[\w.*-]+\.(?:{'|'.join(SUFFIXES)}))?")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def fenced(page: Path, language: str) -> list[str]:
    return [body for found, body in FENCE.findall(shown(page)) if found == language]


@cache
def shown(page: Path) -> str:
    """A page as the site shows it, with the tables that are made of the code."""
    return site_tables.on_page_markdown(page.read_text())


def whole(name: str) -> str:
    return shown(ROOT / name)


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", shown(page))


def commands(page: Path) -> Iterator[str]:
    """Every `outrider …` of a page: behind a prompt in a fenced block, or between backticks."""
    for body in fenced(page, "console"):
        for line in body.splitlines():
            if line.startswith("$ outrider "):
                yield line.removeprefix("$ ")
    for code in INLINE.findall(prose(page)):
        if code.startswith("outrider ") and "…" not in code:
            yield code


def words(command: str) -> list[str]:
    """A command's arguments, up to where the shell takes over."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    taken: list[str] = []
    for word in lexer:
        if set(word) <= set("|<>&;()"):
            break
        taken.append(word)
    return taken[1:]


SHOWN = [(name_of(page), command) for page in PAGES for command in commands(page)]


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the commands that do something."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for child in action.choices.values():
            yield from leaves(child)


LEAVES = list(leaves(parser()))
NAMES = {leaf.prog for leaf in LEAVES}


def page_of(leaf: argparse.ArgumentParser) -> str:
    """Where a command's options are documented."""
    if leaf.prog == "outrider check":
        return "docs/reference/workspaces.md"
    if leaf.prog.startswith("outrider sim "):
        return "docs/research/simulator.md"
    return "docs/reference/outrider.md"


def parsed(command: str) -> argparse.Namespace:
    return parser().parse_args(words(command))


@pytest.mark.parametrize(("page", "command"), SHOWN)
def test_every_command_shown_in_the_docs_parses(page: str, command: str) -> None:
    # A command's bare name is a name, not something to type.
    assert command in NAMES or callable(parsed(command).command), f"{page}: {command}"


def test_docs_show_every_command() -> None:
    shown = {" ".join(words(command)) for _, command in SHOWN}
    missing = [
        leaf.prog
        for leaf in LEAVES
        if not any(line.startswith(leaf.prog.removeprefix("outrider ")) for line in shown)
        and f"| `{leaf.prog.rpartition(' ')[2]}` |" not in (ROOT / "docs/research/simulator.md").read_text()
    ]

    assert missing == []


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.prog)
def test_every_option_of_a_command_is_documented(leaf: Parser) -> None:
    page = whole(page_of(leaf))
    options = [
        option
        for action in leaf._actions
        for option in action.option_strings
        if option not in ("-h", "--help")
    ]
    missing = [option for option in options if not re.search(rf"`{re.escape(option)}[ `]", page)]

    assert missing == []


def test_exit_codes_in_the_docs_are_those_of_the_program() -> None:
    section = whole("docs/reference/outrider.md").split("## Exit codes")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", section, re.MULTILINE)

    assert {int(code): meaning for code, meaning in rows} == MEANINGS


@pytest.mark.parametrize("command", [f"outrider sim table {name}" for name in table.TABLES]
                         + [f"outrider sim figure {name}" for name in figure.FIGURES])  # fmt: skip
def test_every_table_and_figure_is_compared_with_the_thesis(command: str) -> None:
    assert command in whole("docs/research/papers.md")


def shape(text: str) -> list[str]:
    """What stays when numbers change: bars and numbers become one mark, blanks one blank."""
    marked = re.sub(r"\d[\d.,:]*|█+", "#", text)
    return [re.sub(r"\s+", " ", line).strip() for line in marked.strip().splitlines()]


def test_demo_of_the_simulator_has_the_shape_of_the_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    shown = fenced(ROOT / "docs/research/simulator.md", "console")[0].removeprefix("$ outrider sim demo\n")

    assert main(["sim", "demo"]) == 0
    assert shape(shown) == shape(capsys.readouterr().out)


def anchors(page: Path) -> set[str]:
    """Headings as links name them: lower case, no punctuation, blanks as hyphens."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_docs_resolve(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_the_docs_name_exist(page: Path) -> None:
    named = [code for code in INLINE.findall(prose(page)) if REPOSITORY_PATH.fullmatch(code)]
    missing = [path for path in named if not any(ROOT.glob(path.rstrip("/")))]

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_in_the_docs_names_what_exists(page: Path) -> None:
    imports = [
        line for body in fenced(page, "python") for line in body.splitlines() if line.startswith("from ")
    ]
    scope: dict[str, object] = {}
    for line in imports:
        exec(line, scope)

    assert len(scope) >= len(imports)


def test_summary_of_the_tables_follows_from_their_committed_rows() -> None:
    written = io.StringIO()
    summary.write(written)

    assert (ROOT / "docs/results/table-summary.csv").read_text() == written.getvalue(), (
        "python -m tools.summary"
    )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tables_that_only_the_site_has_are_whole(page: Path) -> None:
    for mark in site_tables.MARK.finditer(page.read_text()):
        lines = site_tables.on_page_markdown(mark[0]).splitlines()

        assert len(lines) >= 3, mark[0]
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {lines[0].count("|")}, mark[0]


def test_each_quantity_that_was_measured_on_hosts_is_in_one_of_two_tables() -> None:
    page = site_tables.on_page_markdown((ROOT / "docs/research/physical.md").read_text())
    thesis, beyond = page.split("\n## Beyond the thesis\n")
    with (ROOT / "docs/results/physical-summary.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["quantity"] in site_tables.PHYSICAL]

    assert len(rows) > 20
    for row in rows:
        start = f"| {row['run']} | {row['quantity']}, {row['unit']} |"
        assert (start in thesis, start in beyond) == (bool(row["figure"]), not row["figure"])


def test_mark_that_names_no_table_stops_the_build() -> None:
    with pytest.raises(KeyError, match="metrix"):
        site_tables.on_page_markdown("<!-- table: metrix -->")
