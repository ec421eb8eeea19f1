"""How often the line at a job changes: as often as the site says, and what is said then is the last."""

from __future__ import annotations

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, RmsJob
from outrider.service.desk.jobs.job import JobEntry, Stage
from outrider.service.desk.jobs.notes import JobNotes, start_of
from outrider.service.ports import TellUser
from outrider.service.settings import Settings

SUBMITTED_S = 1_000


def entry() -> JobEntry:
    job = RmsJob(
        key="7",
        user="ada",
        uid=1,
        state=JobState.HELD,
        resources=Resources.of(cpus=1),
        limit_s=None,
        submitted_s=SUBMITTED_S,
    )
    return JobEntry(job=job, since_s=SUBMITTED_S)


def said(notes: JobNotes, job: JobEntry, now_s: int) -> list[str]:
    """What is shown at this instant. The batch system has done it at once."""
    calls = list(notes.calls(now_s))
    for call in calls:
        notes.told(call, None, job)
    return [call.text for call in calls]


@pytest.mark.parametrize("every_s", [Settings().note_every_s, 2])
def test_line_at_a_job_changes_as_often_as_the_site_says(every_s: int) -> None:
    notes, job = JobNotes(every_s), entry()
    notes.consider(job, "first", SUBMITTED_S)
    told = {SUBMITTED_S: said(notes, job, SUBMITTED_S)}
    for second in range(1, every_s + 1):
        notes.consider(job, f"line {second}", SUBMITTED_S + second)
        told[SUBMITTED_S + second] = said(notes, job, SUBMITTED_S + second)

    assert {at_s - SUBMITTED_S: texts for at_s, texts in told.items() if texts} == {
        0: ["first"],
        every_s: [f"line {every_s}"],
    }


def test_line_that_has_waited_for_its_time_is_not_told_when_nothing_is_to_be_told_any_more() -> None:
    notes, job = JobNotes(2), entry()
    notes.consider(job, "on its way", SUBMITTED_S)
    first = said(notes, job, SUBMITTED_S)
    notes.consider(job, "ready", SUBMITTED_S + 1)
    notes.consider(job, "", SUBMITTED_S + 1)

    assert first == ["on its way"]
    assert said(notes, job, SUBMITTED_S + 2) == []


def staging(ready_s: int, start_s: int | None = None) -> JobEntry:
    made = entry()
    made.stage, made.ready_s, made.start_s = Stage.STAGING, ready_s, start_s
    return made


@pytest.mark.parametrize(
    ("ready_s", "start_s", "expected_s"),
    [(1_100, None, 1_100), (1_100, 1_300, 1_300), (1_300, 1_100, 1_300), (999, None, None)],
)
def test_start_is_expected_when_there_are_image_and_nodes(
    ready_s: int, start_s: int | None, expected_s: int | None
) -> None:
    assert start_of(staging(ready_s, start_s), SUBMITTED_S) == expected_s


def test_no_start_is_expected_of_a_job_that_waits_for_room() -> None:
    job = staging(2_000)
    job.stage = Stage.WAITING

    assert start_of(job, SUBMITTED_S) is None


@pytest.mark.parametrize("stage", [Stage.WAITING, Stage.STAGING, Stage.STAGED])
def test_planned_start_of_a_job_in_its_turn_is_expected_until_it_is_its_turn(stage: Stage) -> None:
    job = entry()
    job.is_scheduled, job.stage, job.planned, job.start_s = True, stage, (0,), SUBMITTED_S + 600
    planned = start_of(job, SUBMITTED_S)
    job.granted = (0,)

    assert planned == SUBMITTED_S + 600
    assert start_of(job, SUBMITTED_S) is None


def test_start_is_told_again_when_it_has_changed_by_a_fifth_or_has_passed() -> None:
    job = staging(2_000)
    job.noted_start_s = start_of(job, SUBMITTED_S)
    job.ready_s = 2_240
    near = start_of(job, SUBMITTED_S)
    job.ready_s = 2_260
    far = start_of(job, SUBMITTED_S)
    passed = start_of(job, 2_001)

    assert (near, far, passed) == (2_000, 2_260, 2_260)


def test_start_that_changes_alone_is_told_too() -> None:
    notes, job = JobNotes(2), staging(2_000)
    notes.consider(job, "line", SUBMITTED_S, 2_000)
    first = [(call.text, call.start_s) for call in notes.calls(SUBMITTED_S)]
    notes.told(TellUser(job="7", text="line"), None, job)
    notes.consider(job, "line", SUBMITTED_S + 2, 3_000)
    second = [(call.text, call.start_s) for call in notes.calls(SUBMITTED_S + 2)]

    assert (first, second) == ([("line", 2_000)], [("line", 3_000)])
