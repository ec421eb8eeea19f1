"""The wheel of these sources, and an environment that has it: made once, whichever worker asks first."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.wheel import built, environment


def wheel_of(factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    return next(_once(factory, "wheel", built).glob("outrider-*.whl"))


def installed_of(factory: pytest.TempPathFactory) -> Path:
    """The folder of the environment, which nobody changes."""
    wheel = wheel_of(factory)
    return _once(factory, "installed", lambda folder: environment(folder / "outrider", wheel)) / "outrider"


def _once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder of all workers of this run; the first one fills it, and others wait for that."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"shared-{name}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            make(folder)
            (folder / "done").touch()
    return folder
