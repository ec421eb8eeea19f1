"""How often the line at a job changes: as often as the site says, and what is said then is the last."""

from __future__ import annotations

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, RmsJob
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.jobs.notes import JobNotes
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
