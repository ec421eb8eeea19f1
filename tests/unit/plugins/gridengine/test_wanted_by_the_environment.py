"""OUTRIDER_IMAGE_WANTED in both of Grid Engine's filters: it counts where the job itself says nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.unit.plugins.gridengine.jsv import CLIENT, SERVER, job, module

jsv = module(SERVER)
WANTED = {"OUTRIDER_IMAGE_WANTED": "image=http://h/e;size=3GiB"}


def client(*lines: str) -> list[str]:
    """What the client's filter answers in the environment of a user who wants an image."""
    told = subprocess.run(
        [CLIENT], input=job(*lines) + b"QUIT\n", capture_output=True, timeout=240, check=True, env=WANTED
    )
    return told.stdout.decode().splitlines()[1:]


def answered(*lines: str) -> list[str]:
    """The server's filter's verdict."""
    found = jsv.verdict(list(lines), jsv.Site("/nonexistent"), 0)
    assert isinstance(found, list)
    return found


def test_environment_counts_where_the_job_says_nothing(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nsleep 1\n")
    line, state = client(f"PARAM CMDNAME {script}", "PARAM ac A=1")
    binary, _ = client("PARAM CMDNAME sleep", "PARAM b y")
    named = client("PARAM ac OUTRIDER=http://h/c")
    script.write_text("#!/bin/sh\n#OUTRIDER image: http://h/a\n")
    scripted, _ = client(f"PARAM CMDNAME {script}")

    assert state == "RESULT STATE CORRECT"
    assert line.startswith("PARAM ac A=1,OUTRIDER_IMAGE_WANTED=base64:")
    assert jsv.decoded(line.rpartition("WANTED=")[2]) == "image=http://h/e;size=3GiB"
    assert binary == line.replace("A=1,", "")
    assert named == ["RESULT STATE ACCEPT"]
    assert jsv.decoded(scripted.removeprefix("PARAM ac OUTRIDER=")) == "image: http://h/a"


@pytest.mark.parametrize(
    ("lines", "image"),
    [
        (["ENV ADD OUTRIDER_IMAGE_WANTED http://h/e"], "http://h/e"),
        (["PARAM ac OUTRIDER_IMAGE_WANTED=http://h/c"], "http://h/c"),
        (
            ["PARAM ac OUTRIDER_IMAGE_WANTED=http://h/c", "ENV ADD OUTRIDER_IMAGE_WANTED http://h/e"],
            "http://h/c",
        ),
        (["PARAM ac OUTRIDER_IMAGE_WANTED=http://h/c", "ENV ADD OUTRIDER http://h/v"], "http://h/v"),
        (["PARAM ac OUTRIDER=http://h/a,OUTRIDER_IMAGE_WANTED=http://h/c"], "http://h/a"),
    ],
)
def test_servers_filter_takes_what_is_most_the_jobs_own(lines: list[str], image: str) -> None:
    *kept, _, state = answered(*lines)
    context = next(line for line in kept if line.startswith("PARAM ac "))
    words = dict(word.partition("=")[::2] for word in context.removeprefix("PARAM ac ").split(","))

    assert state == "RESULT STATE CORRECT"
    assert "PARAM h u" in kept
    assert jsv.decoded(words["OUTRIDER"]) == image


@pytest.mark.parametrize("text", ["", " "])
def test_empty_variable_says_nothing(text: str) -> None:
    assert answered(f"ENV ADD OUTRIDER_IMAGE_WANTED {text}") == ["RESULT STATE ACCEPT"]
