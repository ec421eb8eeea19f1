"""The demo says what it lacks, installs it where it may, and goes on without where it may not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.demo import provision
from testbed.demo.provision import PACKAGES, provided

LACK = "no Slurm on this machine"
APT = """#!/bin/sh
echo "$@" >>"{folder}/asked"
case $1 in install) {install} ;; esac
"""


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Slurm until apt-get has made it so; its programs are in a folder of ours."""
    there = tmp_path / "there"
    monkeypatch.setattr(provision, "missing", lambda: None if there.exists() else LACK)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "curl").touch(mode=0o755)
    return tmp_path


def apt(folder: Path, install: str) -> None:
    path = folder / "apt-get"
    path.write_text(APT.format(folder=folder, install=install))
    path.chmod(0o755)


def test_what_is_there_is_not_installed(lacking: Path) -> None:
    (lacking / "there").touch()
    apt(lacking, "exit 1")

    assert provided(pytest.fail) is None
    assert not (lacking / "asked").exists()


def test_root_installs_what_is_missing_and_says_so(lacking: Path) -> None:
    apt(lacking, f"touch {lacking}/there")
    said: list[str] = []

    assert provided(said.append) is None
    assert "apt-get install slurmctld slurmd " in said[0]
    assert (lacking / "asked").read_text().splitlines()[1].endswith(" ".join(PACKAGES))


def test_installation_that_fails_is_a_reason_with_its_words(lacking: Path) -> None:
    apt(lacking, "echo 'E: Unable to locate package slurmd' >&2; exit 100")
    said: list[str] = []

    reason = provided(said.append)

    assert reason is not None
    assert reason.startswith(LACK)
    assert "E: Unable to locate package slurmd" in reason


def test_others_than_root_are_told_to_be_root(lacking: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    reason = provided(pytest.fail)

    assert reason is not None
    assert "sudo make demo" in reason


def test_machine_without_apt_is_told_what_is_missing(lacking: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(lacking))

    reason = provided(pytest.fail)

    assert reason is not None
    assert reason.startswith(LACK)
