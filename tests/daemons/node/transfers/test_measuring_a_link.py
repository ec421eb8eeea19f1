"""What a link gives, measured by an image that a real daemon's relay sends, and what is said of link.rate."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.clock import SystemClock
from outrider.cli.errors import CommandError
from outrider.cli.installing import linkmeasure
from outrider.cli.installing.common.findings import Level
from outrider.cli.installing.linkmeasure import Measured, findings, measure, obstacle
from outrider.cli.main import main
from tests.daemons.node.daemons import MIB, Inside, ScriptedCarrier, eventually
from tests.unit.service.daemon.fakes import status

A = "http://x/a"
CONTENT = b"0123456789abcdef" * (8 * MIB // 16)
KEY = b"key" * 16
MB = 1_000_000


@pytest.fixture
def daemon(folder: Path, inside: Callable[..., Inside], carrier: ScriptedCarrier) -> Inside:
    (folder / "key").write_bytes(KEY)
    carrier.contents = {A: CONTENT}
    made = inside(
        relay_listen="127.0.0.1:0",
        control_listen="127.0.0.1:0",
        relay_key=str(folder / "key"),
        relay_rate="2MiB",
        node="localhost",
    )
    made.ask("add", uri=A)
    eventually("the image is there", lambda: bool(made.ask("ls")["images"]))
    return made


def address(daemon: Inside) -> str:
    found: Any = daemon.daemon
    return f"127.0.0.1:{found.relay.port}"


def test_rate_at_which_a_node_sends_is_measured(daemon: Inside) -> None:
    images = daemon.ask("ls")["images"]
    told: list[tuple[int, int]] = []

    found = measure(
        "n1", address(daemon), images, KEY, SystemClock(), on_progress=lambda *each: told.append(each)
    )

    assert found.size_bytes == len(CONTENT)
    assert 0 < found.rate_bytes_per_s <= 2.5 * MIB
    assert told[-1][1] == len(CONTENT)


def test_measuring_ends_with_its_time_and_tells_the_rate_until_then(daemon: Inside) -> None:
    found = measure("n1", address(daemon), daemon.ask("ls")["images"], KEY, SystemClock(), most_s=1)

    assert linkmeasure.LEAST_BYTES <= found.size_bytes < len(CONTENT)


def test_node_without_an_image_or_with_another_key_says_so(daemon: Inside) -> None:
    clock = SystemClock()

    with pytest.raises(CommandError, match="n1 has no image to send"):
        measure("n1", address(daemon), [], KEY, clock)
    with pytest.raises(CommandError, match="401"):
        measure("n1", address(daemon), daemon.ask("ls")["images"], b"other" * 16, clock)


def test_link_rate_beyond_what_the_slowest_node_sends_is_a_warning_with_the_value_to_set() -> None:
    measured = [
        Measured(node="n1", size_bytes=100 * MB, duration_s=10.0),
        Measured(node="n2", size_bytes=50 * MB, duration_s=10.0),
    ]

    *_, high = findings(measured, 10 * MB)
    *_, right = findings(measured, 5 * MB)

    assert high.level is Level.WARNING
    assert "n2 sends" in high.words
    assert "set it to 4500000" in high.words
    assert right.level is Level.OK


def test_link_that_promises_need_is_not_measured() -> None:
    idle = status()

    assert obstacle(idle) == ""
    assert "2 transfers" in obstacle(replace(idle, transfers_running=1, transfers_waiting=1))
    assert "--force" in obstacle(replace(idle, transfers_waiting=1))


def test_doctor_measures_only_if_it_knows_that_no_promise_needs_the_link_or_is_forced(
    daemon: Inside, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("outrider.cli.installing.common.nodefiles.KEY", str(folder / "key"))
    control = re.search(r"control serves .*port=(\d+)", daemon.log())
    assert control is not None
    relay = address(daemon).rpartition(":")[2]
    argv = ["doctor", "--measure-link", "--nodes", "localhost", "--service", str(folder / "none")]
    argv += ["--control-port", control[1], "--relay-port", relay, "--json"]

    refused = main(argv)
    words = json.loads(capsys.readouterr().out)["findings"]
    forced = main([*argv, "--force"])
    findings = json.loads(capsys.readouterr().out)["findings"]

    assert (refused, forced) == (1, 0)
    assert "nobody knows whether a promise needs the link" in words[0]["words"]
    assert [(each["where"], each["what"]) for each in findings] == [
        ("localhost", "link"),
        ("head", "link.rate"),
    ]
