"""What the service keeps with a job comes back as it was, whatever users write beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.rms.slurm.records import (
    MOST_COMMENT,
    NOTHING,
    JobRecord,
    NodeWish,
    carried,
    comment_of,
    record_carried,
    record_in,
    ticket_in,
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

    assert ticket_in(twice) == "1.17.5.ef.9.01"
    assert twice.split(" outrider-ticket=")[0] in (comment, twice)
    assert with_ticket(twice, "") == comment


def test_ticket_takes_the_place_of_a_record_in_the_comment() -> None:
    assert with_ticket(carried(FULL), "1.2") == "outrider-ticket=1.2"
