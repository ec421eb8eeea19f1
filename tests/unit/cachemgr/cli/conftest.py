"""A pool in a folder of its own, and the command line run on it in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachemgr.cli.main import main
from tests.unit.cachemgr.cli.outcomes import Outcome, Run


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an empty configuration, so that the machine's own is never read."""
    (tmp_path / "empty.conf").write_text("[cachemgr]\n")
    return tmp_path


@pytest.fixture
def bare(site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line on a pool that is not there yet, in the site's folder, without a daemon."""
    monkeypatch.chdir(site)

    def run(*words: str) -> Outcome:
        capsys.readouterr()
        common = ["--config", str(site / "empty.conf"), "--pool", str(site / "pool"), "--no-daemon"]
        code = main([*common, *words])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def cachemgr(bare: Run) -> Run:
    """The command line on a pool of 1 MiB."""
    assert bare("init", "--limit", "1MiB").code == 0
    return bare


@pytest.fixture
def image(site: Path) -> Path:
    """A file of 1000 bytes that is no disk image."""
    path = site / "tools.img"
    path.write_bytes(b"outrider\n" * 111 + b"!")
    return path
