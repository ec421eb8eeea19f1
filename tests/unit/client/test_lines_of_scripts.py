"""What a script says of itself goes with it, and is never passed over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outrider_client.errors import InputError
from outrider_client.wishes import Job, WorkspaceText, lines_of

SCRIPT = """#!/bin/sh
# A comment.
#OUTRIDER run: vm
#OUTRIDER   preemptible: suspend

echo begins
#OUTRIDER boot: late
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "job"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return str(path)


def test_lines_before_the_first_command_are_sent_with_the_folder(
    script: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    body = Job([script, "1"], workspace=WorkspaceText("version: 1")).body()

    assert body["lines"] == ["run: vm", "preemptible: suspend"]
    assert body["folder"] == os.getcwd()
    assert body["argv"] == [script, "1"]


def test_lines_without_a_workspace_are_refused(script: str) -> None:
    with pytest.raises(InputError, match="beside --workspace"):
        Job([script]).body()


@pytest.mark.parametrize("text", [b"\x7fELF#OUTRIDER run: vm\n", b"echo\n#OUTRIDER run: vm\n", b""])
def test_what_is_no_script_says_nothing(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "program"
    path.write_bytes(text)

    assert lines_of(str(path)) == []
    assert lines_of(str(tmp_path / "missing")) == []
