"""Reservations for tests that maltreat one site: asked for with a key, and counted."""

from __future__ import annotations

from pathlib import Path

from tests.daemons.kill import verdicts
from tests.daemons.kill.victim import CLOCK, Answered, Victim

DISTANCE_S = 3_600


def ask_for(victim: Victim, image: Path, number: int, start: str = "") -> Answered:
    """A reservation of its own hour, or from `start`, under the key of its number."""
    start = start or f"uts{START_S + number * DISTANCE_S}"
    text = (
        f"version: 1\nmetadata: {{name: w{number}, image: {{uri: 'file://{image}'}}}}\n"
        f"deployment: {{nodes: 1, start: {start}, duration: 10m}}\n"
    )
    return victim.ask("POST", "/v1/reservations", {"workspace": text}, key=f"key-{number}")


def names(victim: Victim) -> list[str]:
    """The workspaces of all reservations there are, with repetitions."""
    return sorted(each.workspace for each in verdicts.listed(victim).values())


def states(victim: Victim) -> list[str]:
    return sorted(each.state for each in verdicts.listed(victim).values())


START_S = CLOCK.now_s() + 86_400
