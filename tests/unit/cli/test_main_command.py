"""The command line as a whole: help, errors and exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outrider import __version__
from outrider.cli.errors import CommandError, InputError, MissingPartError, OutputError
from outrider.cli.main import main
from outrider.cli.simulate import table


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What is on stderr, which has to be exactly one line."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("\n")
    assert captured.err.count("\n") == 1
    return captured.err


def test_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"outrider {__version__}\n"


@pytest.mark.parametrize("command", ["demo", "table", "figure", "run", "convert", "generate"])
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", command, "--help"]) == 0
    assert f"outrider sim {command}" in capsys.readouterr().out.split("example", 1)[1]


def test_help_lists_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    listed = capsys.readouterr().out.split("exit codes:")[1]

    for error in (InputError, OutputError, MissingPartError, CommandError):
        assert f"{error.exit_code}  {error.meaning}" in listed


@pytest.mark.parametrize(
    ("line", "culprit"),
    [
        ([], "no command"),
        (["sim"], "no command"),
        (["sim", "table", "9.9"], "9.9"),
        (["sim", "table", "8.5", "--seeds", "0"], "'0'"),
        (["sim", "table", "8.3", "--joins-any-image"], "--joins-any-image"),
        (["sim", "table", "8.5", "--jsom"], "--jsom"),
        (["sim", "figure", "8.5"], "-o"),
        (["sim", "figure", "8.5", "-o", "picture.txt"], "picture.txt"),
        (["sim", "figure", "8.5", "--seed", "2", "--json"], "--seed"),
        (["sim", "run", "no-such.swf"], "no-such.swf"),
        (["sim", "convert", "in.swf", "out.txt"], "out.txt"),
        (["sim", "convert", "no-such.swf", "out.jsonl"], "no-such.swf"),
        (["sim", "generate"], "no kind"),
        (["sim", "generate", "mixed", "--row", "tiny", "-o", "out.jsonl"], "tiny"),
        (
            ["sim", "generate", "feasible", "--reservations", "3000", "--window", "1000", "-o", "o.jsonl"],
            "1000",
        ),
    ],
)
def test_what_is_not_right_is_one_line_that_names_it(
    line: list[str], culprit: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)

    assert main(line) == InputError.exit_code
    assert culprit in one_line(capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_result_without_a_place_to_go_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = tmp_path / "missing" / "picture.svg"

    assert main(["sim", "figure", "8.5", "-o", str(nowhere)]) == OutputError.exit_code
    assert "missing" in one_line(capsys)


def test_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(table, "measured", interrupted)

    assert main(["sim", "table", "8.2"]) == 130
    assert one_line(capsys) == "outrider: interrupted\n"


def test_help_needs_neither_the_simulator_nor_what_is_optional() -> None:
    script = (
        "import sys; from outrider.cli.main import main; main(['sim', 'run', '--help']); "
        "found = [name for name in sys.modules "
        "if name.startswith(('outrider.sim', 'outrider.core', 'matplotlib', 'rich'))]; "
        "sys.exit(', '.join(found) or 0)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_went_away_is_no_traceback() -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "outrider.cli.main", "sim", "figure", "8.3", "--csv"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert writer.stdout is not None
    writer.stdout.close()
    _, errors = writer.communicate(timeout=240)

    assert (writer.returncode, errors) == (141, b"")
