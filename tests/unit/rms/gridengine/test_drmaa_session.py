"""What is asked of DRMAA's session, which is a mock here: it is C, and one a process."""

from __future__ import annotations

import json
from unittest.mock import MagicMock

import pytest
from pytest_mock import MockerFixture

from outrider.rms.gridengine.drmaa_session import DrmaaSession, answer

SUBMISSION = {"submit": "sleep", "arguments": ["1 2", "it's"], "native": "-w e -N outrider"}


@pytest.fixture
def session(mocker: MockerFixture) -> MagicMock:
    found: MagicMock = mocker.create_autospec(DrmaaSession, instance=True)
    return found


def test_job_is_handed_over_by_a_template_that_is_given_back(session: MagicMock) -> None:
    session.runJob.return_value = "17"

    said = answer(session, json.dumps(SUBMISSION))

    (template,) = session.runJob.call_args.args
    assert said == {"said": "17"}
    assert (template.remoteCommand, template.args) == ("sleep", ["1 2", "it's"])
    assert template.nativeSpecification == "-w e -N outrider"
    session.deleteJobTemplate.assert_called_once_with(template)


def test_template_of_a_job_that_is_refused_is_given_back(session: MagicMock) -> None:
    session.runJob.side_effect = RuntimeError("code 17: no suitable queues")

    said = answer(session, json.dumps(SUBMISSION))

    assert said == {"error": "RuntimeError: code 17: no suitable queues"}
    session.deleteJobTemplate.assert_called_once_with(session.createJobTemplate.return_value)


def test_action_has_the_name_that_drmaa_knows(session: MagicMock) -> None:
    said = answer(session, '{"control": "17", "action": "TERMINATE"}')

    assert said == {"said": ""}
    session.control.assert_called_once_with("17", "terminate")


def test_job_that_is_gone_is_said_not_to_exist(session: MagicMock) -> None:
    session.control.side_effect = type("InvalidJobException", (Exception,), {})("code 18: 17")

    said = answer(session, '{"control": "17", "action": "HOLD"}')

    assert said == {"error": "InvalidJobException: code 18: 17 does not exist"}


@pytest.mark.parametrize("line", ["", "no JSON", "[]", '{"arguments": []}'])
def test_request_that_makes_no_sense_is_answered_and_asks_nothing(session: MagicMock, line: str) -> None:
    said = answer(session, line)

    assert set(said) == {"error"}
    assert session.runJob.call_count == session.control.call_count == 0
