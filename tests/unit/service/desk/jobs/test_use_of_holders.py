"""What holder jobs had is in the report once they are over, by the batch system's figures, and once only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.rms.base import JobUse, Refused, RmsJob, Unavailable
from outrider.rms.twin import Twin
from outrider.rms.twin.jobs import TwinJob
from outrider.service.answers.leases import Report, ReportLine
from outrider.service.requests import ShowReport
from outrider.store.records import Payer
from tests.unit.service.desk.jobs.yielding_site import SETTINGS, running, site_of
from tests.unit.service.desk.sandbox import ADMIN, ALICE, BOB, Sandbox

USES: dict[str, JobUse | Exception] = {}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """Its jobs of four processors are holder jobs, of whose use the batch system says what is in USES."""
    seen = TwinJob.seen

    def seen_as_holder(job: TwinJob) -> RmsJob:
        found = seen(job)
        if found.resources["cpus"] != 4:
            return found
        return replace(found, stands_for="17", payer="physics", account="machines")

    def use_of(twin: Twin, job: str) -> JobUse:
        found = USES[job]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(TwinJob, "seen", seen_as_holder)
    monkeypatch.setattr(Twin, "use_of", use_of)
    USES.clear()
    yield from site_of(tmp_path, SETTINGS)


def report(site: Sandbox, by: Payer = "user") -> dict[str, ReportLine]:
    found = site.ask(ShowReport(by=by, from_s=0, until_s=None), ADMIN)
    assert isinstance(found, Report)
    return {line.payer: line for line in found.lines}


def had(start_s: int, end_s: int, cpus: int) -> JobUse:
    return JobUse(start_s=start_s, end_s=end_s, cpus=cpus, group="users")


def test_holders_are_added_up_for_whoever_owns_their_machines(site: Sandbox) -> None:
    first, second = running(site, cpus=4), running(site, cpus=4, caller=BOB)
    USES[first], USES[second] = had(100, 160, 4), had(100, 130, 6)
    while_they_run = report(site)
    for key in (first, second):
        site.rms.cancel(key, "over")
    site.sleep(30)

    assert while_they_run == {}
    by_user = report(site)
    assert {
        name: (line.machines, line.machine_node_seconds, line.machine_cpu_seconds)
        for name, line in by_user.items()
    } == {ALICE.user: (1, 60, 240), BOB.user: (1, 30, 180)}
    # Whatever the batch system charges, it is the account of the job whose machine it was.
    assert [(name, line.machine_cpu_seconds) for name, line in report(site, "account").items()] == [
        ("physics", 420)
    ]
    assert by_user[ALICE.user].charged == by_user[ALICE.user].reservations == 0


def test_holder_that_ends_while_no_service_runs_is_added_up_once(site: Sandbox) -> None:
    key = running(site, cpus=4)
    USES[key] = Unavailable("slurmctld is away")
    # Nobody looks meanwhile.
    site.rms.cancel(key, "over")
    site.clock.sleep(600)
    site.restart()
    site.sleep(30)
    before = report(site)
    USES[key] = had(100, 160, 4)
    site.sleep(300)
    site.restart()
    site.sleep(300)

    assert before == {}
    assert report(site)[ALICE.user].machine_cpu_seconds == 240


def test_holder_of_which_nothing_is_known_any_more_is_left_out_and_told(site: Sandbox) -> None:
    key = running(site, cpus=4)
    USES[key] = Refused("it is forgotten")
    site.rms.cancel(key, "over")
    site.sleep(60)

    assert report(site) == {}
    assert any("it is forgotten" in each.reason for each in site.store.decisions_since(0))


def test_other_jobs_are_not_asked_for(site: Sandbox) -> None:
    key = running(site, cpus=8)
    site.rms.cancel(key, "over")
    site.sleep(60)

    assert report(site) == {}
