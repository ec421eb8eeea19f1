"""Every limit of the configuration arrives where it is kept: none is accepted and then ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outrider.service.daemon import life
from outrider.service.daemon.configuration.model import LimitsSection
from outrider.service.daemon.threads.loop import Loop
from outrider.service.daemon.threads.workers import Workers
from outrider.service.web.limits import Limits
from tests.unit.service.daemon.conftest import Running

Make = Callable[..., Running]
# What is handed on under another name, and to whom.
NAMES = {
    "connections": "Limits.connections",
    "user_connections": "Limits.connections_per_user",
    "host_connections": "Limits.connections_per_host",
    "user_requests": "Limits.requests_per_user",
    "host_requests": "Limits.requests_per_host",
    "kept": "Limits.kept",
    "probes": "Limits.probes",
    "bodies": "Limits.bodies_bytes",
    "polls": "Limits.polls",
    "user_polls": "Limits.polls_per_user",
    "reservations": "Settings.most_reservations",
    "refusals": "Settings.most_refusals",
    "calls": "Settings.most_calls",
    "resolving": "Effort.at_once",
    "user_lookups": "Effort.waiting_of_one",
    "reading": "Effort.reading_at_once",
    "user_submissions": "Workers.most_submissions_of_one",
    "user_decisions": "Workers.most_decisions_of_one",
    "requests": "Loop.most_requests",
}
# Kept by what reads images, which tests of it show.
ELSEWHERE = {"reading_rate", "image"}


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the parts of the service are made with, by part and name."""
    found: dict[str, Any] = {}

    def note(part: str, of: type) -> Callable[..., Any]:
        def make(*given: Any, **named: Any) -> Any:
            for each in given:
                if type(each).__name__ == "Settings":
                    found.update(
                        {f"Settings.{name}": getattr(each, name) for name in each.__dataclass_fields__}
                    )
            for name, value in named.items():
                found[f"{part}.{name}"] = value
                if name == "effort":
                    found.update({f"Effort.{each}": getattr(value, each) for each in value.__slots__})
            return of(*given, **named)

        return make

    monkeypatch.setattr(life, "Limits", note("Limits", Limits))
    monkeypatch.setattr(life, "Workers", note("Workers", Workers))
    monkeypatch.setattr(life, "Loop", note("Loop", Loop))
    return found


def test_each_limit_is_known_here() -> None:
    options = {field.alias or name for name, field in LimitsSection.model_fields.items()}

    assert options == {*NAMES, *ELSEWHERE}


def test_limits_that_are_configured_are_those_that_are_kept(running: Make, handed: dict[str, Any]) -> None:
    values = {name: 70 + number for number, name in enumerate(NAMES)}
    values["bodies"] = 77 << 20
    running("limits:\n" + "".join(f"  {name}: {value}\n" for name, value in values.items())).start()

    assert {name: handed[place] for name, place in NAMES.items()} == values
