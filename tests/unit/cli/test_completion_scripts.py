"""What shells complete for `outrider`, asked of the shells."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from outrider.cli.completion import SHELLS, options, script, verbs
from outrider.cli.main import main, parser
from outrider.cli.simulate import table

ASK = r"""
outrider() { printf 'render-17  preparing  x\nweb-3  ready  y\n'; }
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_outrider
printf '%s\n' "${COMPREPLY[@]}"
"""
FISH = r"""
function outrider; printf 'render-17  preparing  x\nweb-3  ready  y\n'; end
source $argv[1]
complete -C "$argv[2]"
"""


def missing(tool: str) -> None:
    """Skip here, but not where everything has to be installed."""
    if os.environ.get("CI"):
        pytest.fail(f"{tool} is not installed")
    pytest.skip(f"{tool} is not installed")


def completed(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    (folder / "completion").write_text(script("bash", parser()))
    command = ["bash", "-c", ASK, "bash", str(folder / "completion"), "outrider", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def completed_by_fish(folder: Path, line: str) -> list[str]:
    if shutil.which("fish") is None:
        missing("fish")
    (folder / "completion.fish").write_text(script("fish", parser()))
    done = subprocess.run(
        ["fish", "--no-config", "-c", FISH, str(folder / "completion.fish"), line],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)},
    )  # fmt: skip
    assert done.stderr == ""
    return [each.split("\t")[0] for each in done.stdout.splitlines()]


def test_bash_completes_commands_at_every_depth(tmp_path: Path) -> None:
    for verb in verbs(parser()):
        if verb.below:
            assert completed(tmp_path, *verb.words.split(), "") == list(verb.below)


def test_bash_completes_every_option_of_every_command(tmp_path: Path) -> None:
    found = [verb for verb in verbs(parser()) if verb.words and verb.words.startswith(("re", "sim r", "co"))]

    assert len(found) >= 6
    for verb in found:
        wanted = {name for action in options(verb.parser) for name in action.option_strings}
        assert set(completed(tmp_path, *verb.words.split(), "-")) == wanted


def test_bash_completes_reservations_choices_and_files(tmp_path: Path) -> None:
    (tmp_path / "ws.yaml").touch()

    assert completed(tmp_path, "show", "") == ["render-17", "web-3"]
    assert completed(tmp_path, "show", "--utc", "web") == ["web-3"]
    assert completed(tmp_path, "submit", "--reservation", "r") == ["render-17"]
    assert completed(tmp_path, "reserve", "w") == ["ws.yaml"]
    assert completed(tmp_path, "list", "--state", "e") == ["endangered", "ended"]
    assert completed(tmp_path, "sim", "table", "8") == [name for name in table.TABLES if name.startswith("8")]
    assert completed(tmp_path, "reserve", "--name", "") == []


def test_fish_completes_the_same(tmp_path: Path) -> None:
    (tmp_path / "ws.yaml").touch()

    assert completed_by_fish(tmp_path, "outrider re") == [
        "reconcile",
        "report",
        "reserve",
        "restore",
        "resume",
    ]
    assert completed_by_fish(tmp_path, "outrider config ") == ["check", "show"]
    assert completed_by_fish(tmp_path, "outrider show web") == ["web-3"]
    assert sorted(completed_by_fish(tmp_path, "outrider list --state e")) == ["endangered", "ended"]
    assert completed_by_fish(tmp_path, "outrider reserve w") == ["ws.yaml"]
    assert "--finish-by" in completed_by_fish(tmp_path, "outrider reserve --fin")


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_shells_read_what_the_command_prints(
    shell: str, check: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which(shell) is None:
        missing(shell)
    assert main(["completion", shell]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    done = subprocess.run(
        [shell, check, str(tmp_path / "script")], capture_output=True, text=True, timeout=240, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_shell_that_is_none_is_an_input_error() -> None:
    assert SHELLS == ("bash", "zsh", "fish")
    assert main(["completion", "tcsh"]) == 1
