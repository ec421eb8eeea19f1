"""What `outriderd` says without a library that it needs, whether what was asked for needs it or not."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.service.daemon.main import main

FILE = "version: 1\nstate: {0}/s\nsocket: {0}/o.sock\nbackend: {{kind: embedded, nodes: n1}}\n"


@pytest.mark.parametrize("library", ["fastapi", "yaml"])
@pytest.mark.parametrize("orders", [["--check"], ["--init"], ["--example"], []])
def test_missing_library_is_named_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, orders: list[str]
) -> None:
    (tmp_path / "o.yaml").write_text(FILE.format(tmp_path))
    monkeypatch.setitem(sys.modules, library, None)
    stream = io.StringIO()

    assert main(["--config", str(tmp_path / "o.yaml"), *orders], {}, stream) == 3
    assert f"needs {library}: in a clone of Outrider, pip install '.[service]'" in stream.getvalue()
    assert not (tmp_path / "s").exists()


def test_check_reads_no_more_than_the_configuration(tmp_path: Path) -> None:
    """Configuration systems ask often, and the rest of the service takes a second to load."""
    (tmp_path / "o.yaml").write_text(FILE.format(tmp_path))
    program = (
        "import sys; from outrider.service.daemon.main import main; "
        f"code = main(['--config', {str(tmp_path / 'o.yaml')!r}, '--check']); "
        "print(code, sorted({'fastapi', 'uvicorn', 'outrider.service.desk.desk'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "0 []", done.stdout + done.stderr
