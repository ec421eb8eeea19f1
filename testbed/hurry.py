"""A faster time for daemons that would otherwise wait: a library that is preloaded to them.

What they are told and what they wait for is in seconds of that time; nothing else is changed.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("hurry.c")
COMPILE_S = 60


def compiled() -> bytes:
    """The library, made by this machine's compiler."""
    with tempfile.TemporaryDirectory(prefix="hurry-") as folder:
        made = Path(folder) / "hurry.so"
        argv = ["gcc", "-O2", "-Wall", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"]
        subprocess.run(argv, check=True, timeout=COMPILE_S)
        return made.read_bytes()


def variables(path: str, factor: int, origin_s: int) -> list[str]:
    """The words for `env` with which a daemon is started: `factor` of its seconds pass in one since then."""
    return [f"LD_PRELOAD={path}", f"HURRY_FACTOR={factor}", f"HURRY_ORIGIN_S={origin_s}"]
