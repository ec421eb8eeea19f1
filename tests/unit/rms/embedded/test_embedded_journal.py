"""What the embedded batch system writes down is what the next service reads."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, NodeState, RmsReservation, Submission
from outrider.rms.embedded.journal import JournalContent, JournaledRun, JournalError, encode, read, write
from outrider.rms.twin.jobs import Holder, Leaving, TwinJob

# No field has its default, so that none can be forgotten.
JOB = TwinJob(
    number=7,
    submission=Submission(
        user="alice",
        uid=61001,
        argv=("/bin/echo", "ü\n"),
        nodes_wanted=2,
        resources=Resources.of(cpus=2, memory_mib=5),
        limit_s=60,
        metadata="image=a",
        reservation="render-1",
        machine="run=vm,memory=5",
        folder="/srv/alice",
    ),
    submitted_s=1,
    work_s=2,
    reservation="render-2",
    state=JobState.RUNNING,
    holders={Holder.OURS, Holder.OTHER},
    wanted_nodes=("n1", "n2"),
    eligible=("n1", "n2", "n3"),
    queue="long",
    ticket="1.7.61001.ab.1.cd",
    shown="waits for its image",
    eligible_s=3,
    nodes=("n1", "n2"),
    start_s=4,
    ready_s=5,
    leaving=Leaving(6, JobState.SUSPENDED, "suspended", 3),
    wants_to_go_on=True,
    done_s=7,
    used_s=8,
    saved_nodes=("n2", "n1"),
    starts=3,
    lands_on=("n3",),
    lands_image="/n3/image",
    lands_since_s=7,
    option=2,
)
KEPT = JournalContent(
    jobs=(JOB,),
    ended={"1": "done", "2": "limit reached"},
    reservations=(
        RmsReservation(name="render-1", nodes=("n1",), start_s=1, end_s=2, users=("alice",), is_ours=False),
    ),
    nodes={"n1": NodeState.DOWN, "n2": NodeState.UP},
    runs={"7": JournaledRun(identity="1 2 boot", start_s=4, is_begun=True, is_stopped=True)},
    last_number=9,
)


def test_everything_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, encode(KEPT))
    found = read(path)

    assert found is not None
    assert [dataclasses.asdict(job) for job in found.jobs] == [dataclasses.asdict(JOB)]
    assert (found.ended, found.reservations, found.runs) == (KEPT.ended, KEPT.reservations, KEPT.runs)
    # What is up is what the configuration says.
    assert (found.nodes, found.last_number) == ({"n1": NodeState.DOWN}, 9)


def test_job_for_a_test_of_all_fields_leaves_none_at_its_default() -> None:
    plain = TwinJob(number=1, submission=JOB.submission, submitted_s=0, work_s=None, reservation=None)
    names = [field.name for field in dataclasses.fields(TwinJob)]

    assert [
        name for name in names if name != "submission" and getattr(plain, name) == getattr(JOB, name)
    ] == []


def test_every_journal_cut_short_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    data = encode(KEPT).rstrip()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(JournalError):
            read(path)

    assert read(tmp_path / "none") is None
