"""What the shells complete, asked of the shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cachemgr.cli.completion import options, script, verbs
from cachemgr.cli.main import parser
from tests.unit.cachemgr.cli.outcomes import missing

ASK = r"""
cachemgr() { printf '4be1c0ffee00  here  x\n4be2c0ffee00  here  y\n'; }
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_cachemgr
printf '%s\n' "${COMPREPLY[@]}"
"""


def completed(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    (folder / "completion").write_text(script("bash", parser()))
    command = ["bash", "-c", ASK, "bash", str(folder / "completion"), "cachemgr", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_every_verb(tmp_path: Path) -> None:
    assert completed(tmp_path, "") == list(verbs(parser()))
    assert completed(tmp_path, "-q", "inst") == ["instance", "instances"]


def test_bash_completes_every_option_of_a_verb(tmp_path: Path) -> None:
    for verb, below in verbs(parser()).items():
        wanted = {name for action in options(below) for name in action.option_strings}
        assert wanted - set(completed(tmp_path, verb, "-")) == set()


def test_bash_completes_choices_images_and_files(tmp_path: Path) -> None:
    (tmp_path / "ubuntu.img").touch()

    assert completed(tmp_path, "pin", "x", "--kind", "") == ["hold", "expect"]
    assert completed(tmp_path, "show", "4be") == ["4be1c0ffee00", "4be2c0ffee00"]
    assert completed(tmp_path, "show", "4be2") == ["4be2c0ffee00"]
    assert completed(tmp_path, "add", "ub") == ["ubuntu.img"]
    assert completed(tmp_path, "--config", "ub") == ["ubuntu.img"]
    assert completed(tmp_path, "completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_shells_read_their_scripts(shell: str, check: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        missing(shell)
    path = tmp_path / "completion"
    path.write_text(script(shell, parser()))
    done = subprocess.run([shell, check, str(path)], capture_output=True, text=True, timeout=240)

    assert (done.returncode, done.stderr) == (0, "")


def test_fish_completes_verbs_and_images(tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        missing("fish")
    (tmp_path / "cachemgr.fish").write_text(
        "function cachemgr; echo '4be1c0ffee00  here  x'; end\n" + script("fish", parser())
    )

    def offered(line: str) -> list[str]:
        program = f"source {tmp_path}/cachemgr.fish; complete -C {line!r}"
        done = subprocess.run(["fish", "-c", program], capture_output=True, text=True, timeout=240)
        return [each.split("\t")[0] for each in done.stdout.splitlines()]

    assert offered("cachemgr inst") == ["instance", "instances"]
    assert offered("cachemgr show 4b") == ["4be1c0ffee00"]
    assert "--digest" in offered("cachemgr add --di")
