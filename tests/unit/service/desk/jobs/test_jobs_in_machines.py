"""Jobs in virtual machines: suspended for reservations, or because their owners want it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.rms.base import JobState
from outrider.rms.twin.faults import Fault
from outrider.service.answers.jobs import JobDetails
from outrider.service.answers.reply import Trouble
from outrider.service.requests import ResumeJob, SuspendJob
from outrider.service.settings import Settings
from tests.unit.service.desk.jobs.yielding_site import (
    MACHINE,
    MARGIN_S,
    MEMORY_MIB,
    SAVING_S,
    SETTINGS,
    YIELDING,
    happened,
    running,
    site_of,
    state,
)
from tests.unit.service.desk.sandbox import BOB, Sandbox, reserve


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    """Two nodes with the image of all."""
    yield from site_of(tmp_path, SETTINGS)


def test_machine_is_told_as_early_as_its_memory_needs_and_goes_by_itself(site: Sandbox) -> None:
    running(site, "")
    key = running(site, MACHINE, memory_mib=MEMORY_MIB)

    answer = reserve(site, BOB, start="now+200s", duration="100s")
    assert answer.start_s is not None
    site.sleep(answer.start_s - site.now_s + 250)

    assert happened(site, key, "saving") == [answer.start_s - MARGIN_S - SAVING_S]
    # It goes as soon as it has saved its machine, and is not requeued besides.
    assert happened(site, key, "leaving") == happened(site, key, "saving")
    assert len(happened(site, key, "running")) == 2
    assert happened(site, key, "running")[1] >= answer.start_s + 100


def test_machines_on_one_node_share_its_disk(site: Sandbox) -> None:
    running(site, "")
    two = [running(site, MACHINE, memory_mib=MEMORY_MIB, cpus=4) for _ in range(2)]

    answer = reserve(site, BOB, start="now+200s", duration="100s")
    assert answer.start_s is not None
    site.sleep(answer.start_s - site.now_s)

    for key in two:
        assert happened(site, key, "saving") == [answer.start_s - MARGIN_S - (5 + 2 * 1024 // 64)]


@pytest.mark.parametrize(
    ("settings", "memory_mib", "words"),
    [
        (replace(SETTINGS, allows_machines=False), MEMORY_MIB, "jobs.machines"),
        (replace(SETTINGS, allows_preemptible=False), MEMORY_MIB, "jobs.preemptible"),
        (SETTINGS, 0, "how much memory"),
    ],
)
def test_what_a_site_does_not_give_a_machine_is_said(
    tmp_path: Path, settings: Settings, memory_mib: int, words: str
) -> None:
    for made in site_of(tmp_path, settings):
        key = made.submit(more=MACHINE, memory_mib=memory_mib)
        made.sleep(30)

        assert words in " ".join(made.notes[key])
        assert state(made, key) is JobState.HELD


def test_machine_is_suspended_at_its_owners_wish_and_goes_on_at_his_wish(site: Sandbox) -> None:
    key = running(site, MACHINE, memory_mib=MEMORY_MIB)

    refused = site.ask(SuspendJob(job=key), BOB)
    done = site.ask(SuspendJob(job=key))
    site.sleep(30)
    suspended = state(site, key)
    site.sleep(200)
    still = state(site, key)
    resumed = site.ask(ResumeJob(job=key))
    site.sleep(60)

    assert isinstance(refused, Trouble)
    assert refused.code == "not-allowed"
    assert isinstance(done, JobDetails)
    assert (suspended, still) == (JobState.SUSPENDED, JobState.SUSPENDED)
    assert isinstance(resumed, JobDetails)
    assert state(site, key) is JobState.RUNNING
    assert len(happened(site, key, "running")) == 2


def test_machine_goes_on_that_is_asked_to_while_it_is_saved_after_a_restart_of_the_service(
    site: Sandbox,
) -> None:
    key = running(site, MACHINE, memory_mib=MEMORY_MIB)

    site.rms.faults.plan("save", Fault.UNREACHED, Fault.UNREACHED)
    site.ask(SuspendJob(job=key))
    meanwhile = state(site, key)
    site.restart()
    resumed = site.ask(ResumeJob(job=key))
    site.sleep(120)

    assert meanwhile is JobState.RUNNING
    assert isinstance(resumed, JobDetails)
    assert state(site, key) is JobState.RUNNING


def test_machine_stays_suspended_whose_owner_thinks_better_of_it(site: Sandbox) -> None:
    """The batch system has not been told yet that it is to go on."""
    key = running(site, MACHINE, memory_mib=MEMORY_MIB)
    site.ask(SuspendJob(job=key))
    site.sleep(30)
    site.rms.faults.plan("resume", Fault.UNREACHED, Fault.UNREACHED)
    site.ask(ResumeJob(job=key))
    site.sleep(1)
    again = site.ask(SuspendJob(job=key))
    site.sleep(300)

    assert isinstance(again, JobDetails)
    assert state(site, key) is JobState.SUSPENDED


def test_last_wish_of_one_second_counts(site: Sandbox) -> None:
    """The first one was given up for the second."""
    key = running(site, MACHINE, memory_mib=MEMORY_MIB)
    site.rms.faults.plan("save", Fault.UNREACHED, Fault.UNREACHED)
    answers = [site.ask(request(job=key)) for request in (SuspendJob, ResumeJob, SuspendJob)]
    site.sleep(120)

    assert [type(each) for each in answers] == [JobDetails] * 3
    assert state(site, key) is JobState.SUSPENDED


@pytest.mark.parametrize("more", ["", YIELDING])
def test_job_without_a_machine_is_not_suspended(site: Sandbox, more: str) -> None:
    key = running(site, more)

    answer = site.ask(SuspendJob(job=key))

    assert isinstance(answer, Trouble)
    assert "runs in no virtual machine" in answer.message
    assert isinstance(site.ask(SuspendJob(job="4000000")), Trouble)
    assert state(site, key) is JobState.RUNNING
