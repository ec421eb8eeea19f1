"""Grid Engine's submit filter wakes the service once a verdict is written, and costs nobody anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.unit.plugins.gridengine.jsv import SERVER, job, module

jsv = module(SERVER)
NOW_S = 1_800_000_000


@pytest.mark.parametrize(
    ("described", "wakes"),
    [
        (("PARAM ac OUTRIDER=http://h/a",), 1),
        (("PARAM ac OUTRIDER=http://h/a", "PARAM ar 7"), 0),
        (("PARAM ac A=1",), 0),
        (("PARAM ac OUTRIDER=",), 0),
    ],
)
def test_service_is_woken_when_the_verdict_is_written_that_holds_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, described: tuple[str, ...], wakes: int
) -> None:
    source, to_filter = os.pipe()
    from_filter, target = os.pipe()
    written: list[bytes] = []
    (tmp_path / "wake").touch()
    config = tmp_path / "jsv.json"
    config.write_text(json.dumps({"wake": str(tmp_path / "wake")}))
    opened = os.open
    # What has been written by the time that the file is opened.

    def noted(path: str, *rest: int) -> int:
        if path.endswith("wake"):
            written.append(os.read(from_filter, 65536))
        return opened(path, *rest)

    monkeypatch.setattr(jsv.os, "open", noted)
    os.write(to_filter, job(*described))
    conversation = jsv.Conversation(jsv.Site(str(config)), lambda: NOW_S)
    wake = conversation.wake

    def woken() -> None:
        wake()
        os.close(to_filter)

    monkeypatch.setattr(conversation, "wake", woken)
    if not wakes:
        os.close(to_filter)
    jsv.talk(source, target, conversation, bytearray(1))
    for each in (source, from_filter, target):
        os.close(each)

    assert len(written) == wakes
    assert all(b"PARAM h u\n" in each and b"RESULT STATE CORRECT\n" in each for each in written)


def test_service_that_is_not_there_costs_a_job_nothing(tmp_path: Path) -> None:
    config = tmp_path / "jsv.json"
    for text in ({}, {"wake": ""}, {"wake": 7}, {"wake": str(tmp_path / "none")}, {"wake": "a\0b"}):
        config.write_text(json.dumps(text))

        assert jsv.Site(str(config)).wake() is None
