"""Jobs whose turn it is, and reservations that are promised between two looks at the batch system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.core.besteffort.jobs.schedule import ScheduleRules
from outrider.rms.base import JobState
from outrider.service.ports import NodeImage
from outrider.service.settings import ScheduleSettings, Settings
from tests.unit.service.desk.sandbox import RATE, Sandbox, digest_of, reserve, show

LOOK_S, HOUR_S = 30, 3600
SOON_S = 2 * LOOK_S + 10
SETTINGS = Settings(
    link_rate_bytes_per_s=RATE,
    reserve_s=60,
    schedule=ScheduleSettings(queues=("main",), rules=ScheduleRules()),
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    """Four nodes, which have the image."""
    made = Sandbox(tmp_path, settings=SETTINGS)
    for pool in made.pools.values():
        digest = digest_of("ubuntu")
        pool.images[digest] = NodeImage(digest=digest, size_bytes=10 * RATE, uri="x")
    made.sleep(SOON_S)
    yield made
    made.close()


def submit(site: Sandbox, *, nodes: int, limit_s: int) -> str:
    return site.submit(None, nodes=nodes, limit_s=limit_s, argv=("sleep", "1000000"))


def state(site: Sandbox, key: str) -> JobState | None:
    found = site.job(key)
    return None if found is None else found.state


def wait_running(site: Sandbox, key: str) -> None:
    """To the second: the next look has not shown it."""
    for _ in range(SOON_S):
        if state(site, key) is JobState.RUNNING:
            return
        site.sleep(1)
    raise AssertionError(f"job {key} does not run")


@pytest.mark.parametrize("lasts_s", range(300, 300 + LOOK_S, 6))
def test_job_whose_turn_comes_before_the_next_look_leaves_a_reservation_its_nodes(
    site: Sandbox, lasts_s: int
) -> None:
    """At one of these lengths there is no look between the answer and the turn."""
    before = reserve(site, nodes=4, start="now+2minutes", duration=f"{lasts_s}s")
    end_s = site.now_s + 120 + lasts_s
    site.sleep(SOON_S)
    job = submit(site, nodes=4, limit_s=HOUR_S)
    site.sleep(end_s - 4 - site.now_s)

    answer = reserve(site, nodes=4, start="now+500seconds", duration="10m")
    site.sleep(400)

    assert (before.result, answer.result) == ("accepted", "accepted")
    assert state(site, job) is JobState.HELD
    assert show(site, answer.name).reservation.state != "endangered"


def test_nodes_of_a_job_whose_turn_it_was_are_promised_to_nobody_before_it_is_seen_to_run(
    site: Sandbox,
) -> None:
    job = submit(site, nodes=1, limit_s=HOUR_S)
    wait_running(site, job)

    answer = reserve(site, nodes=4, start="now+5minutes", duration="10m")
    beside = reserve(site, nodes=3, start="now+5minutes", duration="10m")
    site.sleep(SOON_S)

    assert answer.result == "refused"
    assert beside.result == "accepted"
    assert show(site, beside.name).reservation.state != "endangered"
