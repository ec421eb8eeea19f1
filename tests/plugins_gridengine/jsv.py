"""The submit filters of Grid Engine, loaded as modules or run as processes."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

PLUGINS = Path(__file__).resolve().parents[2] / "plugins" / "gridengine"
SERVER = PLUGINS / "outrider_jsv.py"
CLIENT = PLUGINS / "outrider_client_jsv.py"


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def job(*lines: str) -> bytes:
    """What the qmaster says of a job."""
    return "\n".join(["START", "PARAM VERSION 1.0", *lines, "BEGIN", ""]).encode("utf-8", "surrogateescape")


def run(path: Path, said: bytes, **variables: str) -> tuple[int, list[str], bytes]:
    """Exit status, the lines of stdout, and stderr of a filter as the qmaster starts it."""
    done = subprocess.run(
        [str(path)], input=said, capture_output=True, timeout=60, env=variables, check=False
    )
    return done.returncode, done.stdout.decode("utf-8", "surrogateescape").splitlines(), done.stderr
