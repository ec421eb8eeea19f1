"""A munged of a test's own, with a key that nobody else has."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.service.web.apiserver import wait_until

UID = 54_321
FILES = {
    "socket": "munge.sock",
    "key-file": "key",
    "pid-file": "pid",
    "seed-file": "seed",
    "log-file": "log",
}


@dataclass(frozen=True, kw_only=True)
class Munged:
    """A daemon with a key and a socket of its own."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def socket(self) -> str:
        return str(self.folder / "munge.sock")

    def encode(self, payload: str, *arguments: str, uid: int = UID) -> str:
        """A credential that a process of that user had made."""
        finished = subprocess.run(
            ["munge", "--socket", self.socket, "--string", payload, *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            user=uid,
            group=uid,
            extra_groups=[],
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout.strip()


@contextmanager
def running_munged() -> Iterator[Munged]:
    """Until the block ends. Skips where it cannot run, but for CI, where it has to."""
    missing = [name for name in ("munged", "munge", "unmunge") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        words = f"{', '.join(missing) or 'root'} is needed to try credentials"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    folder = Path(tempfile.mkdtemp(prefix="munge-"))
    folder.chmod(0o755)
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    options = [text for name, file in FILES.items() for text in (f"--{name}", str(folder / file))]
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(["munged", "--foreground", "--force", *options], stdout=out, stderr=out)
    try:
        found = Munged(folder=folder, process=process)
        wait_until(lambda: os.path.exists(found.socket) or process.poll() is not None)
        assert process.poll() is None, (folder / "out").read_text()
        yield found
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder)
