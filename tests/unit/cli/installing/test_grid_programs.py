"""Which of Grid Engine's commands the service is to use: programs, where scripts only start them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from outrider.cli.installing.common.onhead import lacking, made_in_words
from outrider.cli.installing.common.running import Done
from outrider.cli.installing.gridengine import programs
from outrider.cli.installing.gridengine.programs import NEEDED, folder_of_commands

PROGRAM = b"\x7fELF and more"


class Answers:
    """Programs that end well if they are among these."""

    def __init__(self, *good: str) -> None:
        self.good = good
        self.asked: list[Sequence[str]] = []

    def run(self, command: Sequence[str], timeout_s: int = 20) -> Done:
        self.asked.append(command)
        return Done(code=0 if any(word in self.good for word in command) else 1)


def made(folder: Path, content: bytes, names: Sequence[str] = NEEDED) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(programs, "DEBIAN", "/nowhere")
    return tmp_path / "root"


def test_programs_behind_scripts_are_used(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", made(tmp_path / "scripts", b"#!/bin/sh\n"))
    place = made(root / "bin" / "lx-amd64", PROGRAM)
    runner = Answers(f"{place}/qconf")

    assert folder_of_commands(str(root), "default", runner) == place
    assert [word for word in runner.asked[0] if "=" in word] == [
        f"PATH={place}:/usr/bin:/bin",
        f"SGE_ROOT={root}",
        "SGE_CELL=default",
    ]


def test_commands_that_are_programs_stay(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = made(tmp_path / "programs", PROGRAM)
    monkeypatch.setenv("PATH", usual)
    made(root / "bin" / "lx-amd64", PROGRAM)

    assert folder_of_commands(str(root), "default", Answers()) == usual


@pytest.mark.parametrize("names", [NEEDED, NEEDED[1:]], ids=["they do not answer", "one is missing"])
def test_scripts_stay_where_programs_alone_do_not_work(
    names: Sequence[str], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = made(tmp_path / "scripts", b"#!/bin/sh\n")
    monkeypatch.setenv("PATH", usual)
    place = made(root / "bin" / "lx-amd64", PROGRAM, names)

    good = () if names == NEEDED else (f"{place}/qconf",)
    assert folder_of_commands(str(root), "default", Answers(*good)) == usual


def test_user_that_is_to_be_made_is_announced() -> None:
    assert lacking(["root", "outrider"], Answers("root")) == ["outrider"]
    assert "user outrider of this machine" in made_in_words("outrider")
