"""What the service keeps with a job comes back as it was, whatever users write beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.model import Resources
from outrider.rms.base import JobState, RmsNode
from outrider.rms.saved import SavedMachine, saved_again
from outrider.rms.slurm.jobs import SlurmJob
from outrider.rms.slurm.nodes import SlurmNode
from outrider.rms.slurm.placing import Places
from outrider.rms.slurm.records import (
    MOST_COMMENT,
    NOTHING,
    JobRecord,
    NodeWish,
    carried,
    comment_of,
    record_carried,
    record_in,
    with_ticket,
)

FULL = JobRecord(
    sentence="image ready at 14:03",
    metadata='image: http://h/a\ndigest: "x" {"outrider":1',
    tag="t-1",
    is_held=True,
    is_stopped=True,
    is_suspended=True,
    begin_s=7,
    priority=4_294_901_758,
    wish=NodeWish(required="n1", excluded="n[2-3]"),
    saved=SavedMachine(node="n1", limit_s=600, run_s=1000, asked_s=1250),
)
records = st.builds(
    JobRecord,
    sentence=st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(
        lambda text: " ".join(text.split())
    ),
    metadata=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    tag=st.text("abc-019", max_size=20),
    is_held=st.booleans(),
    is_stopped=st.booleans(),
    is_suspended=st.booleans(),
    begin_s=st.integers(0, 2**40),
    priority=st.integers(0, 2**32),
    wish=st.none()
    | st.builds(NodeWish, required=st.text("n[]12,-", max_size=9), excluded=st.text("n[]1", max_size=9)),
    saved=st.none()
    | st.builds(
        SavedMachine,
        node=st.text("n1-", max_size=5),
        limit_s=st.integers(0, 2**40),
        run_s=st.integers(0, 2**40),
        asked_s=st.integers(0, 2**40),
    ),
)


@given(records)
def test_record_is_read_as_it_was_written(record: JobRecord) -> None:
    assert record_in(comment_of(record)) == record


@given(records)
def test_record_in_a_comment_is_what_a_submission_begins_with(record: JobRecord) -> None:
    word = carried(record)

    assert " " not in word
    if len(word) <= MOST_COMMENT:
        assert record_carried(word) == JobRecord(
            metadata=record.metadata,
            tag=record.tag,
            is_held=record.is_held,
        )


@given(st.text(max_size=60))
def test_no_text_of_anybody_breaks_the_readers(text: str) -> None:
    assert record_in(text) is None or '{"outrider":1' in text
    assert record_carried("outrider-record=" + text) is None or text != ""


def test_fields_of_the_submit_filter_are_kept() -> None:
    text = 'outrider: waits {"outrider":1,"metadata":"image: a","origin":{"line":[3]}}'
    record = record_in(text)

    assert record is not None
    assert record_in(comment_of(record.said("is on its way"))) == record.said("is on its way")
    assert '"origin":{"line":[3]}' in comment_of(record)


@pytest.mark.parametrize(
    "text",
    [
        'x {"outrider":1',
        'x {"outrider":1}{',
        "an administrator's note",
        '{"outrider":2}',
        '{"outrider":10}',
        "",
    ],
)
def test_what_is_no_record_makes_no_job_ours(text: str) -> None:
    assert record_in(text) is None


def test_fields_of_a_wrong_kind_count_as_absent() -> None:
    assert record_in('{"outrider":1,"metadata":5,"tag":[],"held":"yes","begin":true,"wish":"n1"}') == NOTHING


def test_bomb_in_a_comment_is_not_unpacked_whole() -> None:
    assert record_carried(carried(JobRecord(metadata="a" * 200_000))) is None


@pytest.mark.parametrize("comment", ["", "mine", "a b  c", "grüße"])
def test_ticket_is_the_last_word_and_the_users_comment_stays(comment: str) -> None:
    once = with_ticket(comment, "1.17.5.ab.9.cd")
    twice = with_ticket(once, "1.17.5.ef.9.01")

    assert twice.endswith(" outrider-ticket=1.17.5.ef.9.01" if comment else "outrider-ticket=1.17.5.ef.9.01")
    assert twice.split(" outrider-ticket=")[0] in (comment, twice)
    assert with_ticket(twice, "") == comment


def test_ticket_takes_the_place_of_a_record_in_the_comment() -> None:
    assert with_ticket(carried(FULL), "1.2") == "outrider-ticket=1.2"


def test_machine_that_goes_on_has_what_was_left_of_its_time() -> None:
    first = saved_again(None, "n1", 600, 1000, 1250)
    again = saved_again(first, "n1", 600, 1000, 1260)
    later = saved_again(again, "n1", 360, 2000, 2040)
    unlimited = saved_again(saved_again(None, "n1", None, 1000, 1250), "n1", None, 2000, 2040)

    assert first.left_s == 600 - 250
    # Asked again in the same run, nothing is taken off twice.
    assert again.left_s == 600 - 260
    # The limit that Slurm has been told is rounded up to minutes; what was left counts.
    assert later.left_s == 600 - 260 - 40
    assert unlimited.limit_s == 0


def a_job(*, limit_s: int, saved: SavedMachine | None = None) -> SlurmJob:
    return SlurmJob(
        key="7", state=JobState.RUNNING, user="ada", uid=1, account="", nodes_wanted=1, most_nodes=1,
        resources=Resources.of(cpus=1), limit_s=limit_s, submitted_s=0, nodes=("n1",), start_s=1000,
        reservation="", comment="", record=JobRecord(saved=saved), is_managed=True, is_held_by_us=False,
        wish=NodeWish(), eligible_s=0, partitions=("main",), features="", hint="",
    )  # fmt: skip


def test_job_with_a_saved_machine_may_start_where_that_is() -> None:
    nodes = [
        SlurmNode(
            node=RmsNode(name=name, capacity=Resources.of(cpus=1)), partitions=("main",), features=frozenset()
        )
        for name in ("n1", "n2")
    ]
    saved = SavedMachine(node="n2", limit_s=600, run_s=1000, asked_s=1250)

    assert Places(nodes).eligible(a_job(limit_s=600)) == ()
    assert Places(nodes).eligible(a_job(limit_s=600, saved=saved)) == ("n2",)
