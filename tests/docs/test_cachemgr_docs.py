"""The pages of cachemgr and its daemon against the program: every verb, option, key, code and metric."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemgr import config
from cachemgr.cli.completion import options, verbs
from cachemgr.cli.exits import meanings
from cachemgr.cli.main import main, parser
from cachemgr.daemon import metrics
from cachemgr.pool.policies import POLICIES
from cachemgr.protocol import VERBS as VERBS_OF_DAEMON
from tests.repository import ROOT
from tools import manpage, site_tables
from tools.pyz import pack
from tools.reference_tables import fields_of

PAGE = site_tables.on_page_markdown((ROOT / "docs/reference/cachemgr.md").read_text())
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
VERBS = verbs(parser())


def section(heading: str) -> str:
    """What stands below a heading, up to the next one of its level or above."""
    level = heading.split(" ")[0]
    after = PAGE.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"^#{{1,{len(level)}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


def verb_section(verb: str) -> str:
    found = re.search(rf"^(### cachemgr {verb}\b.*)$", PAGE, re.MULTILINE)
    assert found, f"docs/reference/cachemgr.md has no heading for {verb}"
    return section(found[1])


def rows(text: str) -> list[list[str]]:
    """The cells of a table's lines, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines[2:]]


def option_names(text: str) -> list[str]:
    """The options that the first column of a table names."""
    cells = [row[0] for row in rows(text)]
    return [code.split(" ")[0] for cell in cells for code in INLINE.findall(cell) if code.startswith("-")]


def names_of(below: argparse.ArgumentParser) -> list[str]:
    own = [action for action in options(below) if "--help" not in action.option_strings]
    return [name for action in own for name in action.option_strings]


def test_headings_name_every_verb_once_with_what_it_takes() -> None:
    found = re.findall(r"^### cachemgr (.+)$", PAGE, re.MULTILINE)
    wanted = [
        " ".join([verb, *(str(each.metavar) for each in below._actions if not each.option_strings)])
        for verb, below in VERBS.items()
    ]

    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_option_of_a_verb_is_documented_once(verb: str) -> None:
    assert sorted(option_names(verb_section(verb))) == sorted(names_of(VERBS[verb]))


def test_common_options_are_documented_once() -> None:
    documented = option_names(section("## How to call it"))

    assert sorted(documented) == sorted(names_of(parser()))


def test_choices_are_documented() -> None:
    for verb, below in VERBS.items():
        for action in options(below):
            if action.choices and action.dest != "kind":
                missing = [each for each in action.choices if f"`{each}`" not in verb_section(verb)]
                assert missing == [], f"{verb} {action.option_strings}"


def test_exit_codes_are_those_of_the_program() -> None:
    table = rows(site_tables.on_page_markdown(section("## Exit codes")))
    shown = {int(code): meaning for code, meaning in table}

    assert shown == meanings()


def test_example_of_a_configuration_is_one() -> None:
    examples = [body for language, body in FENCE.findall(PAGE) if language == "ini"]
    for body in examples:
        lines = [line.split(" = ") for line in body.splitlines() if " = " in line]
        assert config.config(dict(lines)).pool == "/var/cache/outrider"

    assert len(examples) == 1


def test_options_and_metrics_are_where_the_page_sends_its_reader() -> None:
    told = section("## Configuration and metrics")
    daemon = (ROOT / "docs/reference/daemon.md").read_text()

    assert "daemon.md#configuration" in told
    assert "daemon.md#metrics" in told
    assert '--8<-- "cachemgr/daemon/units/cachemgr.conf"' in daemon.split("## Configuration\n")[1]
    assert metrics.table() in site_tables.on_page_markdown(daemon.split("## Metrics\n")[1])


def test_policies_are_described_where_the_page_says() -> None:
    described = (ROOT / "docs/explanation/durability.md").read_text().split("## What goes first")[1]

    assert [name for name in POLICIES if f"| `{name}` |" not in described] == []


def test_manual_page_is_made_of_the_parser() -> None:
    assert manpage.PAGE.read_text() == manpage.page(), "run `make man`"


def test_manual_page_is_roff() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", str(manpage.PAGE)], capture_output=True, text=True, timeout=240
    )
    text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert [verb for verb in VERBS if f"cachemgr {verb}" not in text] == []


def commands() -> Iterator[str]:
    """Every command of the page: behind a prompt, or between backticks."""
    for language, body in FENCE.findall(PAGE):
        if language == "console":
            yield from (line[2:] for line in body.splitlines() if line.startswith("$ cachemgr "))
    for code in INLINE.findall(FENCE.sub("", PAGE)):
        if code.startswith("cachemgr ") and " " in code.strip():
            yield code


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_every_command_shown_parses(command: str) -> None:
    words = re.split(r" (?:\|\||[|>&]) ?", command)[0].replace('"$PWD/pool"', "pool")

    assert parser().parse_args(shlex.split(words)[1:]).verb in VERBS


def shape(text: str, folder: Path | str) -> list[str]:
    """What stays when digests, times, users and folders are others."""
    text = text.replace(str(folder), "/tmp/try")
    text = re.sub(r"\d+(?:[.:-]\d+)*", "#", re.sub(r"\b[0-9a-f]{12,}\b", "#", text))
    text = re.sub(r"the pool (\S+) of \S+:", r"the pool \1 of ada:", text)
    # A busy machine takes a second or more, and then that is told.
    text = re.sub(r"(is in the pool) after # s$", r"\1", text, flags=re.MULTILINE)
    return [re.sub(r"\s+", " ", line).strip() for line in text.strip().splitlines()]


def test_five_minutes_are_what_a_terminal_shows(tmp_path: Path) -> None:
    body = FENCE.findall(section("## Five minutes"))[0][1]
    pack(tmp_path / "cachemgr.pyz", interpreter=f"{sys.executable} -IS", bytecode_of=sys.executable)
    typed = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
    script = "exec 2>&1\n" + "".join(f"echo {shlex.quote('$ ' + line)}\n{line}\n" for line in typed)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert shape(done.stdout, os.path.realpath(tmp_path)) == shape(body, "/tmp/try")


# What brings each command's JSON about, in this order, on one pool.
STEPS = {
    "init": ["init", "--limit", "1MiB"],
    "add --dry-run": ["add", "a.img", "--dry-run"],
    "add": ["add", "a.img"],
    "pin": ["pin", "a.img", "--owner", "o", "--for", "1h"],
    "instance": ["instance", "a.img", "--owner", "job", "--method", "copy", "--for", "1h"],
    "find": ["find", "a.img"],
    "ls": ["ls"],
    "show": ["show", "a.img"],
    "instances": ["instances"],
    "shares": ["shares"],
    "unpin": ["unpin", "a.img", "--owner", "o"],
    "release": ["release", "job"],
    "forget": ["forget", "./a.img"],
    "evict": ["evict", "--need", "1"],
    "check": ["check"],
    "config": ["config"],
    "config --example": ["config", "--example"],
    "completion": ["completion", "bash"],
    "version": ["version"],
}
# What needs a daemon is tested with one, and by its own shapes.
OF_A_DAEMON = {"transfers", "limits", "ping", "metrics", "stats"}
OF_QEMU = {"machines"}


def documented_keys() -> dict[str, list[str]]:
    """For each command its keys: those of the daemon's answer, or of the page, without those in brackets."""
    found = {verb: list(fields_of(answer)) for verb, (_, answer, *_) in VERBS_OF_DAEMON.items()}
    for names, keys in rows(section("## JSON")):
        top = INLINE.findall(re.sub(r"\([^)]*\)", "", keys))
        found.update(dict.fromkeys(INLINE.findall(names), top))
    return found


def test_json_has_the_keys_that_are_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.img").write_bytes(b"image")
    image = documented_keys()["add"]
    documented = {**documented_keys(), "show": [*image, "pin_list", "instances", "aliases", "readers"]}
    documented["config"] = [option.field for option in config.OPTIONS]
    documented["ls"] = ["images", "arriving"]
    assert set(STEPS) | OF_A_DAEMON | OF_QEMU <= set(documented)

    for name, words in STEPS.items():
        common = ["--config", os.devnull, "--pool", str(tmp_path / "pool"), "--no-daemon", "--json"]
        assert main([*common, *words]) == 0, capsys.readouterr().err
        assert sorted(json.loads(capsys.readouterr().out)) == sorted(documented[name]), name
