"""What Grid Engine's commands print is read, also where it is no XML: recorded, or written as users would."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.rms.base import RmsError
from outrider.rms.commands import run_process
from outrider.rms.gridengine import GridEngineCommands, parsing
from tests.amount import examples

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


def test_element_whose_name_has_a_blank_is_read() -> None:
    """As of a job that is back in the queue, while its node is cleaned up after it."""
    text = (RECORDED / "name-with-blank.xml").read_text()
    lost: list[str] = []

    found = parsing.details(text, lost.append)

    assert "<job ids>" in text
    assert [found["1"].user, found["1"].uid] == ["ada", 2001]
    assert lost == []


LINES = """<?xml version='1.0'?>
<detailed_job_info>
  <djob_info>
    <element>
      <JB_job_number>7</JB_job_number>
      <JB_owner>alice</JB_owner>
      <JB_uid>61001</JB_uid>
      <JB_submission_time>1795345062</JB_submission_time>
      <JB_context>
        <context_list>
          <VA_variable>OUTRIDER</VA_variable>
          <VA_value>{value}</VA_value>
        </context_list>
      </JB_context>
      <JB_account>{account}</JB_account>
    </element>
    <element>
      <JB_job_number>8</JB_job_number>
      <JB_owner>bob</JB_owner>
      <JB_uid>61002</JB_uid>
      <JB_submission_time>1795345063</JB_submission_time>
      <JB_account>sge</JB_account>
    </element>
  </djob_info>
</detailed_job_info>
"""


@pytest.mark.parametrize(
    "wrong",
    ["a < b", "</x>", "<b>", "&#1;", "&#0;", "&#xD800;", "]]>", "<!--", "<?x", "a\n<", "<![CDATA[", "<x y>"],
)
def test_value_that_is_no_xml_costs_no_job(wrong: str) -> None:
    lost: list[str] = []

    found = parsing.details(LINES.format(value="http://h/a", account=wrong), lost.append)

    assert [(each.number, each.user) for each in found.values()] == [("7", "alice"), ("8", "bob")]
    assert found["7"].context == {"OUTRIDER": "http://h/a"}


def test_what_cannot_be_read_is_told_with_its_text() -> None:
    lost: list[str] = []

    parsing.details(LINES.format(value="v", account="a < b"), lost.append)

    assert lost == ["<JB_account>a < b</JB_account>"]


def test_element_without_an_end_costs_itself_alone() -> None:
    text = LINES.format(value="v", account="a").replace("        </context_list>\n", "")

    found = parsing.details(text)

    assert sorted(found) == ["7", "8"]
    assert found["7"].context == {}


def test_job_that_lacks_a_number_is_told_and_the_others_are_read() -> None:
    text = LINES.format(value="v", account="a").replace("61001", "a lot")
    lost: list[str] = []

    found = parsing.details(text, lost.append)

    assert list(found) == ["8"]
    assert lost[0].startswith("job 7: ")


@settings(max_examples=examples(300), deadline=None)
@given(value=st.text(), account=st.text())
def test_nothing_that_users_write_hides_a_job(value: str, account: str) -> None:
    found = parsing.details(LINES.format(value=value, account=account))

    assert {"7", "8"} <= set(found)


def test_text_that_cannot_be_read_is_told_once() -> None:
    told: list[str] = []
    commands = GridEngineCommands(run_process, variables={}, told=told.append)

    for _ in range(3):
        commands.told("<JB_account>")

    assert told == ["<JB_account>"]


@pytest.mark.parametrize(
    ("said", "count"), [("7.7G", 8_267_812_044), ("512.0M", 512 << 20), ("-", 0), ("1e9G", 0), ("", 0)]
)
def test_memory_of_a_host_is_read_as_qhost_rounds_it(said: str, count: int) -> None:
    text = f"""<qhost><host name='n1'><hostvalue name='mem_total'>{said}</hostvalue>
    <queue name='all.q'><queuevalue name='slots'>4</queuevalue></queue></host></qhost>"""
    (found,) = parsing.queue_instances(text)

    assert (found.slots, found.memory_bytes) == (4, count)


@pytest.mark.parametrize(("said", "priority"), [("2048", 1024), ("1024", 0), ("1017", -7)])
def test_priority_is_read_as_it_is_asked_for(said: str, priority: int) -> None:
    text = JOB.format(account="x").replace("</element>", f"<JB_priority>{said}</JB_priority></element>")

    assert parsing.details(text)["7"].priority == priority
    assert parsing.details(JOB.format(account="x"))["7"].priority == 0
