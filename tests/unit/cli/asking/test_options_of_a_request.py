"""`--option`: what is sent, and what one screen says of each way."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import cast

import pytest

from outrider.cli.asking.display.decision import refused_screen
from outrider.cli.asking.display.terminal import plain_paint
from outrider.cli.asking.display.words import When
from outrider.cli.main import main
from outrider.service.answers.leases import OptionView
from tests.unit.cli.canned import Reply, Service
from tests.unit.cli.samples import ACCEPTED, HOUR_S, MINUTE_S, NOW_S, REFUSED, START_S, STATUS

SLOW = OptionView(
    number=1, result="refused", node_count=1, duration_s=2 * HOUR_S, earliest_start_s=START_S, words="no room"
)
FAST = OptionView(
    number=2,
    result="chosen",
    node_count=4,
    duration_s=35 * MINUTE_S,
    earliest_start_s=START_S,
    words="it is the only one that can be promised",
)


def test_options_are_sent_in_their_order_and_each_is_shown(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = replace(ACCEPTED, options=(SLOW, FAST))
    service.on("POST", "/v1/reservations", Reply(status=201, value=answer))
    service.on("GET", "/v1/status", STATUS)
    file = tmp_path / "ws.yaml"
    file.write_text("version: 1\n")

    words = ["--option", "nodes=1,time=2h", "--option", "nodes=4,time=35m", "--finish-by", "18:00"]
    assert main(["reserve", str(file), *words]) == 0

    sent = cast(dict[str, object], service.last("POST").body)
    assert sent["options"] == {"options": "nodes=1,time=2h;nodes=4,time=35m", "finish_by": "18:00"}
    shown = capsys.readouterr().out
    assert "1 node for 2 h, earliest 2030-03-29 14:30: no room" in shown
    assert "* 4 nodes for 35 min, from 2030-03-29 14:30: it is the only one that can be promised" in shown


def test_options_that_all_have_images_need_no_other(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = replace(FAST, image="https://h/fast.qcow2")
    answer = replace(ACCEPTED, options=(replace(SLOW, image="https://h/slow.qcow2"), fast))
    service.on("POST", "/v1/plans", Reply(status=200, value=answer))
    service.on("GET", "/v1/status", STATUS)

    words = ["--option", "nodes=1,time=2h,image=https://h/slow.qcow2"]
    words += ["--option", "image=https://h/fast.qcow2 nodes=4 time=35m", "--finish-by", "18:00"]
    assert main(["plan", *words]) == 0

    sent = cast(dict[str, object], service.last("POST").body)
    assert "https://h/slow.qcow2" in str(sent["workspace"])
    shown = capsys.readouterr().out
    assert "* 4 nodes for 35 min with fast.qcow2" in shown
    assert main(["plan", *words[:2], "--option", "nodes=4,time=35m"]) != 0
    assert "--image" in capsys.readouterr().err


def test_refusal_says_what_stands_in_the_way_of_each() -> None:
    never = replace(SLOW, earliest_start_s=None)
    refused = replace(REFUSED, options=(never, replace(FAST, result="refused", words="taken")))

    shown = refused_screen(refused, When(now_s=NOW_S, zone=UTC), plain_paint, "is refused", "")

    assert "1 node for 2 h, no start is known: no room" in shown
    assert "4 nodes for 35 min, earliest 14:30: taken" in shown
