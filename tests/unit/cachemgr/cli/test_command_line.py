"""The command line as a whole: help, errors on one line, exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cachemgr import __version__
from cachemgr.base.errors import every_error
from cachemgr.cli.arguments import VerbParser
from cachemgr.cli.completion import verbs
from cachemgr.cli.exits import meanings
from cachemgr.cli.main import main, parser
from tests.repository import ROOT

NEEDED = ("init", "add", "ls", "show", "pin", "unpin", "instance", "evict", "check", "stats", "serve")


def test_every_verb_that_an_administrator_expects_is_there() -> None:
    assert set(NEEDED) <= set(verbs(parser()))


@pytest.mark.parametrize("verb", list(verbs(parser())))
def test_every_verb_has_help_with_an_example_of_itself_that_parses(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "--help"]) == 0

    lines = capsys.readouterr().out.split("examples:\n")[1].split("\n\n")[0].splitlines()
    assert lines
    for line in lines:
        words = re.sub(r" ([|>]|&&).*", "", line.strip()).replace("…", "").replace("cachemgr ", "", 1).split()
        assert words[0] == verb
        assert parser().parse_args(words).verb == verb


def test_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cachemgr {__version__}\n" * 2


def test_exit_codes_are_those_of_the_errors_and_of_the_shell() -> None:
    assert set(meanings()) == {each.exit_code for each in every_error()} | {0, 70, 130, 141}


def test_help_lists_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    listed = capsys.readouterr().out.split("exit codes:")[1]

    assert [code for code, text in meanings().items() if f"{code:>3}  {text}" not in listed] == []


@pytest.mark.parametrize(
    ("line", "culprit"),
    [
        ([], "no verb"),
        (["lss"], "did you mean 'ls'"),
        (["ls", "--jsom"], "--jsom"),
        (["add"], "SOURCE"),
        (["add", "x", "--size", "1.5QB"], "--size"),
        (["add", "x", "--rate", "fast"], "--rate"),
        (["add", "x", "--for", "2h"], "--pin OWNER"),
        (["add", "x", "--reader", "no-such-user-here"], "no-such-user-here"),
        (["pin", "x", "--owner", "me"], "--for --until"),
        (["pin", "x", "--owner", "me", "--for", "1y"], "'1y'"),
        (["pin", "x", "--owner", "me", "--until", "tomorrow"], "'tomorrow'"),
        (["evict"], "evict IMAGE"),
        (["init", "--limit", "1GiB", "--policy", "fifo"], "fifo"),
        (["--config", "no-such.conf", "config"], "no-such.conf"),
        (["completion", "csh"], "csh"),
    ],
)
def test_what_makes_no_sense_is_one_line_that_names_it(
    line: list[str], culprit: str, site: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(site)
    common = [] if "--config" in line else ["--config", "empty.conf"]

    assert main([*common, "--pool", str(site / "pool"), "--no-daemon", *line]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("cachemgr: ")
    assert captured.err.count("\n") == 1
    assert culprit in captured.err
    assert sorted(path.name for path in site.iterdir()) == ["empty.conf"]


def test_common_options_may_stand_before_and_after_the_verb() -> None:
    before = parser().parse_args(["--json", "--pool", "p", "-q", "ls"])
    after = parser().parse_args(["ls", "--json", "--pool", "p", "-q"])

    for found in (before, after):
        assert (found.json, found.pool, found.quiet, found.verbose) == (True, "p", True, False)


def test_options_have_to_be_written_out() -> None:
    assert all(not each.allow_abbrev for each in [parser(), *verbs(parser()).values()])
    assert all(isinstance(each, VerbParser) for each in verbs(parser()).values())


def test_a_reader_that_went_away_is_no_error_with_a_traceback() -> None:
    command = [sys.executable, "-m", "cachemgr", "completion", "bash"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()

        assert process.wait(60) == 141
        assert said == ""


def test_help_and_errors_import_nothing_that_takes_long() -> None:
    program = (
        "import sys; from cachemgr.cli.main import main; main(['ls', '--help']); "
        "print(*[name for name in ('sqlite3', 'socket', 'ssl', 'configparser', 'dataclasses', 'subprocess') "
        "if name in sys.modules], file=sys.stderr)"
    )
    finished = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=240
    )

    assert finished.stderr.split() == []
