"""What Grid Engine's commands print is read, also where it is no XML: recorded, or written as users would."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.rms.base import RmsError
from outrider.rms.gridengine import parsing

RECORDED = Path(__file__).parent / "recorded"
JOB = """<?xml version='1.0'?><detailed_job_info><djob_info><element><JB_job_number>7</JB_job_number>
<JB_owner>alice</JB_owner><JB_uid>61001</JB_uid><JB_submission_time>1795345062</JB_submission_time>
<JB_account>{account}</JB_account></element></djob_info></detailed_job_info>"""


def test_task_whose_element_has_no_name_is_read() -> None:
    text = (RECORDED / "unnamed-task.xml").read_text()

    found = parsing.details(text)

    assert "<JATASK:       1.>" in text
    assert found["1"].user == "alice"
    assert found["1"].requests == (("h_rt", "3600"),)
    assert found["1"].context == {"OUTRIDER_QUEUES": "base64:Kg=="}


@pytest.mark.parametrize(
    ("written", "read"),
    [("R&D", "R&D"), ("R&amp;D", "R&D"), ("a\x01b", "a�b"), ("x &gt; y", "x > y")],
    ids=["bare ampersand", "quoted ampersand", "control character", "entity"],
)
def test_what_users_wrote_is_read(written: str, read: str) -> None:
    assert parsing.details(JOB.format(account=written))["7"].account == read


def test_half_an_answer_is_no_answer() -> None:
    with pytest.raises(RmsError, match="XML that cannot be read"):
        parsing.details(JOB[:200])
