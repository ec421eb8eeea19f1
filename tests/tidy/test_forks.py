"""Tests in forked workers: every outcome is told, units stay together, and what a session keeps is kept."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

CONFTEST = """\
import os
import pytest
from tests.conftest import pytest_addoption, pytest_collection_modifyitems, pytest_configure

@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    yield os.getpid()
    assert "bad" not in os.environ.get("LAST", "")

@pytest.fixture(scope="module")
def ended(request):
    yield
    print("ended", request.module.__name__, os.getpid())
"""
FILE = """\
import os
def test_first(kept, ended, tmp_path):
    assert os.getpid() == kept != os.getppid()
    assert f"popen-{os.environ['PYTEST_XDIST_WORKER']}" in str(tmp_path)
def test_second(kept):
    assert os.getpid() == kept
"""
TROUBLE = """\
import os, pytest
def test_fails():
    print("what it has printed")
    assert [1, 2] == [1, 3]
@pytest.mark.skip(reason="not here")
def test_skipped(): pass
def test_dies():
    os._exit(7)
def test_after_it():
    assert os.getpid() != os.getppid()
@pytest.fixture
def broken():
    yield
    raise ValueError("cannot be closed")
def test_whose_fixture_cannot_be_closed(broken): pass
"""
LAST = """\
import os
def test_of_a_session_that_cannot_be_closed(kept):
    os.environ["LAST"] = "bad"
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a run with two workers prints."""
    folder = tmp_path_factory.mktemp("forked")
    names = {"conftest": CONFTEST, "test_trouble": TROUBLE, "test_last": LAST}
    for name, text in names.items() | {(f"test_{number}", FILE) for number in range(4)}:
        Path(folder, f"{name}.py").write_text(text)
    options = ["-v", "-p", "no:cacheprovider", "-c", str(folder / "none.ini"), "--rootdir", str(folder)]
    (folder / "none.ini").touch()
    argv = [sys.executable, "-m", "pytest", *options, "--import-mode=importlib", "--forks", "2", str(folder)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=240).stdout


def test_every_outcome_is_counted(said: str) -> None:
    counts = dict(reversed(pair.split()) for pair in re.findall(r"\d+ [a-z]+", said.splitlines()[-1]))

    assert counts == {"failed": "1", "passed": "11", "skipped": "1", "errors": "3"}, said


def test_failure_is_shown_with_its_values_and_what_was_printed(said: str) -> None:
    assert "assert [1, 2] == [1, 3]" in said
    assert "what it has printed" in said


def test_death_of_a_worker_is_a_failure_of_the_test_that_ran(said: str) -> None:
    assert re.search(r"ERROR.*test_dies", said), said
    assert "the worker ended with status 7 while it ran this" in said
    assert re.search(r"test_after_it PASSED", said), said


def test_fixture_that_cannot_be_closed_is_an_error(said: str) -> None:
    assert re.search(r"ERROR.*test_whose_fixture_cannot_be_closed", said), said
    assert "assert 'bad' not in 'bad'" in said
