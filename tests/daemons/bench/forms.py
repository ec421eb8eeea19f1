"""The short form of a benchmark as a process, and what has to be true of each."""

from __future__ import annotations

import io
import os
import runpy
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest

from bench.frame import NOT_MEASURED
from bench.run import BENCHMARKS
from tests.repository import ROOT

LONGEST_S = 400
ALL = {each.name: each for each in BENCHMARKS}


def quick(name: str, *options: str, python: tuple[str, ...] = (sys.executable,)) -> tuple[int, str]:
    """Its exit code and all that it said, by that Python."""
    argv = [*python, *ALL[name].command(["--quick", *options])[1:]]
    environment = {key: value for key, value in os.environ.items() if key != "OUTRIDER_DATA"}
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
    )
    return done.returncode, done.stdout


def said_here(name: str, *options: str) -> tuple[int, str]:
    """The same of what is over at once, in this process: to import it takes longer than what it does."""
    words, said = ALL[name].command(list(options))[1:], io.StringIO()
    argv = words[1:] if words[0] == "-m" else words
    with (
        redirect_stdout(said),
        redirect_stderr(said),
        patch.object(sys, "argv", argv),
        patch.object(sys, "path", list(sys.path)),
    ):
        try:
            if words[0] == "-m":
                runpy.run_module(words[1], run_name="__main__")
            else:
                runpy.run_path(words[0], run_name="__main__")
        except SystemExit as ended:
            return (ended.code if isinstance(ended.code, int) else bool(ended.code)), said.getvalue()
    return 0, said.getvalue()


def measured(name: str, *options: str) -> str:
    """What the short form says that has run to its end; skips where this machine lacks what it needs."""
    code, said = quick(name, *options)
    if code == NOT_MEASURED and "nothing was measured: " in said:
        if os.environ.get("CI"):
            pytest.fail(f"{name}: {said}")
        pytest.skip(said.strip())
    assert code == 0, said
    return said
