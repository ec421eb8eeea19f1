"""Jobs whose images' servers do not answer: whose turn it is, what is said, and that it ends with the job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.service.answers.jobs import JobDetails
from outrider.service.ports import FoundImage, NotYet
from outrider.service.requests import ShowJob
from tests.unit.service.desk.sandbox import BOB, RATE, Sandbox

SITE = "https://images.example.org/"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path)
    yield made
    made.close()


def told(sandbox: Sandbox, key: str) -> str:
    answer = sandbox.ask(ShowJob(job=key))
    assert isinstance(answer, JobDetails)
    return answer.job.words


def tarpits(sandbox: Sandbox, count: int) -> list[str]:
    names = [f"tarpit{number}" for number in range(count)]
    sandbox.silent |= {SITE + name for name in names}
    return [sandbox.submit(name) for name in names]


def test_jobs_of_one_user_that_are_never_looked_up_delay_no_other_users(sandbox: Sandbox) -> None:
    tarpits(sandbox, 60)
    sandbox.sleep(31)
    good = sandbox.submit(caller=BOB)
    sandbox.sleep(60)

    job = sandbox.job(good)
    assert job is not None
    assert job.start_s is not None
    assert len({call.uri for call in sandbox.resolved if "tarpit" in call.uri}) == 2


def test_look_up_ends_with_its_job_and_its_place_is_free(sandbox: Sandbox) -> None:
    keys = tarpits(sandbox, 60)
    sandbox.sleep(31)
    asked = [call for call in sandbox.resolved if "tarpit" in call.uri]
    for key in keys:
        sandbox.rms.outside.cancel(key)
    good = sandbox.submit()
    sandbox.sleep(60)

    assert sandbox.dropped == asked
    job = sandbox.job(good)
    assert job is not None
    assert job.start_s is not None
    assert [call.uri for call in sandbox.resolved] == [*(call.uri for call in asked), SITE + "ubuntu"]


def test_look_up_goes_on_while_another_job_waits_for_it(sandbox: Sandbox) -> None:
    first, *_ = tarpits(sandbox, 1)
    second = sandbox.submit("tarpit0")
    sandbox.sleep(31)
    sandbox.rms.outside.cancel(first)
    sandbox.sleep(31)
    before = list(sandbox.dropped)
    sandbox.rms.outside.cancel(second)
    sandbox.sleep(31)

    assert before == []
    assert [call.uri for call in sandbox.dropped] == [SITE + "tarpit0"]


def test_job_says_whom_it_waits_for(sandbox: Sandbox) -> None:
    keys = tarpits(sandbox, 3)
    sandbox.sleep(31)
    at_once = told(sandbox, keys[0])
    sandbox.sleep(40)

    assert at_once.startswith("its image is looked up: images.example.org was asked at ")
    assert at_once.endswith("and has not answered yet")
    assert sandbox.notes[keys[0]] == [f"outrider: {at_once}"], "no line more while it lasts"
    assert told(sandbox, keys[2]) == (
        "its image is to be looked up at images.example.org, after those of other jobs of yours"
    )


def test_job_whose_image_is_being_converted_says_when_it_is_expected_and_goes_on_then(
    sandbox: Sandbox,
) -> None:
    uri = SITE + "ubuntu"
    made_s = sandbox.now_s + 400
    expected = FoundImage(size_bytes=100 * RATE, digest="", made_s=made_s)
    sandbox.unmade[uri] = NotYet("3 MB of 9 MB", expected)
    key = sandbox.submit()
    sandbox.sleep(31)
    words = told(sandbox, key)
    shown = sandbox.expected[key]
    del sandbox.unmade[uri]
    sandbox.sleep(60)

    assert "its image is being converted, and expected about" in words
    assert words.endswith(": 3 MB of 9 MB")
    assert sandbox.notes[key][0].startswith("outrider: its image is being converted, and expected about")
    assert shown is not None
    assert made_s + 100 <= shown <= made_s + 120, "the transfer behind it, with the link's own margin"
    job = sandbox.job(key)
    assert job is not None
    assert job.start_s is not None
