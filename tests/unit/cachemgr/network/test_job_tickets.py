"""Tickets of jobs: what is signed is believed, for that job of that user until that time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemgr.base.errors import BadRequest, NotAllowed
from cachemgr.network.job_tickets import ANY_JOB, JobTicket, checked_ticket, make_job_ticket

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
NOW_S = 1_800_000_000
GOOD = JobTicket("17", 1000, "a" * 64, NOW_S + 60)


def test_ticket_reads_back_as_it_was_made() -> None:
    text = make_job_ticket(KEY, GOOD)

    assert checked_ticket([KEY], text, job="17", uid=1000, now_s=NOW_S) == GOOD
    assert text.startswith(f"1.17.1000.{'a' * 64}.{NOW_S + 60}.")


def test_ticket_signed_by_another_program_is_believed() -> None:
    # printf 'outrider-job|1.17.1000.aaa….1800000060' | openssl dgst -sha256 -hmac kkk…
    mac = "b5daaf08cb08445c74c837b19518df91e6138304238d16863891f6da3187b4de"
    text = f"1.17.1000.{'a' * 64}.1800000060.{mac}"

    assert checked_ticket([KEY], text, job="17", uid=1000, now_s=NOW_S) == GOOD


@pytest.mark.parametrize("keys", [[OTHER_KEY, KEY], [KEY, OTHER_KEY]])
def test_each_of_several_keys_is_believed(keys: list[bytes]) -> None:
    assert checked_ticket(keys, make_job_ticket(KEY, GOOD), job="17", uid=1000, now_s=NOW_S) == GOOD


def test_ticket_of_an_array_is_good_for_each_of_its_tasks() -> None:
    text = make_job_ticket(KEY, dataclasses.replace(GOOD, job=ANY_JOB))

    assert [checked_ticket([KEY], text, job=job, uid=1000, now_s=NOW_S).job for job in ("18", "19")] == [
        ANY_JOB
    ] * 2


@pytest.mark.parametrize(
    ("keys", "job", "uid", "now_s", "said"),
    [
        ([OTHER_KEY], "17", 1000, NOW_S, "was not signed with this node's key"),
        ([], "17", 1000, NOW_S, "was not signed with this node's key"),
        ([KEY], "18", 1000, NOW_S, "job 18 has the ticket of job 17"),
        ([KEY], "17", 1001, NOW_S, "is for uid 1000, not for uid 1001"),
        ([KEY], "17", 1000, NOW_S + 60, "has expired"),
    ],
)
def test_ticket_for_anything_else_is_refused(
    keys: list[bytes], job: str, uid: int, now_s: int, said: str
) -> None:
    with pytest.raises(NotAllowed, match=said):
        checked_ticket(keys, make_job_ticket(KEY, GOOD), job=job, uid=uid, now_s=now_s)


@given(st.integers(0, 200), st.characters(codec="utf-8"))
def test_no_letter_of_a_ticket_can_be_changed(place: int, letter: str) -> None:
    text = make_job_ticket(KEY, GOOD)
    at = place % len(text)
    forged = text[:at] + letter + text[at + 1 :]
    if forged == text:
        return

    with pytest.raises(NotAllowed):
        checked_ticket([KEY], forged, job="17", uid=1000, now_s=NOW_S)


@pytest.mark.parametrize("job", ["17", ANY_JOB])
def test_ticket_says_how_many_images_there_are_beside_its_own(job: str) -> None:
    whole = dataclasses.replace(GOOD, job=job, further=2)
    text = make_job_ticket(KEY, whole)

    assert text.startswith(f"1.{job}+2.1000.")
    assert checked_ticket([KEY], text, job="17", uid=1000, now_s=NOW_S) == whole


@pytest.mark.parametrize("text", ["", "1", "1.....", "x" * 5000, "2" + make_job_ticket(KEY, GOOD)[1:]])
def test_what_is_no_ticket_is_refused(text: str) -> None:
    with pytest.raises(NotAllowed, match="cannot be read"):
        checked_ticket([KEY], text, job="17", uid=1000, now_s=NOW_S)


@pytest.mark.parametrize(
    "wrong", [{"job": "1.7"}, {"job": ""}, {"digest": "a"}, {"uid": -1}, {"job": "a b"}, {"further": 9}]
)
def test_ticket_that_nobody_could_read_is_not_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="no ticket can be made"):
        make_job_ticket(KEY, dataclasses.replace(GOOD, **wrong))
