"""A transfer under way when its service or its node's daemon is killed goes on where it was."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemons.kill.conftest import MIB, Make
from tests.daemons.kill.origin import Source, origin
from tests.daemons.kill.victim import CLOCK, Victim

RATE = 2 * MIB
SIZE = 6 * MIB
IN_FLIGHT = 512 << 10
"""What the kernel may hold between the web server and the pool when one of them dies."""
NOTED_S = 1.5
"""Within so much time a living daemon notes what has arrived."""


def reserve(victim: Victim, source: Source) -> str:
    start_s = CLOCK.now_s() + 300
    text = (
        f"version: 1\nmetadata: {{name: big, image: {{uri: '{source.uri}', digest: '{source.digest}'}}}}\n"
        f"deployment: {{nodes: 1, start: uts{start_s}, duration: 10m}}\n"
    )
    answered = victim.ask("POST", "/v1/reservations", {"workspace": text})
    assert answered.status == 201, answered
    return str(answered.content["name"])


def arrived_bytes(victim: Victim, name: str) -> int:
    staging = victim.asked("GET", f"/v1/reservations/{name}").get("staging")
    if not isinstance(staging, list) or not staging:
        return 0
    found = staging[0]["arrived_bytes"]
    assert isinstance(found, int)
    return found


def kill_service(victim: Victim) -> None:
    victim.kill()
    victim.start()


def kill_daemon(victim: Victim) -> None:
    os.kill(victim.daemons()["n1"], signal.SIGKILL)


@pytest.mark.parametrize(
    ("kill", "most_twice"),
    [(kill_service, IN_FLIGHT), (kill_daemon, IN_FLIGHT + int(NOTED_S * RATE))],
    ids=["service", "daemon"],
)
def test_killing_costs_a_transfer_only_what_was_not_noted(
    make: Make, folder: Path, kill: Callable[[Victim], None], most_twice: int
) -> None:
    with origin(folder / "images", rate_bytes_per_s=RATE) as place:
        source = place.served("big", SIZE)
        place.held_at = SIZE * 3 // 4
        victim = make()
        victim.init()
        victim.start()
        victim.await_ready()
        name = reserve(victim, source)
        victim.eventually("half of it", lambda: SIZE > arrived_bytes(victim, name) > SIZE // 2)
        kill(victim)
        place.let_go()
        victim.eventually("all of it", lambda: arrived_bytes(victim, name) == SIZE)
        assert victim.stop() == 0
    answers = [each for each in place.sent if each.count]

    assert len(answers) == 2, answers
    assert 0 <= sum(each.count for each in answers) - SIZE <= most_twice, answers
