"""The command that converts an image ends with whoever has started it, whenever a signal comes."""

from __future__ import annotations

import importlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from cachemgr.base.errors import BadRequest
from tests.repository import ROOT

URI = "docker://host/image:1"


@pytest.fixture
def convert(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "plugins/pyxis"))
    return importlib.import_module("outrider_pyxis.conversion").convert


@pytest.fixture(autouse=True)
def signals_end() -> Iterator[None]:
    """As the importer has it."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_before_the_process_is_known_ends_it_too(
    convert: Any, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)
            signal.raise_signal(number)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)

    with pytest.raises(SystemExit) as ended:
        convert(["sleep", "60"], URI, str(tmp_path / "out"), environment={"PATH": "/bin"}, timeout_s=60)

    assert ended.value.code == 128 + number
    assert begun[0].poll() == -signal.SIGKILL


def test_signals_are_handled_as_before_when_a_command_cannot_be_run(convert: Any, tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGTERM)

    with pytest.raises(BadRequest):
        convert(["/no/command"], URI, str(tmp_path / "no/out"), environment={}, timeout_s=60)

    assert signal.getsignal(signal.SIGTERM) is handler
