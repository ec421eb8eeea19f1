"""A real Apptainer that runs an image of a test's, as an ordinary user."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.apptainer import installed, running


@dataclass(frozen=True)
class ApptainerTree:
    """Without a tree of its own it is this machine's."""

    has_tree: bool

    def run(self, image: Path, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["apptainer", verb, str(image), *words]
        if self.has_tree:
            argv = running(image, "apptainer", [verb, "/tmp/image", *words])
        return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="session")
def apptainer() -> ApptainerTree:
    if why := installed():
        pytest.skip(why)
    return ApptainerTree(shutil.which("apptainer") is None)
